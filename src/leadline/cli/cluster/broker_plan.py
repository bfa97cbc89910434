"""The brokers of a cluster on this machine, each in a folder of its own.

The folder holds the broker's settings (server.properties, written at each start), its data and its output (broker.log).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from leadline.cli.metrics_address import MetricsAddress
from leadline.cli.supervisor.broker_output import OutputFile
from leadline.cli.supervisor.broker_process import BrokerProcess

HOST = "localhost"
SETTINGS_FILE, LOG_FILE, DATA_FOLDER = "server.properties", "broker.log", "data"
HEAD = "# Written by `leadline cluster up` at each start. Use its option --set for other settings.\n"


class BrokerPlan(NamedTuple):
    """A broker to start."""

    id: int
    port: int
    folder: Path
    settings: Mapping[str, str]
    metrics: MetricsAddress | None = None

    @property
    def settings_file(self) -> Path:
        return self.folder / SETTINGS_FILE

    @property
    def log(self) -> Path:
        return self.folder / LOG_FILE

    @property
    def process(self) -> BrokerProcess:
        """A process for it, which is not started."""
        return BrokerProcess(self.id, self.arguments, self.folder / DATA_FOLDER, OutputFile(self.log))

    @property
    def arguments(self) -> list[str]:
        """The arguments of `leadline start`."""
        metrics = [] if self.metrics is None else ["--metrics", str(self.metrics)]
        return [str(self.settings_file), *metrics]

    def write_settings(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings_file.write_text(HEAD + "".join(f"{name}={value}\n" for name, value in self.settings.items()))


def plans(
    folder: Path,
    count: int,
    first_port: int,
    connect: str,
    overrides: Mapping[str, str],
    metrics: MetricsAddress | None = None,
) -> list[BrokerPlan]:
    """As many replicas as brokers, at most three. With three, writes continue while one broker is away."""
    replication_factor = str(min(3, count))
    min_isr = "2" if count >= 3 else "1"
    common = {
        "zookeeper.connect": connect,
        "default.replication.factor": replication_factor,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replication_factor,
        "transaction.state.log.replication.factor": replication_factor,
        "transaction.state.log.min.isr": min_isr,
        **overrides,
    }
    broker_plans = []
    for id in range(1, count + 1):
        broker_folder, port = folder / f"broker-{id}", first_port + id - 1
        identity = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(broker_folder / DATA_FOLDER),
        }
        address = None if metrics is None else metrics.shifted(id - 1)
        broker_plans.append(BrokerPlan(id, port, broker_folder, identity | common, address))
    return broker_plans


def brokers_in(folder: Path) -> int:
    """The number of brokers that an earlier run left in the folder."""
    ids = [int(file.parent.name.rpartition("-")[2]) for file in folder.glob(f"broker-[0-9]*/{SETTINGS_FILE}")]
    return max(ids, default=0)
