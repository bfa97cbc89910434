"""The records that readers saw during faults, compared with those stored in the end.

Pure: no file, no clock.
"""

from collections.abc import Iterator

from leadline.model import Offset, TopicPartition
from leadline.simulation.checkers.writes import Stored
from leadline.simulation.client_history import ClientHistory, Poll


def changed_reads(history: ClientHistory, stored: Stored) -> Iterator[str]:
    """A record that was read stays at its offset."""
    for poll in history.all_polls:
        start = history.deleted_before.get(poll.tp, 0)
        for offset, value in poll.values.items():
            if offset >= start and stored[poll.tp].get(offset) != value:
                now = stored[poll.tp].get(offset)
                yield f"changed read: {poll.reader} read {value!r} at {poll.tp} @ {offset}, where now is {now!r}"


def aborted_reads(history: ClientHistory, stored: Stored, visible: Stored) -> Iterator[str]:
    """Readers of committed records do not see a record of a transaction that was never to be committed, or was not."""
    aborted = {a.value for t in history.transactions if not t.is_commit_requested for a in t.attempts}
    for poll in history.all_polls:
        if poll.is_committed:
            for offset, value in poll.values.items():
                is_hidden = stored[poll.tp].get(offset) == value and offset not in visible[poll.tp]
                if value in aborted or is_hidden:
                    yield f"aborted read: {poll.reader} read {value!r} at {poll.tp} @ {offset}"


def skipped_reads(history: ClientHistory, stored: Stored, visible: Stored) -> Iterator[str]:
    """A poll returns all that is between its start and its end; and the next one begins where it ended."""
    positions: dict[tuple[str, TopicPartition], Offset] = {}
    for poll in history.polls:
        start = positions.get((poll.reader, poll.tp), 0)
        yield from _skipped(poll, max(start, history.deleted_before.get(poll.tp, 0)), stored, visible)
        positions[poll.reader, poll.tp] = poll.end
    for poll in (*history.group_polls, *history.transaction_polls):
        yield from _skipped(poll, max(poll.start, history.deleted_before.get(poll.tp, 0)), stored, visible)
    for (reader, tp), position in positions.items():
        is_committed = next(p.is_committed for p in history.polls if p.reader == reader)
        unread = [offset for offset in (visible if is_committed else stored)[tp] if offset >= position]
        if unread:
            yield f"unseen write: {reader} ended at {tp} @ {position}, before {len(unread)} records"


def _skipped(poll: Poll, start: Offset, stored: Stored, visible: Stored) -> Iterator[str]:
    expected = (visible if poll.is_committed else stored)[poll.tp]
    for offset in range(start, poll.end):
        if offset not in poll.values and (value := expected.get(offset)) is not None:
            yield f"skipped read: {poll.reader} read {poll.tp} up to {poll.end}, without {value!r} @ {offset}"


def repeated_reads(history: ClientHistory) -> Iterator[str]:
    """The offsets of one reader only grow: within a poll, and from poll to poll."""
    positions: dict[tuple[str, TopicPartition], Offset] = {}
    for poll in history.polls:
        last = positions.get((poll.reader, poll.tp), -1)
        for offset in poll.values:
            if offset <= last:
                yield f"repeated read: {poll.reader} read {poll.tp} @ {offset} after {last}"
            last = offset
        positions[poll.reader, poll.tp] = max(last, poll.end - 1)
