"""A log that a crash has torn is recovered twice, on a copy; a recovery that comes to something else is seen."""

import os
from itertools import count
from unittest import mock

import pytest

from leadline.log import names
from leadline.log.log import Log
from leadline.log.recovery import open_log
from leadline.simulation.checkers import recoveries
from leadline.simulation.checkers.recoveries import unrepeatable_recoveries
from leadline.simulation.disk_contents import files_in, partitions_on, stored_end
from leadline.simulation.ports import VirtualTime
from leadline.simulation.virtual_disk import MountedDisk, VirtualDisk
from leadline.simulation.virtual_loop import VirtualLoop
from tests.support.hosted import TP
from tests.support.logs import at_offset, batch

DIRECTORY = f"/data/{TP.topic}-{TP.partition}"


@pytest.fixture
def torn() -> VirtualDisk:
    """Two batches, half of a third, and an index that points behind them."""
    disk = VirtualDisk(VirtualTime(VirtualLoop()))
    files = MountedDisk(disk, "test")
    files.mkdir(DIRECTORY)
    records = b"".join(bytes(at_offset(batch(2), offset)) for offset in (0, 2, 4))
    contents = {names.LOG: records[:-10], names.INDEX: b"\0\0\0\5\0\0\1\0"}
    for kind, data in contents.items():
        fd = files.open(f"{DIRECTORY}/{names.file_name(0, kind)}", os.O_RDWR | os.O_CREAT)
        files.pwrite(fd, data, 0)
    return disk


def test_recovering_twice_gives_the_same_and_leaves_the_disk_alone(torn: VirtualDisk) -> None:
    before = files_in(partitions_on(torn)[TP])
    assert [*unrepeatable_recoveries(torn)] == []
    assert files_in(partitions_on(torn)[TP]) == before
    assert stored_end(torn, TP) == 4


def test_a_recovery_that_comes_to_something_else_is_seen(torn: VirtualDisk) -> None:
    starts = count()

    def start_elsewhere(*args: object) -> Log:
        log = open_log(*args)  # type: ignore[arg-type]
        log.log_start = next(starts)
        return log

    with mock.patch.object(recoveries, "open_log", start_elsewhere):
        (violation,) = unrepeatable_recoveries(torn)
    assert violation.startswith("unrepeatable recovery: log_start of orders-0 is 0, and then 1")
