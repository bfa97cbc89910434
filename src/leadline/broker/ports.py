"""The five ports of a broker: time, files, network, chance and coordination. Everything above them is the same code.

`Ports()` are the real ones, and this module is the one above `runtime` that names them. A test or a simulation passes
its own.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from leadline.config.broker import BrokerConfig
from leadline.config.java_options import system_properties
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import Tree
from leadline.log.files import read_file
from leadline.log.open_files import CACHE
from leadline.runtime.documents import FetchDocument, fetch_document
from leadline.runtime.kerberos import Kerberos, LibKerberos
from leadline.runtime.network import Network, TcpNetwork
from leadline.runtime.ports import Chance, Files, OsFiles, SystemChance, SystemTime, Time

# The settings, a log directory in which a single node may keep its tree, and the other ports.
OpenTree = Callable[[BrokerConfig, str, "Ports"], Awaitable[Tree]]


async def open_tree(config: BrokerConfig, directory: str, ports: "Ports") -> Tree:
    """ZooKeeper if the settings name one, else the embedded tree of a single node."""
    if not config.zookeeper_connect:
        return await EmbeddedTree.open(directory, ports.time)
    from leadline.broker.zookeeper_access import zookeeper_access  # kazoo takes a while to import
    from leadline.coordination.zookeeper.client import ZooKeeperTree

    read = partial(read_file, ports.files)
    return await ZooKeeperTree.open(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        max_in_flight=config.zookeeper_max_in_flight_requests,
        access=zookeeper_access(config, system_properties(ports.environment), read, ports.chance.secret_bytes),
    )


@dataclass(frozen=True, slots=True)
class Ports:
    time: Time = field(default_factory=SystemTime)
    files: Files = field(default_factory=lambda: OsFiles(CACHE.make_room))
    network: Network = field(default_factory=TcpNetwork)
    chance: Chance = field(default_factory=SystemChance)
    open_tree: OpenTree = open_tree
    environment: Mapping[str, str] = field(default_factory=dict)  # of the process, for Java's options in KAFKA_OPTS
    fetch_document: FetchDocument = fetch_document  # of the network: what is fetched from elsewhere than a broker
    kerberos: Kerberos = field(default_factory=LibKerberos)  # of the network and the files: see `runtime/kerberos.py`
