"""Groups: generations, owners, committed offsets, and the records read below them.

Pure: no file, no clock.
"""

from collections.abc import Iterator, Mapping, Sequence

from leadline.model import Offset, TopicPartition
from leadline.simulation.client_history import ClientHistory, OffsetCommitAttempt, Poll

CommittedOffsets = Mapping[str, Mapping[TopicPartition, Offset]]  # by group; -1: none


def doubled_owners(history: ClientHistory) -> Iterator[str]:
    """A partition has one owner in each generation."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    for assignment in history.assignments:
        for tp in assignment.partitions:
            owner = owners.setdefault((assignment.group, assignment.generation, tp), assignment.member)
            if owner != assignment.member:
                yield (
                    f"two owners: {tp} belongs to {owner} and to {assignment.member} "
                    f"in generation {assignment.generation} of {assignment.group}"
                )


def shrunken_generations(history: ClientHistory) -> Iterator[str]:
    """A member that joins after another got its assignment gets no earlier generation."""
    by_group: dict[str, list[tuple[float, int]]] = {}
    for assignment in sorted(history.assignments, key=lambda a: a.synced_s):
        earlier = by_group.setdefault(assignment.group, [])
        latest = max((generation for synced_s, generation in earlier if synced_s < assignment.joined_s), default=-1)
        if assignment.generation < latest:
            yield (
                f"generation went back: {assignment.member} got {assignment.generation} of {assignment.group} "
                f"after {latest} was there"
            )
        earlier.append((assignment.synced_s, assignment.generation))


def lost_commits(history: ClientHistory, offsets: CommittedOffsets) -> Iterator[str]:
    """At rest, the committed offset is that of the last acknowledged commit, or of one that may have come later."""
    for group, committed in offsets.items():
        for tp, offset in committed.items():
            commits = [c for c in history.commits if c.group == group and c.tp == tp]
            allowed = _allowed_offsets(commits)
            if offset not in allowed:
                yield f"lost commit: {group} is at {offset} in {tp}; it can only be at {sorted(allowed)}"


def _allowed_offsets(commits: Sequence[OffsetCommitAttempt]) -> set[Offset]:
    acknowledged = [c for c in commits if c.is_committed]
    last = max(acknowledged, key=lambda c: c.requested_s, default=None)
    if last is None:
        return {-1} | {c.offset for c in commits}
    return {
        c.offset
        for c in commits
        if c is last or c.answered_s is None or (c.is_committed and c.answered_s >= last.requested_s)
    }


def unread_commits(history: ClientHistory, offsets: CommittedOffsets) -> Iterator[str]:
    """Records below a committed offset were read by a member of the group."""
    for group, committed in offsets.items():
        for tp, end in committed.items():
            position = _read_up_to(
                [p for p in history.group_polls if p.reader == group and p.tp == tp],
                history.deleted_before.get(tp, 0),
            )
            if end > position:
                yield f"unread commit: {group} has committed {end} in {tp}, and has read up to {position} only"


def _read_up_to(polls: Sequence[Poll], start: Offset) -> Offset:
    """How far polls have read without a gap."""
    position = start
    for poll in sorted(polls, key=lambda p: p.start):
        if poll.start > position:
            break
        position = max(position, poll.end)
    return position


def unsettled(
    group: str,
    members: Mapping[str, tuple[int, Sequence[TopicPartition] | None]],
    partitions: Sequence[TopicPartition],
) -> Iterator[str]:
    """`members`: generation and assignment of each. Once settled, they share all partitions in one generation."""
    generations = {generation for generation, assigned in members.values() if assigned is not None}
    owned = [tp for _, assigned in members.values() for tp in assigned or ()]
    outside = [name for name, (_, assigned) in members.items() if assigned is None]
    if outside or len(generations) > 1 or sorted(owned) != sorted(partitions):
        yield f"unsettled: {group} has generations {sorted(generations)}, {len(owned)} partitions; without: {outside}"
