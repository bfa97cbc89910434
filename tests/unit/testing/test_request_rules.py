"""Rules for requests: which ones they match, and names that do not exist."""

from uuid import UUID

import pytest

from leadline.testing.request_rules import RequestRule, RuleAction, checked_api, error_code_of
from leadline.testing.seen_requests import SeenRequest, seen_request
from leadline.wire.frames import FRONT, request_frame
from leadline.wire.messages import MetadataRequest, ProduceRequest
from tests.support.brokers import joined


def produce(topic: str = "orders", partition: int = 0, client_id: str = "app", broker: int = 1) -> SeenRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=b"")
    request = ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])])
    return seen_by(request, 9, client_id, broker)


def seen_by(request: ProduceRequest | MetadataRequest, version: int, client_id: str, broker: int = 1) -> SeenRequest:
    frame = memoryview(joined(request_frame(request, version, 7, client_id)))[4:]
    return seen_request(broker, 0, frame, FRONT.unpack_from(frame), "127.0.0.1", dict[UUID, str](), {"broker-2"})


def test_a_rule_without_conditions_matches_every_request_of_a_client() -> None:
    rule = RequestRule(RuleAction.FAIL, None)
    assert rule.matches(produce())
    assert not rule.matches(produce(client_id="broker-2"))
    assert RequestRule(RuleAction.FAIL, None, of_brokers=True).matches(produce(client_id="broker-2"))


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (RequestRule(RuleAction.FAIL, "Produce"), True),
        (RequestRule(RuleAction.FAIL, "Fetch"), False),
        (RequestRule(RuleAction.FAIL, None, topic="orders"), True),
        (RequestRule(RuleAction.FAIL, None, topic="users"), False),
        (RequestRule(RuleAction.FAIL, None, topic="orders", partition=0), True),
        (RequestRule(RuleAction.FAIL, None, topic="orders", partition=1), False),
        (RequestRule(RuleAction.FAIL, None, client_id="app"), True),
        (RequestRule(RuleAction.FAIL, None, client_id="other"), False),
        (RequestRule(RuleAction.FAIL, None, broker=1), True),
        (RequestRule(RuleAction.FAIL, None, broker=2), False),
        (RequestRule(RuleAction.FAIL, None, when=lambda request: request.api == "Produce"), True),
        (RequestRule(RuleAction.FAIL, None, when=lambda request: False), False),
        (RequestRule(RuleAction.FAIL, None, times=1), True),
        (RequestRule(RuleAction.FAIL, None, times=1, hits=1), False),
    ],
)
def test_each_condition_has_to_hold(rule: RequestRule, matches: bool) -> None:
    assert rule.matches(produce()) is matches


def test_a_rule_about_a_partition_matches_a_request_that_names_its_topic_as_a_whole() -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="orders")])
    assert RequestRule(RuleAction.DELAY, None, topic="orders", partition=3).matches(seen_by(request, 9, "app"))


def test_a_rule_ends_with_its_block() -> None:
    removed: list[RequestRule] = []
    with RequestRule(RuleAction.DELAY, None, _remove=removed.append) as rule:
        assert removed == []
    assert removed == [rule]


@pytest.mark.parametrize(
    ("error", "code"), [("MESSAGE_TOO_LARGE", 10), ("INVALID_TOPIC_EXCEPTION", 17), ("KAFKA_STORAGE_ERROR", 56), (6, 6)]
)
def test_an_error_is_given_by_kafkas_name_or_by_its_code(error: str | int, code: int) -> None:
    assert error_code_of(error) == code


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("MESAGE_TOO_LARGE", "did you mean MESSAGE_TOO_LARGE"),
        ("NONE", "there is no error 'NONE'"),
        (0, "no error code 0"),
        (999, "no error code 999"),
    ],
)
def test_an_error_that_does_not_exist_is_refused(error: str | int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error_code_of(error)


def test_a_request_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    assert (checked_api("Produce"), checked_api(None)) == ("Produce", None)
    with pytest.raises(ValueError, match="there is no request 'Produse': did you mean Produce"):
        checked_api("Produse")
    with pytest.raises(ValueError, match="There are: "):
        checked_api("zzzzzz")
