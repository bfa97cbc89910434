"""Snapshots of a cluster: what cannot be written or read is named."""

import json
from pathlib import Path

import pytest

from leadline.testing import snapshots
from leadline.testing.errors import ClusterError

EMPTY = {"version": 1, "brokers": 1, "settings": {"a": "b"}, "now_ms": 5, "zxid": 9, "nodes": []}
NODE = {"path": "/a", "data": "aGk=", "version": 2, "czxid": 3, "ctime_ms": 4, "born": 1}


def written(path: Path, content: object) -> Path:
    (path / snapshots.FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_file_holds_settings_clock_and_nodes(tmp_path: Path) -> None:
    snapshot = snapshots.read(written(tmp_path, EMPTY | {"nodes": [NODE]}))
    assert (snapshot.brokers, snapshot.settings, snapshot.now_ms, snapshot.zxid) == (1, {"a": "b"}, 5, 9)
    (stored,) = snapshot.nodes
    assert (stored.path, stored.node.data, stored.node.version, stored.born) == ("/a", b"hi", 2, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "cannot be read"), (EMPTY | {"version": 2}, "has version 2, and this one reads 1")],
    ids=["damaged", "newer"],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        snapshots.read(written(tmp_path, content))


def test_a_folder_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no snapshot in"):
        snapshots.read(tmp_path)
