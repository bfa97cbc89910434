"""Each row of the table of authorization, enforced: by the request itself, on a broker in memory.

A row has an example: a request that needs the right. It is sent by a user with nothing, by one with exactly the right,
and by one with every right to whom this one is denied. All other rows of the same request are allowed meanwhile.
"""

import logging

import pytest

from leadline.api.authorization import ShownRefusal
from leadline.model import TopicPartition
from leadline.runtime.log_levels import TRACE
from leadline.security.audit import AUDIT_LOGGER
from leadline.wire import messages as m
from leadline.wire.classes import Message
from tests.support.authorization_examples import (
    EXAMPLES,
    GROUP,
    REFUSALS,
    ROWS,
    TOPIC,
    TXN_ID,
    AuthorizationRow,
    Setup,
    add_partitions,
    codes_in,
    commit,
    find,
)
from tests.support.authorized_broker import ALICE, AuthorizedBroker, run_authorized
from tests.support.in_memory_broker import InMemoryClient


def test_each_row_of_a_request_that_is_served_has_an_example() -> None:
    missing = {(row.request_name, row.requirement.part) for row in ROWS} - EXAMPLES.keys()
    assert not missing


async def send(client: InMemoryClient, row: AuthorizationRow, request: Message) -> Message:
    answer: Message = await client.send(request, getattr(m, f"{row.request_name}Response"), row.example.version)
    return answer


async def set_up(broker: AuthorizedBroker) -> Setup:
    """A topic, a group with a committed offset, and a transaction on the topic."""
    root = broker.root
    await root.create(TOPIC)
    for kind, key in ((0, GROUP), (1, TXN_ID)):
        await root.send(find(kind, key), m.FindCoordinatorResponse, 4)
    request = m.InitProducerIdRequest(transactional_id=TXN_ID, transaction_timeout_ms=60_000)
    producer = await root.send(request, m.InitProducerIdResponse, 4)
    assert producer.error_code == 0, producer
    add = add_partitions(3)
    assert isinstance(add, m.AddPartitionsToTxnRequest)
    add.v3_and_below_producer_id, add.v3_and_below_producer_epoch = producer.producer_id, producer.producer_epoch
    added = await root.send(add, m.AddPartitionsToTxnResponse, 3)
    assert codes_in(added) == {0}
    assert codes_in(await root.send(commit(m.OffsetCommitRequest), m.OffsetCommitResponse, 8)) == {0}
    services = broker.broker.services
    services.is_alone = False  # requests of other brokers are not refused for there being none
    return Setup(services.metadata.topics[TOPIC].id, services.metadata.me.id)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_is_enforced(row: AuthorizationRow, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(TRACE, AUDIT_LOGGER)
    example, requirement = row.example, row.requirement

    async def test(broker: AuthorizedBroker) -> None:
        setup = await set_up(broker)

        async def is_refused() -> bool:
            response = await send(broker.client(), row, example.request(setup))
            codes = codes_in(response)
            if example.shows is not None:
                is_silent = requirement.refusal in (ShownRefusal.HIDDEN, ShownRefusal.DETAIL)
                assert not (is_silent and codes & REFUSALS and requirement.part != "configs"), response
                return not example.shows(response)
            assert requirement.error is not None
            assert codes & REFUSALS <= {requirement.error.code}, response
            return requirement.error.code in codes

        broker.put(*row.others())
        caplog.clear()
        assert await is_refused(), "with nothing"
        level = logging.INFO if requirement.is_audited else TRACE
        assert any("is Denied" in record.getMessage() and record.levelno == level for record in caplog.records)
        broker.put(*row.denying())
        assert await is_refused(), "with a deny"
        for right in reversed(requirement.any_of):
            broker.remove_all()
            broker.put(*row.others(), row.allowing(right))
            assert not await is_refused(), f"with {right}"

    run_authorized(test, auto_create_topics_enable="true")


def test_without_an_authorizer_nothing_is_decided() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        assert broker.broker.services.acls is None
        response = await broker.client(ALICE).produce(TopicPartition("t", 0))
        assert response.error_code == 3

    run_authorized(test, authorizer_class_name="")
