"""What must hold after every step, seen from outside of all brokers.

an acknowledged record is in the logs of min.insync.replicas brokers at least
each broker that can be elected, which are those of the ISR in the tree, has every acknowledged record
a decision about a partition is written by the controller of the moment
after a power cut, a producer snapshot below the recovery point is whole: a flush has synced it
after each crash, recovering a log twice gives what recovering it once gave
once a broker has its logs open, and at rest, no index points past its log
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from leadline.coordination import znodes
from leadline.coordination.tree import Create, Operation, SetData
from leadline.coordination.znodes import PartitionStateNode
from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.checkpoints import read_offsets
from leadline.log.producer_snapshots import decode_snapshot
from leadline.model import BrokerId, Offset, TopicPartition
from leadline.simulation.checkers.indexes import indexes_past_their_log
from leadline.simulation.checkers.recoveries import unrepeatable_recoveries
from leadline.simulation.disk_contents import files_in, partitions_on
from leadline.simulation.moments import ELECTION, TREE_WRITE, TRUNCATION
from leadline.simulation.virtual_cluster import Host, VirtualCluster
from leadline.simulation.virtual_disk import Directory, MountedDisk, VirtualFile

MIN_ISR = 2
_TOPICS, _PARTITIONS, _STATE = f"{znodes.TOPICS}/", "/partitions/", "/state"


class Invariants:
    """`tell` gets each violation when it happens."""

    def __init__(self, cluster: VirtualCluster, tell: Callable[[str], None]) -> None:
        self._cluster, self._tell = cluster, tell
        self._acknowledged: dict[TopicPartition, Offset] = {}  # the last one
        self._leaders: dict[TopicPartition, int] = {}
        self._excused: set[tuple[TopicPartition, BrokerId]] = set()  # in the ISR with an empty disk
        self._ended: dict[BrokerId, int] = {}  # the sessions of processes that ended when their disks were lost
        self.violations: list[str] = []
        self.on_violation: Callable[[str], None] = lambda text: None
        cluster.ensemble.on_operations = self._written
        for host in cluster.hosts.values():
            host.moments.noticed = partial(self._noticed, host)

    def violated(self, text: str) -> None:
        self._tell(f"VIOLATION  {text}")
        self.violations.append(text)
        self.on_violation(text)

    def acknowledged(self, tp: TopicPartition, offset: Offset) -> None:
        """A client got the answer that a record is stored."""
        self._acknowledged[tp] = max(offset, self._acknowledged.get(tp, -1))
        holders = [
            host.name
            for host in self._cluster.hosts.values()
            if host.log_end(tp) > offset or (tp, host.id) in self._excused
        ]
        if len(holders) < MIN_ISR:
            where = " and ".join(holders) or "nobody"
            self.violated(f"too few replicas: {tp} @ {offset} was acknowledged, and {where} has it")
        self._check_in_sync(tp, self._isr(tp))

    def _noticed(self, host: Host, moment: str) -> None:
        if moment == TRUNCATION:
            self._cluster.loop.call_soon(self._truncated, host)  # when the log knows its end

    def _truncated(self, host: Host) -> None:
        for tp in self._acknowledged:
            if host.id in (isr := self._isr(tp)):
                self._check_in_sync(tp, [broker for broker in isr if broker == host.id])

    def _isr(self, tp: TopicPartition) -> Sequence[int]:
        """As the controller decided it."""
        node = self._cluster.ensemble.nodes.get(znodes.state_path(tp))
        return () if node is None else znodes.decode_state(tp, node.data).isr

    def _check_in_sync(self, tp: TopicPartition, isr: Sequence[int]) -> None:
        last = self._acknowledged.get(tp, -1)
        for broker in isr:
            host = self._cluster.hosts[broker]
            if (end := host.log_end(tp)) > last:
                self._excused.discard((tp, broker))
            elif (tp, broker) not in self._excused:
                self.violated(f"in sync without acknowledged records: {tp} @ {last}; {host.name} ends at {end}")

    def _written(self, operations: Sequence[Operation], host: str) -> None:
        """A host has written to the tree."""
        writer = next((h for h in self._cluster.hosts.values() if h.name == host), None)
        if writer is not None:
            writer.moments.came(TREE_WRITE)
        for operation in operations:
            if isinstance(operation, Create | SetData) and (tp := partition_of_state(operation.path)) is not None:
                self._decided(tp, operation.data, host)

    def _decided(self, tp: TopicPartition, data: bytes, by: str) -> None:
        state = znodes.decode_state(tp, data)
        epoch = self._cluster.ensemble.nodes.get(znodes.CONTROLLER_EPOCH)
        current = 0 if epoch is None else znodes.decode_controller_epoch(epoch.data)
        if state.controller_epoch != current:
            self.violated(
                f"deposed controller: {by} decided about {tp} with controller epoch {state.controller_epoch}, "
                f"which is {current}"
            )
        self._excused -= {(tp, broker) for broker in self._cluster.hosts if broker not in state.isr}
        if len(state.isr) > 1:
            self._excused |= {(tp, broker) for broker in state.isr if self._seems_alive(broker)}
        self._check_in_sync(tp, state.isr)
        if state.leader >= 0 and self._leaders.get(tp) != state.leader:
            self._cluster.hosts[state.leader].moments.came(ELECTION)
        self._leaders[tp] = state.leader

    def opened(self, host: Host) -> None:
        """Its broker has all logs open."""
        for tp, directory in partitions_on(host.disk).items():
            for text in indexes_past_their_log(files_in(directory)):
                self.violated(f"{text}, of {tp} on {host.name}")

    def states(self) -> Iterator[tuple[TopicPartition, PartitionStateNode]]:
        """The states of all partitions, as the controller decided them."""
        for path, node in self._cluster.ensemble.nodes.items():
            if (tp := partition_of_state(path)) is not None:
                yield tp, znodes.decode_state(tp, node.data)

    def disk_lost(self, host: Host) -> None:
        """It lacks records, until the controller has removed it from the ISR.

        A leader may have proposed it just before: as long as its session lasts, the controller takes it into the ISR.
        """
        if (session := self._session_of(host.id)) is not None:
            self._ended[host.id] = session
        self._excused |= {(tp, host.id) for tp, state in self.states() if host.id in state.isr and len(state.isr) > 1}

    def _session_of(self, broker: BrokerId) -> int | None:
        node = self._cluster.ensemble.nodes.get(znodes.broker_path(broker))
        return None if node is None else node.owner

    def _seems_alive(self, broker: BrokerId) -> bool:
        """Its process has ended with its disk, and its session has not."""
        return broker in self._ended and self._session_of(broker) == self._ended[broker]

    def is_excused(self, host: Host) -> bool:
        return any(broker == host.id for _, broker in self._excused)

    def crashed(self, host: Host) -> None:
        """Its process has ended; the records on its disk count."""
        for text in unrepeatable_recoveries(host.disk):
            self.violated(f"{text} on {host.name}")
        for path, why in _damaged_snapshots(host):
            self.violated(f"damaged snapshot: {host.name} has {path}, which a flush has covered: {why}")


def partition_of_state(path: str) -> TopicPartition | None:
    """The partition whose state a node holds; None for other nodes."""
    if not path.endswith(_STATE):
        return None
    topic, _, partition = path.removeprefix(_TOPICS).removesuffix(_STATE).partition(_PARTITIONS)
    return TopicPartition(topic, int(partition))


def _damaged_snapshots(host: Host) -> Iterator[tuple[str, str]]:
    data = host.disk.root.entries.get("data")
    if not isinstance(data, Directory):
        return
    files = MountedDisk(host.disk, "checker")
    try:
        flushed = read_offsets(files, f"/data/{names.RECOVERY_POINTS_FILE}")
    except CorruptFile as error:
        yield names.RECOVERY_POINTS_FILE, str(error)
        return
    for tp, recovery_point in flushed.items():
        directory = data.entries.get(f"{tp.topic}-{tp.partition}")
        for name, file in directory.entries.items() if isinstance(directory, Directory) else ():
            parsed = names.parse_file_name(name)
            if parsed is None or parsed[1:] != (names.SNAPSHOT, "") or parsed[0] >= recovery_point:
                continue
            assert isinstance(file, VirtualFile)
            try:
                decode_snapshot(name, bytes(file.data))
            except CorruptFile as error:
                yield f"{tp}/{name}", str(error)
