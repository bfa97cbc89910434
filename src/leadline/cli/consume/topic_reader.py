"""The progress of `leadline consume`, and the reason if no record arrives."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure, client_error_text, is_about_group
from leadline.admin.formatting import size_text, time_text
from leadline.admin.leaders import leader_problem
from leadline.admin.record_format import Layout
from leadline.cli.errors import print_error

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


NO_ASSIGNMENT = "the group has assigned no partition to this member yet"


PROBLEM_S = 2.0  # to find out why no record arrives, unless --timeout is shorter
STALL_S = 3.0  # without a record, until the reason is printed
CLOSE_S = 5.0  # until a member gives up leaving its group
FAILED_CLOSE_S = 0.5  # the same after --timeout is over


def leave(consumer: "Consumer", limit_s: float) -> None:
    """Close a consumer. A member commits and leaves its group, for which librdkafka waits without a limit.

    If no coordinator answers, the closing thread is left behind: it ends with the process.
    """
    closing = Thread(target=consumer.close, name="close", daemon=True)
    closing.start()
    closing.join(limit_s)
    if closing.is_alive():
        print_error(f"no coordinator answered within {limit_s:g} s: the group was not left, and offsets may be missing")


@dataclass(slots=True)
class TopicReader:
    """What was read so far, and whether it is complete."""

    topic: str
    max_records: int | None  # records
    ends: dict[int, int] | None  # by partition, of those still to be read to their end; None: no end
    layout: Layout
    stores_offsets: bool = False  # whether offsets are committed: with a group
    count: int = 0
    size: int = 0

    @property
    def finished(self) -> bool:
        return self.count == self.max_records or (self.ends is not None and not self.ends)

    @property
    def is_bounded(self) -> bool:
        return self.max_records is not None or self.ends is not None

    def take(self, messages: "Sequence[Message]") -> "tuple[bytes, dict[int, Message]]":
        """The bytes to write, and the last record of each partition among them."""
        from confluent_kafka import KafkaError

        out: list[bytes] = []
        last: dict[int, Message] = {}
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            if (error := message.error()) is not None:
                if is_about_group(error) and not self.stores_offsets:
                    continue
                if error.code() != KafkaError._PARTITION_EOF:
                    raise Failure(f"{self.topic}: {client_error_text(error)}")
                if self.ends is not None:
                    self.ends.pop(partition, None)
            elif not self.finished and self._is_before_end(partition, offset):
                out.append(self.layout(message))
                last[partition] = message
                self.count += 1
                self.size += len(message) + len(message.key() or b"")
        return b"".join(out), last

    def _is_before_end(self, partition: int, offset: int) -> bool:
        if self.ends is None:
            return True
        end = self.ends.get(partition, -1)
        if offset >= end - 1:
            self.ends.pop(partition, None)
        return offset < end

    def summary(self, seconds: float) -> str:
        count = f"{self.count:,} record{'s' if self.count != 1 else ''} ({size_text(self.size)})"
        return f"consumed {count} from {self.topic}, in {time_text(seconds)}"


class StallWatch:
    """Prints why no record arrives, if a leader is missing. A Failure if the reader has an end and waits too long."""

    def __init__(self, connection: ClusterConnection, consumer: "Consumer", reader: TopicReader) -> None:
        self._connection, self._consumer, self._reader = connection, consumer, reader
        self._since = self._checked = time.monotonic()
        self._printed = ""

    def ended(self) -> None:
        self._since = time.monotonic()
        self._printed = ""

    def check(self) -> None:
        """After STALL_S, and again whenever as much time is over; a last time when --timeout is."""
        now, limit_s = time.monotonic(), self._connection.timeout_s
        is_over = now - self._since >= limit_s
        if now - max(self._since, self._checked) < STALL_S and not (is_over and self._checked < self._since + limit_s):
            return
        self._checked = now
        problem = self._problem() if self._consumer.assignment() else NO_ASSIGNMENT
        if is_over and self._is_fatal(problem):
            raise Failure(f"{problem}: the topic cannot be read to its end")
        if problem and problem != self._printed:
            self._printed = problem
            print_error(f"{problem}; waiting")

    def _is_fatal(self, problem: str) -> bool:
        """A member without partitions may wait for ever, unless it reads to the end."""
        if problem == NO_ASSIGNMENT:
            return self._reader.ends is not None
        return self._reader.is_bounded and bool(problem)

    def _problem(self) -> str:
        partitions = [assigned.partition for assigned in self._consumer.assignment()]
        if self._reader.ends is not None:
            partitions = [number for number in partitions if number in self._reader.ends]
        self._connection.restart_timeout(PROBLEM_S)
        try:
            cluster = self._connection.metadata(self._consumer)
        except Failure as error:
            return str(error)
        if self._reader.is_bounded:  # without an end a topic may be idle for hours: brokers are not checked then
            self._connection.refresh(cluster)
        return leader_problem(self._connection, cluster, self._reader.topic, partitions)
