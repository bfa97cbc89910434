"""Bugs that a test plants into the product, to see that a simulation finds them. Each breaks one law on purpose."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from leadline.log.producer_state import ProducerAppend, ProducerState
from leadline.model import Offset
from leadline.records.batch import Header
from leadline.replication.partition import LeaderState


@contextmanager
def acknowledged_by_the_leader_alone() -> Iterator[None]:
    """The high watermark is the end of the leader's log, whatever the followers have."""

    def advance(self: LeaderState, now_ms: int) -> Offset | None:
        if self.log_end <= self.high_watermark:
            return None
        self.high_watermark = self.log_end
        return self.log_end

    with mock.patch.object(LeaderState, "_advance", advance):
        yield


@contextmanager
def repeated_batches_are_appended() -> Iterator[None]:
    """No leader looks for the sequence numbers of a batch."""

    def no_duplicate(self: ProducerState, header: Header) -> None:
        """It is taken for new."""

    def check(self: ProducerAppend, epoch: int, first: int, offset: Offset) -> None:
        """Any sequence number will do."""

    with (
        mock.patch.object(ProducerState, "duplicate_of", no_duplicate),
        mock.patch.object(ProducerAppend, "_check_sequence", check),
    ):
        yield
