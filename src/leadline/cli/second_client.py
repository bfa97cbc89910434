"""What librdkafka cannot ask a cluster for: transactions, the producers of a partition, and to forget one offset.

The client here is kafka-python's, which has no types: what it answers becomes ours in this file. It is reached with the
same properties as librdkafka; what it has no word for, of all that concerns security, is refused by name.
"""
# mypy: disable-error-code="import-untyped"

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from leadline.cli.client import Connection, Failure
from leadline.cli.open_transactions import Open, Transaction
from leadline.model import TopicPartition

T = TypeVar("T")

RETRY_S = 0.1
AT_ONCE = 500  # partitions in one request
NAMES = {
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
SECURITY = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")


def settings_for(properties: Mapping[str, str]) -> dict[str, object]:
    """Properties of librdkafka in kafka-python's words. How it batches and caches does not concern this one."""
    found: dict[str, object] = {}
    for name, value in properties.items():
        if name in NAMES:
            found[NAMES[name]] = value.upper() if name == "security.protocol" else value
        elif name == HOSTNAME_CHECK:
            found["ssl_check_hostname"] = value.lower() != "none"
        elif name.startswith(SECURITY):
            raise Failure(f"{name}: this command cannot use it; it can use {', '.join(NAMES)} and {HOSTNAME_CHECK}")
    return found


@dataclass(frozen=True, slots=True)
class Listed:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@contextmanager
def second_client(connection: Connection) -> Iterator["SecondClient"]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what goes wrong is told once, by the command
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    timeout_ms = round(connection.timeout_s * 1000)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=connection.servers.split(","),
            request_timeout_ms=timeout_ms,
            bootstrap_timeout_ms=timeout_ms,
            **settings_for(connection.properties),
        )
    except (KafkaError, ValueError, AssertionError) as error:
        raise Failure(f"cannot reach {connection.servers}: {error}") from None
    try:
        yield SecondClient(client, connection.timeout_s)
    finally:
        client.close()


class SecondClient:
    def __init__(self, admin: object, timeout_s: float) -> None:
        from kafka import KafkaAdminClient

        assert isinstance(admin, KafkaAdminClient)
        self._admin, self._timeout_s = admin, timeout_s

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        """The answer, also if it takes some attempts: a coordinator may be loading, a leader may be on its way."""
        from kafka.errors import KafkaError

        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except KafkaError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise Failure(f"{what}: {error_text(error)}") from None
            time.sleep(RETRY_S)

    def transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
    ) -> list[Listed]:
        """What every broker knows as coordinator; no filter: everything."""
        answers = self._asked(
            "transactions",
            lambda: self._admin.list_transactions(
                state_filters=list(states),
                producer_id_filters=list(producer_ids),
                duration_filter_ms=longer_than_ms,
            ),
        )
        found = [
            Listed(each.transactional_id, broker, each.producer_id, each.state.value)
            for broker, listings in answers.items()
            for each in listings
        ]
        return sorted(found, key=lambda each: each.transactional_id)

    def transaction(self, transactional_id: str) -> Transaction | None:
        """As its coordinator describes it; None if that does not know it."""
        from kafka.errors import TransactionalIdNotFoundError

        def ask() -> Transaction | None:
            try:
                answer = self._admin.describe_transactions([transactional_id])[transactional_id]
            except TransactionalIdNotFoundError:
                return None
            return Transaction(
                transactional_id=transactional_id,
                coordinator=answer.coordinator_id,
                state=answer.state.value,
                producer_id=answer.producer_id,
                epoch=answer.producer_epoch,
                timeout_ms=answer.transaction_timeout_ms,
                started_ms=answer.transaction_start_time_ms if answer.transaction_start_time_ms >= 0 else None,
                partitions=frozenset(TopicPartition(tp.topic, tp.partition) for tp in answer.topic_partitions),
            )

        return self._asked(f"transactional id {transactional_id}", ask)

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> list[Open]:
        """The transactions that are open in these partitions, as their leaders know them."""
        found: list[Open] = []
        for n in range(0, len(partitions), AT_ONCE):
            found += self._open_transactions(partitions[n : n + AT_ONCE])
        return sorted(found, key=lambda each: (each.tp, each.start_offset))

    def _open_transactions(self, partitions: Sequence[TopicPartition]) -> list[Open]:
        from kafka import TopicPartition as Theirs

        asked = [Theirs(*tp) for tp in partitions]
        answers = self._asked("producers", lambda: self._admin.describe_producers(asked))
        return [
            Open(
                tp=TopicPartition(theirs.topic, theirs.partition),
                producer_id=each.producer_id,
                epoch=each.producer_epoch,
                coordinator_epoch=each.coordinator_epoch,
                start_offset=each.current_transaction_start_offset,
                last_ms=each.last_timestamp,
            )
            for theirs, state in answers.items()
            for each in state.active_producers
            if each.current_transaction_start_offset >= 0
        ]

    def abort(self, tp: TopicPartition, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Write an abort marker into a partition."""
        from kafka import TopicPartition as Theirs
        from kafka.admin import AbortTransactionSpec

        marker = AbortTransactionSpec(Theirs(*tp), producer_id, epoch, coordinator_epoch)
        self._asked(f"{tp}", lambda: self._admin.abort_transaction(marker))

    def forget_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[str]:
        """Delete what a group has committed for some partitions; what went wrong, one line a partition."""
        from kafka import TopicPartition as Theirs
        from kafka.errors import NoError

        asked = [Theirs(*tp) for tp in partitions]
        answers = self._asked(f"group {group}", lambda: self._admin.delete_group_offsets(group, asked))
        return [
            f"{tp.topic}-{tp.partition}: {error_text(error())}" for tp, error in answers.items() if error is not NoError
        ]


def error_text(error: Exception) -> str:
    """What went wrong, with the name by which it can be looked up."""
    from kafka.errors import BrokerResponseError, NodeNotReadyError

    if isinstance(error, NodeNotReadyError):
        return f"broker {error.args[0] if error.args else ''} does not answer"
    if isinstance(error, BrokerResponseError):
        return f"{error.description.rstrip('.')} ({error.message})"
    return str(error)
