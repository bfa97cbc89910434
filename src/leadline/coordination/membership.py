"""How a broker joins a cluster: the nodes that all need, the cluster's id, an id of its own, its registration.

A broker that was killed leaves its registration behind, and if it was the controller that too, until its session times
out. When it is back before that, it puts its own in their place, so that its absence is seen and it has a new epoch.
But is what it finds its own? Two things prove it, together:

    the node belongs to a session that it remembers: each is written to its log directory, which it has locked, before
    anything is registered in it;
    it is registered at the very hosts and ports at which it listens itself, so nobody else can.

The first alone would fool the copy of a directory, the second two hosts that both call themselves localhost.
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

SESSIONS_FILE = "coordination.sessions"  # lines as in a checkpoint: the id of a session each, in hexadecimal


async def make_persistent_nodes(tree: Tree) -> None:
    for path in znodes.PERSISTENT:
        while not await tree.exists(path):
            with suppress(NodeExists, ConnectionLost):  # another broker was quicker, or it may be done
                await tree.create(path, make_parents=True)


async def agree_on_cluster_id(tree: Tree, proposed: str) -> str:
    """The id that the cluster has; the proposed one if it had none. Of several brokers at once, one gives it."""
    while (node := await tree.get(znodes.CLUSTER_ID)) is None:
        with suppress(NodeExists, ConnectionLost):
            await tree.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(proposed), make_parents=True)
    return znodes.decode_cluster_id(node.data)


async def generate_broker_id(tree: Tree, reserved_broker_max_id: int) -> BrokerId:
    """An id that no broker was given before, and none can be configured with."""
    while True:
        try:
            return reserved_broker_max_id + await tree.set(znodes.BROKER_SEQUENCE, b"")
        except NoNode:
            with suppress(NodeExists, ConnectionLost):
                await tree.create(znodes.BROKER_SEQUENCE, make_parents=True)
        except ConnectionLost:
            continue  # an id may be lost: there are enough


async def register(tree: Tree, broker: BrokerId, registration: Registration, remembered: Collection[int]) -> int:
    """The broker's epoch. `remembered`: sessions before this one. NodeExists if another broker has this id."""
    path, data = znodes.broker_path(broker), encode_registration(registration)
    while True:
        try:
            return (await tree.create(path, data, ephemeral=True, make_parents=True)).czxid
        except (NodeExists, ConnectionLost):
            node = await tree.get(path)
        if node is None:
            continue  # it has just gone
        if node.owner == tree.session:
            return node.czxid
        if node.owner not in remembered or not _has_endpoints(broker, node, registration):
            raise NodeExists(path, f"broker {broker} is alive in session {node.owner:#x}: {node.data[:300]!r}")
        with suppress(NoNode, BadVersion, NodeExists, ConnectionLost):  # things have changed: look again
            return await _replace(tree, path, node, data)


async def _replace(tree: Tree, path: str, node: Node, data: bytes) -> int:
    """The version would also fit a broker that registered this very moment; ZooKeeper can check no more than that."""
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
    """Before registering: this session and those before it. After: this one."""
    replace_file(files, os.path.join(directory, SESSIONS_FILE), encode_lines([f"{id:x}" for id in sessions]))


def remembered_sessions(files: Files, directory: str) -> set[int]:
    """None if nothing sensible is there: then the broker waits until its last session has timed out."""
    path = os.path.join(directory, SESSIONS_FILE)
    try:
        return {int(line, 16) for line in decode_lines(path, read_file(files, path))}
    except (FileNotFoundError, CorruptFile, ValueError):
        return set()
