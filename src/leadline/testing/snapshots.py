"""Snapshots of a cluster: a folder from which another cluster can start, with the same topics, records and groups.

Format of the folder:
    cluster.json    version 1; brokers, their count; settings; now_ms, the clock; zxid; nodes: a list of objects with
                    path, data (base64), version, czxid, ctime_ms and born (the children that it has had)
    broker-<id>     the log directory of each broker, as its files were at one moment

No broker runs while the files are copied, so all of them are of the same moment, as after a kill of all brokers.
"""

import base64
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leadline.coordination.memory_nodes import StoredNode
from leadline.coordination.memory_tree import MemoryTreeServer
from leadline.coordination.tree import Node
from leadline.testing.clock import ClusterClock
from leadline.testing.errors import ClusterError

VERSION = 1
FILE = "cluster.json"
PathLike = str | os.PathLike[str]


class ClusterSnapshot(NamedTuple):
    path: str
    brokers: int
    settings: dict[str, str]
    now_ms: int
    zxid: int
    nodes: list[StoredNode]


def write(
    path: PathLike,
    directory: str,
    ids: Sequence[int],
    settings: Mapping[str, str],
    tree: MemoryTreeServer,
    clock: ClusterClock,
) -> None:
    folder = os.fspath(path)
    if os.path.exists(os.path.join(folder, FILE)):
        raise ClusterError(f"there is a snapshot in {folder} already: name another folder")
    os.makedirs(folder, exist_ok=True)
    for id in ids:
        name = f"broker-{id}"
        shutil.copytree(
            os.path.join(directory, name), os.path.join(folder, name), ignore=shutil.ignore_patterns(".lock")
        )
    with tree.lock:
        zxid, nodes = tree.nodes.zxid, list(tree.nodes.stored())
    content = {
        "version": VERSION,
        "brokers": len(ids),
        "settings": dict(settings),
        "now_ms": clock.now_ms(),
        "zxid": zxid,
        "nodes": [_as_json(node) for node in nodes],
    }
    with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def read(path: PathLike) -> ClusterSnapshot:
    folder = os.fspath(path)
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        raise ClusterError(f"there is no snapshot in {folder}: cluster.snapshot({folder!r}) writes one") from None
    except ValueError as error:
        raise ClusterError(f"{os.path.join(folder, FILE)} cannot be read: {error}") from None
    if content.get("version") != VERSION:
        raise ClusterError(
            f"the snapshot in {folder} has version {content.get('version')}, and this one reads {VERSION}"
        )
    nodes = [_node(value) for value in content["nodes"]]
    return ClusterSnapshot(folder, content["brokers"], content["settings"], content["now_ms"], content["zxid"], nodes)


def restore(snapshot: ClusterSnapshot, directory: str, tree: MemoryTreeServer, clock: ClusterClock) -> None:
    """The clock never goes back: records must not be of the future."""
    for id in range(1, snapshot.brokers + 1):
        name = f"broker-{id}"
        shutil.copytree(os.path.join(snapshot.path, name), os.path.join(directory, name))
    tree.nodes.restore(snapshot.nodes, snapshot.zxid)
    clock.jump(max(0, snapshot.now_ms - clock.now_ms()) / 1000)


def _as_json(stored: StoredNode) -> dict[str, Any]:
    node = stored.node
    return {
        "path": stored.path,
        "data": base64.b64encode(node.data).decode(),
        "version": node.version,
        "czxid": node.czxid,
        "ctime_ms": node.ctime_ms,
        "born": stored.born,
    }


def _node(value: Mapping[str, Any]) -> StoredNode:
    node = Node(base64.b64decode(value["data"]), value["version"], value["czxid"], value["ctime_ms"], 0)
    return StoredNode(value["path"], node, value["born"])
