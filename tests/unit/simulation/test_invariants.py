"""Each law that holds after every step is broken by a step that was made for it, and told when it happens."""

from collections.abc import Sequence

import pytest

from leadline.coordination import znodes
from leadline.coordination.tree import SetData
from leadline.coordination.znodes import PartitionStateNode
from leadline.log import names
from leadline.log.checkpoints import encode_lines
from leadline.model import TopicPartition
from leadline.simulation.invariants import Invariants
from leadline.simulation.moments import TRUNCATION
from leadline.simulation.virtual_cluster import VirtualCluster
from leadline.simulation.virtual_disk import Directory, VirtualFile
from leadline.simulation.virtual_tree import _ServerNode
from tests.support.logs import at_offset, batch

TP = TopicPartition("records", 0)
CONTROLLER_EPOCH = 4


class Laws:
    """Three hosts on which no broker runs: their disks count."""

    def __init__(self) -> None:
        self.cluster, self.story = VirtualCluster(1), list[str]()
        self.invariants = Invariants(self.cluster, self.story.append)
        self._write(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(CONTROLLER_EPOCH))

    def _write(self, path: str, data: bytes) -> None:
        self.cluster.ensemble.nodes[path] = _ServerNode(data, 0, 0, 0, 0)

    def register(self, broker: int, session: int) -> None:
        self.cluster.ensemble.nodes[znodes.broker_path(broker)] = _ServerNode(b"", 0, 0, session, 0)

    def store(self, broker: int, records: int, **files: bytes) -> None:
        """So many records, and other files of the partition by their kind."""
        host = self.cluster.hosts[broker]
        host.replace_disk()
        files["log"] = b"".join(bytes(at_offset(batch(), offset)) for offset in range(records))
        entries: dict[str, VirtualFile | Directory] = {
            names.file_name(0, f".{kind}"): VirtualFile(data=bytearray(data)) for kind, data in files.items()
        }
        host.disk.root.entries["data"] = Directory({str(TP): Directory(entries)})

    def decide(self, isr: Sequence[int], controller_epoch: int = CONTROLLER_EPOCH) -> None:
        data = znodes.encode_state(PartitionStateNode(isr[0], 1, tuple(isr), controller_epoch))
        self._write(znodes.state_path(TP), data)
        self.cluster.ensemble.on_operations([SetData(znodes.state_path(TP), data)], "broker-1")

    @property
    def broken(self) -> list[str]:
        assert self.story == [f"VIOLATION  {text}" for text in self.invariants.violations]
        return [text.split(":")[0] for text in self.invariants.violations]


@pytest.fixture
def laws() -> Laws:
    laws = Laws()
    for broker in laws.cluster.hosts:
        laws.store(broker, records=3)
    laws.decide([1, 2, 3])
    laws.invariants.acknowledged(TP, 2)
    assert laws.broken == []
    return laws


def test_an_acknowledged_record_is_in_enough_logs(laws: Laws) -> None:
    laws.store(1, records=4)
    laws.decide([1])
    laws.invariants.acknowledged(TP, 3)
    assert laws.broken == ["too few replicas"]


def test_each_broker_in_sync_has_what_is_acknowledged(laws: Laws) -> None:
    for broker in (1, 2):
        laws.store(broker, records=4)
    laws.invariants.acknowledged(TP, 3)
    assert laws.broken == ["in sync without acknowledged records"]


def test_a_broker_that_lacks_acknowledged_records_does_not_come_into_sync(laws: Laws) -> None:
    laws.decide([1, 2])
    laws.store(3, records=2)
    assert laws.broken == []
    laws.decide([1, 2, 3])
    assert laws.broken == ["in sync without acknowledged records"]


def test_a_broker_in_sync_does_not_truncate_what_is_acknowledged(laws: Laws) -> None:
    host = laws.cluster.hosts[2]
    laws.store(2, records=2)
    host.moments.came(TRUNCATION)
    laws.cluster.loop.run_until_complete(_nothing())
    assert laws.broken == ["in sync without acknowledged records"]


async def _nothing() -> None:
    """One turn of the loop."""


def test_a_lost_disk_is_excused_until_its_broker_has_left(laws: Laws) -> None:
    laws.invariants.disk_lost(laws.cluster.hosts[3])
    laws.store(3, records=0)
    laws.decide([1, 2, 3])
    assert laws.broken == []
    laws.decide([1, 2])
    laws.decide([1, 2, 3])
    assert laws.broken == ["in sync without acknowledged records"]


def test_a_proposal_under_way_may_add_a_broker_whose_disk_is_lost_while_it_seems_alive(laws: Laws) -> None:
    laws.decide([1, 2])
    laws.register(3, session=7)
    laws.invariants.disk_lost(laws.cluster.hosts[3])
    laws.store(3, records=0)
    laws.decide([1, 2, 3])
    assert laws.broken == []
    assert laws.invariants.is_excused(laws.cluster.hosts[3])
    laws.decide([1, 2])
    laws.register(3, session=8)
    laws.decide([1, 2, 3])
    assert laws.broken == ["in sync without acknowledged records"]


def test_the_controller_of_the_moment_decides(laws: Laws) -> None:
    laws.decide([1, 2, 3], CONTROLLER_EPOCH - 1)
    assert laws.broken == ["deposed controller"]


@pytest.mark.parametrize(("recovery_point", "expected"), [(1, ["damaged snapshot"]), (0, [])])
def test_a_snapshot_below_the_recovery_point_is_whole(laws: Laws, recovery_point: int, expected: list[str]) -> None:
    laws.store(1, records=3, snapshot=b"torn")
    data = laws.cluster.hosts[1].disk.root.entries["data"]
    assert isinstance(data, Directory)
    lines = encode_lines([f"{TP.topic} {TP.partition} {recovery_point}"])
    data.entries[names.RECOVERY_POINTS_FILE] = VirtualFile(data=bytearray(lines))
    laws.invariants.crashed(laws.cluster.hosts[1])
    assert laws.broken == expected


def test_no_index_of_an_open_log_points_past_it(laws: Laws) -> None:
    laws.store(1, records=3, index=b"\0\0\0\5\0\0\1\0")
    laws.invariants.opened(laws.cluster.hosts[1])
    assert laws.broken == ["index past its log"]
