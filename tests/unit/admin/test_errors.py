"""Errors of librdkafka as text."""

import pytest
from confluent_kafka import KafkaError

from leadline.admin.errors import client_error_name, client_error_text


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "UNKNOWN_TOPIC_OR_PARTITION"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, "NOT_LEADER_OR_FOLLOWER"),
        (KafkaError.TOPIC_EXCEPTION, "INVALID_TOPIC_EXCEPTION"),
        (105, "TRANSACTIONAL_ID_NOT_FOUND"),  # librdkafka has no name for it
        (KafkaError._TRANSPORT, "_TRANSPORT"),
        (9999, "ERR_9999?"),
    ],
)
def test_an_error_of_a_broker_has_kafkas_name_and_one_of_the_client_its_own(code: int, name: str) -> None:
    assert client_error_name(KafkaError(code)) == name


def test_the_text_of_an_error_has_its_name_behind_it() -> None:
    error = KafkaError(KafkaError.TOPIC_EXCEPTION, "the name is invalid")
    assert client_error_text(error) == "the name is invalid (INVALID_TOPIC_EXCEPTION)"
