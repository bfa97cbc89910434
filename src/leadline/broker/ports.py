"""The five ports of a broker: time, files, network, chance and coordination. Everything above them is the same code.

`Ports()` are the real ones. A test or a simulation passes its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from leadline.config.broker import BrokerConfig
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import Tree
from leadline.log.files import CACHE
from leadline.runtime.network import Network, TcpNetwork
from leadline.runtime.ports import Chance, Files, OsFiles, SystemChance, SystemTime, Time

# The settings, and a log directory in which a single node may keep its tree.
OpenTree = Callable[[BrokerConfig, str, Time], Awaitable[Tree]]


async def open_tree(config: BrokerConfig, directory: str, time: Time) -> Tree:
    """ZooKeeper if the settings name one, else the embedded tree of a single node."""
    if not config.zookeeper_connect:
        return await EmbeddedTree.open(directory, time)
    from leadline.coordination.zookeeper.client import ZooKeeperTree  # kazoo takes a while to import

    return await ZooKeeperTree.open(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        max_in_flight=config.zookeeper_max_in_flight_requests,
    )


@dataclass(frozen=True, slots=True)
class Ports:
    time: Time = field(default_factory=SystemTime)
    files: Files = field(default_factory=lambda: OsFiles(CACHE.make_room))
    network: Network = field(default_factory=TcpNetwork)
    chance: Chance = field(default_factory=SystemChance)
    open_tree: OpenTree = open_tree
