"""The cluster that faults are injected into: three brokers and ZooKeeper, each on a host and a disk of its own.

Each append is on disk before it is acknowledged: else nobody, Apache Kafka included, promises that anything survives a
power failure of the whole cluster. An option leaves that out, and the power failure with it.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.conformance.kafka.broker import _four_letters
from tests.fault.injection import clock_process
from tests.fault.injection.apache_broker import ApacheBroker
from tests.support.broker import RunningBroker
from tests.support.loop_disk import LoopDisk
from tests.support.namespaced_cluster import ZOOKEEPER, BrokerProcess, NamespacedCluster, host_of, hosts_of
from tests.support.namespaces import Namespaces

SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "log.segment.bytes": str(1 << 20),  # so that segments roll
    "transaction.max.timeout.ms": "900000",
    "group.min.session.timeout.ms": "1000",
    # Clients keep the right time while the clock of a broker is an hour behind.
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}
FLUSHED = {"log.flush.interval.messages": "1"}
DISK_MEGABYTES = 384


class FaultCluster(NamespacedCluster):
    def __init__(
        self,
        path: Path,
        net: Namespaces,
        stack: ExitStack,
        *,
        is_apache: bool = False,
        has_disks: bool = True,
        is_flushed: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.is_apache, self.is_flushed, self.disks = is_apache, is_flushed, dict[str, LoopDisk]()
        if has_disks:
            for host in hosts_of(3)[:-1]:
                disk = LoopDisk(path / f"{host}.img", path / host, DISK_MEGABYTES)
                disk.make()
                self.disks[host] = disk
                stack.callback(disk.remove)
        super().__init__(path, net, stack, {**SETTINGS, **(FLUSHED if is_flushed else {}), **(settings or {})})

    def new_broker(self, id: int) -> BrokerProcess:
        directory, settings = self.path / host_of(id), self.settings_of(id)
        with self.net.inside(host_of(id)):
            if self.is_apache:
                return ApacheBroker(directory, settings, lambda: self._is_unknown(id), lambda: self._serves(id))
            self.set_clock(id, 0)
            program = ("-m", "tests.fault.injection.clock_process", str(self._clock(id)))
            return RunningBroker(directory, settings, program=program)

    def _is_unknown(self, id: int) -> bool:
        try:
            return f"/brokers/ids/{id}" not in _four_letters(self.zookeeper_connect, "dump").split()
        except OSError:
            return False

    def _serves(self, id: int) -> bool:
        metadata = self.metadata_of(id, [])
        return metadata is not None and any(broker.node_id == id for broker in metadata.brokers)

    def _clock(self, id: int) -> Path:
        return self.path / f"{host_of(id)}.clock"

    def set_clock(self, id: int, ahead_ms: int) -> None:
        clock_process.set_offset(self._clock(id), ahead_ms)

    def is_running(self, id: int) -> bool:
        return self.brokers[id].process.poll() is None

    def kill(self, id: int) -> None:
        if self.is_running(id):
            self.brokers[id].kill()

    def start_again(self, id: int) -> None:
        """If it does not run."""
        if not self.is_running(id):
            self.start(id)

    def replace_disk_content(self, id: int) -> None:
        """As after a power failure, or once the disk was repaired. The broker does not run."""
        self.disks[host_of(id)].repair()

    def pid(self, id: int) -> int:
        return self.brokers[id].process.pid

    def lose_power(self) -> None:
        """All of them at once. Whatever was not synced is lost."""
        processes = [*(broker.process for broker in self.brokers.values()), self.zookeeper]
        for process in processes:
            process.kill()
        for disk in self.disks.values():
            disk.fail()
        for process in processes:
            process.wait()

    def restore_power(self) -> None:
        for disk in self.disks.values():
            disk.repair()
        self.start_zookeeper()
        for id in self.ids:
            self.start(id)

    @property
    def zookeeper_host(self) -> str:
        return ZOOKEEPER
