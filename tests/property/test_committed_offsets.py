"""The offsets of groups against a plain model, and against what a replay of the journal gives."""

import asyncio
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_effects import Effect
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_records import offset_key, offset_value
from leadline.coordinator.group_shard import GroupShard
from leadline.model import TopicPartition
from leadline.records.batch import header_at
from leadline.records.build import BatchFields, build_at
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.records.record import records_of
from leadline.runtime.ports import SystemTime, Time

GROUPS, PRODUCERS = ("g", "h"), (1, 2)
PARTITIONS = [TopicPartition("t", n) for n in range(3)]
SOME = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True)
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from(GROUPS), SOME),
    st.tuples(st.just("txn"), st.sampled_from(GROUPS), SOME, st.sampled_from(PRODUCERS)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("forget"), st.sampled_from(GROUPS), SOME),
)


class Nobody:
    """Who looks after a shard that is only read."""

    clock: Time = SystemTime()

    def new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, GroupLimits(10, 0), 0)

    def carry_out(self, shard: GroupShard, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        assert list(effects) == []

    def loaded(self, shard: GroupShard) -> None:
        pass


class Journal:
    """As a coordinator writes it: what it knows is applied to one shard, and read by another in the end."""

    def __init__(self) -> None:
        self.live = GroupShard(0, Nobody())
        self.batches: list[bytearray] = []
        self.end = 0

    def write(self, batch: bytearray, count: int) -> int:
        batch[:8] = self.end.to_bytes(8, "big")
        self.batches.append(batch)
        self.end += count
        return self.end - count

    def commit(self, group_id: str, partitions: list[TopicPartition], producer: int | None = None) -> None:
        commits = {tp: OffsetAndMetadata(self.end, f"note {self.end}", 5) for tp in partitions}
        entries = [(offset_key(group_id, tp), offset_value(commit)) for tp, commit in commits.items()]
        plain = BatchFields(base_sequence=0)
        within = BatchFields(base_sequence=0, producer_id=producer or 0, producer_epoch=0, transactional=True)
        at = self.write(build_at(5, entries, plain if producer is None else within), len(entries))
        written = {tp: commit._replace(record_offset=at) for tp, commit in commits.items()}
        group = self.live.get_or_create(group_id)
        if producer is None:
            group.offsets.stage(written)
            group.offsets.commit(written)
        else:
            self.live.add_pending_offsets(group, producer, written)

    def finish(self, producer: int, committed: bool) -> None:
        marker = EndMarker(ControlType.COMMIT if committed else ControlType.ABORT, 0, 5)
        self.write(end_marker(marker, producer, 0), 1)
        self.live.end_transaction(producer, committed=committed)

    def forget(self, group_id: str, partitions: list[TopicPartition]) -> None:
        committed = self.live.get_or_create(group_id).offsets.partitions()
        gone = [tp for tp in partitions if tp in committed]
        if gone:
            self.write(build_at(5, [(offset_key(group_id, tp), None) for tp in gone], BatchFields()), len(gone))
            self.live.get_or_create(group_id).offsets.delete(gone)

    def replayed(self) -> GroupShard:
        shard = GroupShard(0, Nobody())
        for batch in self.batches:
            header = header_at(batch)
            shard.replay(header, records_of(batch, 0, header))
        shard.loaded()
        return shard


def run(steps: list[tuple[object, ...]]) -> None:
    journal = Journal()
    actions = {"commit": journal.commit, "txn": journal.commit, "end": journal.finish, "forget": journal.forget}
    model: dict[tuple[str, TopicPartition], int] = {}
    pending: dict[int, dict[tuple[str, TopicPartition], int]] = {producer: {} for producer in PRODUCERS}
    for kind, *arguments in steps:
        apply(str(kind), arguments, model, pending, journal.end)
        actions[str(kind)](*arguments)  # type: ignore[operator]
        committed = {
            (group.id, tp): commit.offset
            for group in journal.live.groups.values()
            for tp, commit in group.offsets.committed.items()
        }
        assert committed == model
    replayed = journal.replayed()
    for group in journal.live.groups.values():
        again = replayed.groups.get(group.id)
        assert (again.offsets.committed if again is not None else {}) == group.offsets.committed
        for tp in PARTITIONS:
            assert group.offsets.is_unstable(tp) == (again is not None and again.offsets.is_unstable(tp))


def apply(
    kind: str,
    arguments: list[object],
    model: dict[tuple[str, TopicPartition], int],
    pending: dict[int, dict[tuple[str, TopicPartition], int]],
    now: int,
) -> None:
    """What must be true. An offset is the place of its commit in the journal: the later one counts."""
    match kind, arguments:
        case "commit", [group, partitions]:
            model.update({(group, tp): now for tp in partitions})  # type: ignore[misc, attr-defined]
        case "txn", [group, partitions, producer]:
            pending[producer].update({(group, tp): now for tp in partitions})  # type: ignore[index, misc, attr-defined]
        case "end", [producer, committed]:
            for key, offset in pending[producer].items() if committed else ():  # type: ignore[index]
                model[key] = max(model.get(key, -1), offset)
            pending[producer].clear()  # type: ignore[index]
        case "forget", [group, partitions]:
            for tp in partitions:  # type: ignore[attr-defined]
                for place in (model, *pending.values()):
                    place.pop((group, tp), None)  # type: ignore[arg-type]


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=150, deadline=None)
def test_what_counts_is_what_a_replay_gives(steps: list[tuple[object, ...]]) -> None:
    async def in_loop() -> None:
        run(steps)

    asyncio.run(in_loop())
