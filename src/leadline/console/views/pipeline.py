"""Pipeline jobs: the tables that follow topics, how far each one is, and whether its writer runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.leaders import partitions_with_leader
from leadline.admin.offsets import list_offsets
from leadline.console.page import Console, TableLocation
from leadline.model import Offset, TopicPartition

LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class TableView:
    location: TableLocation
    problem: str = ""  # why it could not be read
    topic: str = ""
    format: str = ""
    mode: str = ""
    batch: int = 0
    epoch: int = 0
    positions: tuple[tuple[int, Offset, Offset | None], ...] = ()  # partition, next offset, log end
    writer: str = ""  # the process that writes; empty: none on this machine

    @property
    def lag(self) -> int:
        return sum(max(end - position, 0) for _, position, end in self.positions if end is not None)


def pipeline(console: Console, request: Request) -> Response:
    tables = [_table(console, location) for location in console.tables]
    return console.page(request, "pipeline.html", "Pipeline", tables=tables)


def _table(console: Console, location: TableLocation) -> TableView:
    if find_spec("pyarrow") is None:
        return TableView(location, "pyarrow is not installed: pip install 'leadline[spark]'")
    from leadline.spark.errors import JobFailed
    from leadline.spark.table.table_format import open_table

    try:
        state = open_table(location.kind, location.uri).state()
    except (JobFailed, ModuleNotFoundError, OSError) as error:
        return TableView(location, str(error))
    if state is None:
        return TableView(location, "there is no table yet: its job has not committed a batch")
    ends = _ends(console, state.origin.topic, state.progress.offsets)
    return TableView(
        location,
        "",
        state.origin.topic,
        state.origin.format,
        state.origin.mode,
        state.progress.batch,
        state.progress.epoch,
        tuple((n, offset, ends.get(n)) for n, offset in sorted(state.progress.offsets.items())),
        writer_of(location.uri),
    )


def _ends(console: Console, topic: str, offsets: Mapping[int, Offset]) -> dict[int, Offset]:
    with console.pool.session() as session:
        partitions = [TopicPartition(topic, n) for n in offsets]
        led = partitions_with_leader(session.connection, session.admin, partitions)
        ends = list_offsets(session.connection, session.admin, led, "latest") if led else {}
    return {tp.partition: end for tp, end in ends.items()}


def writer_of(uri: str) -> str:
    """The process that holds the lock of a table in a local directory; empty: none.

    The kernel's list of locks is read. An attempt to lock would keep out a writer that starts at that moment.
    """
    from leadline.spark.table.writer_lock import NAME

    path = Path(uri) / NAME
    try:
        inode, locks = path.stat().st_ino, LOCKS.read_text()
        if not any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines()):
            return ""
        return path.read_text(errors="replace").strip() or "another process"
    except OSError:
        return ""
