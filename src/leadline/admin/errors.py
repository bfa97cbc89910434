"""Failures of requests to a cluster, and the texts of clients' errors."""

from typing import TYPE_CHECKING

from leadline.errors import ERROR_NAMES

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class Failure(Exception):
    """A request that cannot be carried out. The message is one line."""


def client_errors() -> "tuple[type[Exception], ...]":
    from confluent_kafka import KafkaException

    return (KafkaException,)


def client_error_text(error: "KafkaError | str") -> str:
    """An error of the client or a broker, with its name in parentheses."""
    if isinstance(error, str):
        return error
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ")
    return f"{text} ({client_error_name(error)})"


def client_error_name(error: "KafkaError") -> str:
    """Kafka's name of a broker's error, which librdkafka may name otherwise; librdkafka's name of its own errors."""
    return ERROR_NAMES.get(error.code(), error.name())


def is_about_group(error: "KafkaError") -> bool:
    """Whether the client may not use its group. A consumer needs one, even if it only reads what is assigned to it."""
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)
