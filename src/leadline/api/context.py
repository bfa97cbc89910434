"""What a handler is given: the broker's parts, and who asks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from leadline.api.lanes import Lanes
from leadline.api.sessions import Sessions
from leadline.config import BrokerConfig, BrokerSettings, Layers
from leadline.controller.cluster import Cluster
from leadline.coordinator.commits import Commits
from leadline.coordinator.groups import Groups
from leadline.coordinator.transactions import Transactions
from leadline.log.log_dirs import LogDirs
from leadline.ports import Clock
from leadline.replication.replicas import Replicas

NONE = 0


@dataclass(slots=True)
class Services:
    """The parts of a broker that requests speak to."""

    settings: BrokerSettings  # as they hold now: what was changed while it runs is in them
    static: dict[str, str]  # the properties that it was started with
    cluster: Cluster
    replicas: Replicas
    dirs: LogDirs
    sessions: Sessions
    groups: Groups
    commits: Commits
    transactions: Transactions
    clock: Clock
    lanes: Lanes
    reconfigure: Callable[[], None]  # settings of this broker, or of all, have changed

    @property
    def config(self) -> BrokerConfig:
        return self.settings.broker

    def layers(self) -> Layers:
        """Where each setting comes from."""
        return Layers(
            static=self.static,
            dynamic_default=self.cluster.default_config,
            dynamic_broker=self.cluster.broker_config,
        )


class Context(NamedTuple):
    """One request's surroundings."""

    services: Services
    version: int
    client_id: str | None
    host: str
    listener: str
