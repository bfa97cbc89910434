"""What clients did and saw. The checkers read it."""

from dataclasses import dataclass, field

from leadline.model import Offset, TopicPartition


@dataclass(slots=True)
class Attempt:
    """One record that a producer sent. `offset` is None as long as it is not acknowledged."""

    producer: str
    number: int  # counts the records of this producer in this partition
    value: bytes
    tp: TopicPartition
    offset: Offset | None = None
    is_given_up: bool = False  # the client does not know whether it was written


@dataclass(slots=True)
class ClientHistory:
    attempts: list[Attempt] = field(default_factory=list)
    acknowledged_s: dict[TopicPartition, float] = field(default_factory=dict)  # when the last record was
    errors: dict[str, int] = field(default_factory=dict)  # answers that were not a success, by name

    def count(self, name: str) -> None:
        self.errors[name] = self.errors.get(name, 0) + 1
