"""Kafka's error codes: each has one class, and what another broker answers becomes that class again."""

import pytest

from leadline import errors
from leadline.errors import BY_CODE, InvalidRecord, InvalidTimestamp, StorageError, UnknownServerError, WireError

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, WireError) and "code" in vars(kind)
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_code_finds_its_class_again(kind: type[WireError]) -> None:
    error = errors.by_code(kind.code, "why")
    assert (type(error), str(error)) == (kind, "why")


def test_codes_of_refused_records_are_found_too() -> None:
    assert (BY_CODE[32], BY_CODE[87]) == (InvalidTimestamp, InvalidRecord)


def test_no_two_classes_have_the_same_code() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL) == len(BY_CODE)
    assert BY_CODE[56] is StorageError


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert type(errors.by_code(9999, "why")) is UnknownServerError


def test_codes_have_kafkas_names() -> None:
    names = {-1: "UNKNOWN_SERVER_ERROR", 0: "NONE", 6: "NOT_LEADER_OR_FOLLOWER", 87: "INVALID_RECORD"}
    assert {code: errors.error_name(code) for code in names} == names
    assert errors.error_name(120) == "TRANSACTION_ABORTABLE"
    assert errors.error_name(4711) == "4711"
    assert errors.error_name(-2) == "-2"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_class_is_called_what_kafka_calls_its_code(kind: type[WireError]) -> None:
    name = "".join(word.capitalize() for word in errors.error_name(kind.code).split("_"))
    shorter = {
        "MessageTooLarge": "RecordTooLarge",  # as Java's exception is called
        "InvalidTopicException": "InvalidTopic",
        "OutOfOrderSequenceNumber": "OutOfOrderSequence",
        "KafkaStorageError": "StorageError",
    }
    assert kind.__name__ == shorter.get(name, name)
