"""The shared nouns: partitions and ids as Kafka writes them."""

import uuid
from uuid import uuid4

import pytest

from leadline.model import TopicPartition, format_id, new_id, parse_id


def test_a_partition_is_called_by_its_topic_and_number() -> None:
    assert str(TopicPartition("my-topic", 3)) == "my-topic-3"


def test_an_id_is_22_characters_of_url_safe_base64() -> None:
    value = uuid.UUID(bytes=bytes(range(240, 256)))
    assert format_id(value) == "8PHy8_T19vf4-fr7_P3-_w"
    assert parse_id(format_id(value)) == value


@pytest.mark.parametrize(
    "text", ["", "short", "8PHy8_T19vf4-fr7_P3-_w8PHy", "8PHy8+T19vf4/fr7+P3+/w", "8PHy8_T19vf4-fr7 P3-_w"]
)
def test_what_is_no_id_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        parse_id(text)


def test_a_new_id_never_starts_with_a_dash() -> None:
    assert not any(format_id(new_id(uuid4)).startswith("-") for _ in range(500))
