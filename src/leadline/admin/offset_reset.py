"""A reset of a group's offsets: the new offsets, their effect, and the change itself."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from leadline.admin.connection import ClusterConnection
from leadline.admin.formatting import moment_text
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.groups import delete_offsets
from leadline.admin.offsets import commit, list_offsets, record_times
from leadline.admin.partitions import OffsetRange, PartitionOffset
from leadline.admin.reset_plan import OffsetChange, ResetUndo, shifted_offset
from leadline.model import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class ResetPosition(NamedTuple):
    """The offset at which a group will continue in each partition."""

    kind: Literal["earliest", "latest", "offset", "shift", "time"]
    value: int = 0  # an offset, a number of records, or ms since 1970


def new_offsets(
    connection: ClusterConnection,
    admin: "AdminClient",
    position: ResetPosition,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, PartitionOffset],
    ranges: Mapping[TopicPartition, OffsetRange],
) -> dict[TopicPartition, Offset]:
    match position.kind:
        case "earliest":
            return {tp: ranges[tp].start for tp in partitions}
        case "latest":
            return {tp: ranges[tp].end for tp in partitions}
        case "offset":
            return dict.fromkeys(partitions, position.value)
        case "shift":
            return {tp: shifted_offset(tp, committed.get(tp), position.value) for tp in partitions}
    offsets = list_offsets(connection, admin, partitions, position.value)
    return {tp: offset if offset >= 0 else ranges[tp].end for tp, offset in offsets.items()}


def carry_out(
    connection: ClusterConnection, admin: "AdminClient", group: str, planned: Sequence[OffsetChange]
) -> list[str]:
    """Commit the new offsets, and delete those that did not exist. Returns the errors, one line per partition."""
    failed = commit(connection, admin, group, planned)
    deleted = [change.tp for change in planned if change.after is None]
    if deleted:
        with kafka_python_admin(connection) as client:
            failed += delete_offsets(client, group, deleted)
    return failed


Times = dict[tuple[TopicPartition, Offset], int]


def _record_positions(change: OffsetChange) -> list[tuple[TopicPartition, Offset]]:
    """The positions, before and after, at which the partition has a record."""
    held = change.held
    offsets = [committed.offset for committed in (change.before, change.after) if committed is not None]
    return [(change.tp, offset) for offset in offsets if held is not None and held.start <= offset < held.end]


def change_times(connection: ClusterConnection, planned: Sequence[OffsetChange]) -> Times:
    """The times of the records at the old and the new offsets."""
    return record_times(connection, {position for change in planned for position in _record_positions(change)})


def change_row(change: OffsetChange, times: Times) -> list[str]:
    cells = [str(change.tp)]
    for committed in (change.before, change.after):
        cells += [str(committed.offset) if committed is not None else "-", _time_text(change, committed, times)]
    return [*cells, change.meaning]


def _time_text(change: OffsetChange, committed: PartitionOffset | None, times: Times) -> str:
    if committed is None:
        return "-"
    if (at_ms := times.get((change.tp, committed.offset))) is not None:
        return moment_text(at_ms)
    if change.held is None:
        return "deleted"
    if committed.offset >= change.held.end:
        return "the end"
    return "deleted" if committed.offset < change.held.start else "unknown"


def too_late_lines(reset: ResetUndo) -> list[str]:
    return [
        f"too late for {tp}: "
        + (f"the group has committed {since.offset} there since" if since is not None else "nothing is committed there")
        for tp, since in reset.too_late.items()
    ]
