"""The nouns that every layer shares: partitions of topics, offsets, epochs, ids."""

import base64
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview
Offset = int  # position of a record in its partition
LeaderEpoch = int  # counts the leaders of a partition
ProducerId = int
BrokerId = int
TopicId = uuid.UUID

NO_TIMESTAMP = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER: BrokerId = -1
DURING_DELETE = -2  # as leader or leader epoch: the topic is being deleted
NO_ID: TopicId = uuid.UUID(int=0)  # of a topic that has none, or is given by its name
NONE = 0  # as an error code: no error
ACKS_ALL = -1  # in a produce request: those of all in-sync replicas


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions by their topics, in the order in which they come."""
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def format_id(value: uuid.UUID) -> str:
    """Kafka writes its ids as unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> uuid.UUID:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) != 16 or "+" in text or "/" in text:  # which the decoder lets pass
        raise ValueError(f"not an id: {text!r} (22 characters of URL-safe base64)")
    return uuid.UUID(bytes=raw)


def new_id(new_uuid: Callable[[], uuid.UUID]) -> uuid.UUID:
    """A random id. One whose text starts with a dash is drawn again: a command line takes that for an option."""
    while True:
        value = new_uuid()
        if not format_id(value).startswith("-"):
            return value
