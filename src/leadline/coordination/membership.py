"""How a broker joins a cluster: the persistent nodes, the cluster's id, the broker's id, its registration.

The registration of a broker that was killed stays until its session expires, and so does /controller if it was the
controller. A broker that restarts earlier replaces both, so that the others see its absence and its new epoch. Two
facts together prove that a registration is its own:

    the node belongs to a session that the broker remembers. Before it registers, it writes the id of its session to its
    log directory, which it has locked
    the node has exactly the hosts and ports on which the broker listens, so no other broker can listen there

The first fact alone also holds for a copy of the directory, the second for two hosts that both advertise localhost.
"""

import os
from collections.abc import Collection
from contextlib import suppress

from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.registration import Registration, decode_registration, encode_registration
from leadline.coordination.tree import (
    BadVersion,
    ConnectionLost,
    Create,
    Created,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Tree,
)
from leadline.errors import CorruptFile
from leadline.log.checkpoints import decode_lines, encode_lines
from leadline.log.files import read_file, replace_file
from leadline.model import BrokerId
from leadline.runtime.ports import Files

SESSIONS_FILE = "coordination.sessions"  # as a checkpoint: each line is the id of a session, in hexadecimal


async def make_persistent_nodes(tree: Tree) -> None:
    for path in znodes.PERSISTENT:
        while not await tree.exists(path):
            with suppress(NodeExists, ConnectionLost):  # another broker created it, or this call did
                await tree.create(path, make_parents=True)


async def agree_on_cluster_id(tree: Tree, proposed: str) -> str:
    """Returns the cluster's id: the proposed one if there is none yet. Of several brokers, the first one sets it."""
    while (node := await tree.get(znodes.CLUSTER_ID)) is None:
        with suppress(NodeExists, ConnectionLost):
            await tree.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(proposed), make_parents=True)
    return znodes.decode_cluster_id(node.data)


async def generate_broker_id(tree: Tree, reserved_broker_max_id: int) -> BrokerId:
    """Returns an id that no broker has had, and that no broker can be configured with."""
    while True:
        try:
            return reserved_broker_max_id + await tree.set(znodes.BROKER_SEQUENCE, b"")
        except NoNode:
            with suppress(NodeExists, ConnectionLost):
                await tree.create(znodes.BROKER_SEQUENCE, make_parents=True)
        except ConnectionLost:
            continue  # the id may be lost, which does no harm


async def register(tree: Tree, broker: BrokerId, registration: Registration, remembered: Collection[int]) -> int:
    """Returns the broker's epoch. `remembered`: its earlier sessions. NodeExists if another broker has this id.

    A node of this session is kept, and so is its epoch. If the broker has other endpoints now, they are written to it.
    """
    path, data = znodes.broker_path(broker), encode_registration(registration)
    while True:
        try:
            return (await tree.create(path, data, ephemeral=True, make_parents=True)).czxid
        except (NodeExists, ConnectionLost):
            node = await tree.get(path)
        if node is None:
            continue  # it was deleted in between
        if node.owner == tree.session:
            if node.data == data:
                return node.czxid
            with suppress(NoNode, BadVersion, ConnectionLost):  # read it again
                await tree.set(path, data, node.version)
                return node.czxid
            continue
        if node.owner not in remembered or not _has_endpoints(broker, node, registration):
            raise NodeExists(path, f"broker {broker} is alive in session {node.owner:#x}: {node.data[:300]!r}")
        with suppress(NoNode, BadVersion, NodeExists, ConnectionLost):  # the node has changed: read it again
            return await _replace(tree, path, node, data)


async def _replace(tree: Tree, path: str, node: Node, data: bytes) -> int:
    """The version also matches a broker that registers at this moment: ZooKeeper can check nothing else."""
    operations: list[Operation] = [Delete(path, node.version), Create(path, data, ephemeral=True)]
    controller = await tree.get(znodes.CONTROLLER)
    if controller is not None and controller.owner == node.owner:
        operations.insert(0, Delete(znodes.CONTROLLER, controller.version))
    *_, created = await tree.multi(operations)
    assert isinstance(created, Created)
    return created.czxid


def _has_endpoints(broker: BrokerId, node: Node, registration: Registration) -> bool:
    try:
        return decode_registration(broker, node.data).endpoints == registration.endpoints
    except MalformedNode:
        return False


def remember_sessions(files: Files, directory: str, sessions: Collection[int]) -> None:
    """`sessions`: before registering, this one and the earlier ones; after that, this one."""
    replace_file(files, os.path.join(directory, SESSIONS_FILE), encode_lines([f"{id:x}" for id in sessions]))


def remembered_sessions(files: Files, directory: str) -> set[int]:
    """Empty if the file is missing or damaged: then the broker waits until its last session has expired."""
    path = os.path.join(directory, SESSIONS_FILE)
    try:
        return {int(line, 16) for line in decode_lines(path, read_file(files, path))}
    except (FileNotFoundError, CorruptFile, ValueError):
        return set()
