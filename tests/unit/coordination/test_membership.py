"""Joining a cluster: ids are agreed upon, and a registration is taken back by nobody but its owner."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from leadline.coordination import znodes
from leadline.coordination.membership import (
    SESSIONS_FILE,
    agree_on_cluster_id,
    generate_broker_id,
    make_persistent_nodes,
    register,
    remember_sessions,
    remembered_sessions,
)
from leadline.coordination.registration import RegisteredEndpoint, Registration, decode_registration
from leadline.coordination.tree import Change, ConnectionLost, Event, NodeExists, Operation, Outcome, Tree
from leadline.runtime.ports import OsFiles

from .conftest import InZooKeeper, Run

HERE = Registration((RegisteredEndpoint("PLAINTEXT", "here", 9092, "PLAINTEXT"),), timestamp_ms=1)
THERE = replace(HERE, endpoints=(RegisteredEndpoint("PLAINTEXT", "there", 9092, "PLAINTEXT"),))


def test_the_nodes_that_all_need_are_made_once(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        await asyncio.gather(make_persistent_nodes(tree), make_persistent_nodes(tree))
        assert all(await asyncio.gather(*map(tree.exists, znodes.PERSISTENT)))
        await make_persistent_nodes(tree)

    run(scenario())


def test_of_brokers_that_start_at_once_one_gives_the_cluster_its_id(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        proposed = [f"id{number}" for number in range(5)]
        agreed = await asyncio.gather(*(agree_on_cluster_id(tree, id) for id in proposed))
        assert len(set(agreed)) == 1
        assert agreed[0] in proposed
        assert await agree_on_cluster_id(tree, "another") == agreed[0]

    run(scenario())


def test_generated_ids_lie_above_the_reserved_ones_and_differ(run: Run, tree: Tree) -> None:
    async def scenario() -> list[int]:
        return await asyncio.gather(*(generate_broker_id(tree, 1000) for _ in range(3)))

    assert sorted(run(scenario())) == [1001, 1002, 1003]


def test_the_epoch_of_a_broker_is_the_transaction_that_registered_it(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        epoch = await register(tree, 7, HERE, ())
        node = await tree.get("/brokers/ids/7")
        assert node is not None
        assert (node.czxid, node.owner) == (epoch, tree.session)
        assert decode_registration(7, node.data) == HERE
        assert await register(tree, 7, HERE, ()) == epoch

    run(scenario())


def test_other_endpoints_are_written_to_the_same_node(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        epoch = await register(tree, 7, HERE, ())
        assert await register(tree, 7, THERE, ()) == epoch
        node = await tree.get("/brokers/ids/7")
        assert node is not None
        assert (decode_registration(7, node.data), node.version, node.owner) == (THERE, 1, tree.session)

    run(scenario())


@pytest.mark.parametrize("was_controller", [False, True])
def test_a_broker_that_is_back_before_its_session_is_over_takes_its_place(
    run: Run, in_zookeeper: InZooKeeper, was_controller: bool
) -> None:
    events: list[Event] = []

    async def scenario() -> None:
        before, after = await in_zookeeper.open(), await in_zookeeper.open()
        first = await register(before, 7, HERE, ())
        await (before if was_controller else after).create(znodes.CONTROLLER, ephemeral=True)
        await after.watch("/brokers/ids/7", events.append)
        second = await register(after, 7, replace(HERE, timestamp_ms=2), {before.session})
        node = await after.get("/brokers/ids/7")
        assert node is not None
        assert (node.czxid, node.owner) == (second, after.session)
        assert second > first
        assert Event(Change.DELETED, "/brokers/ids/7") in events
        assert await after.exists(znodes.CONTROLLER) is not was_controller
        await before.close()
        assert await after.exists("/brokers/ids/7")
        await after.close()

    run(scenario())


# Registers in a session of a minute, prints its epoch, and waits to be killed.
VICTIM = """
import asyncio, sys
from leadline.coordination.membership import register, remember_sessions
from leadline.coordination.registration import RegisteredEndpoint, Registration
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.runtime.ports import OsFiles

async def main(connect, directory):
    tree = await ZooKeeperTree.open(
        connect, session_timeout_ms=60_000, connection_timeout_ms=60_000, max_in_flight=10
    )
    remember_sessions(OsFiles(), directory, [tree.session])
    here = Registration((RegisteredEndpoint("PLAINTEXT", "here", 9092, "PLAINTEXT"),), timestamp_ms=1)
    print(await register(tree, 7, here, ()), flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_broker_that_was_killed_need_not_wait_for_the_end_of_its_session(
    run: Run, in_zookeeper: InZooKeeper, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-c", VICTIM, in_zookeeper.connect, str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        epoch = int(victim.stdout.readline())
        victim.kill()

    async def scenario() -> None:
        tree = await in_zookeeper.open()
        remembered = remembered_sessions(OsFiles(), str(tmp_path))
        node = await tree.get("/brokers/ids/7")
        assert node is not None
        assert (node.czxid, {node.owner}) == (epoch, remembered)
        assert await register(tree, 7, HERE, remembered) > epoch
        await tree.close()

    run(scenario())


@pytest.mark.parametrize(("other", "is_remembered"), [(HERE, False), (THERE, True), (THERE, False)])
def test_another_broker_with_the_same_id_keeps_it(
    run: Run, in_zookeeper: InZooKeeper, other: Registration, is_remembered: bool
) -> None:
    async def scenario() -> None:
        one, two = await in_zookeeper.open(), await in_zookeeper.open()
        epoch = await register(one, 7, other, ())
        with pytest.raises(NodeExists, match="/brokers/ids/7: broker 7 is alive in session"):
            await register(two, 7, HERE, {one.session} if is_remembered else ())
        node = await two.get("/brokers/ids/7")
        assert node is not None
        assert node.czxid == epoch
        await two.set("/brokers/ids/7", b"not even JSON")
        with pytest.raises(NodeExists):
            await register(two, 7, HERE, {one.session})
        await one.close()
        await register(two, 7, HERE, ())
        await two.close()

    run(scenario())


def test_a_place_that_was_taken_counts_even_if_the_answer_was_lost(
    run: Run, in_zookeeper: InZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        before, after = await in_zookeeper.open(), await in_zookeeper.open()
        await register(before, 7, HERE, ())
        multi = after.multi

        async def lose_the_answer(operations: Sequence[Operation]) -> list[Outcome]:
            await multi(operations)
            raise ConnectionLost("/", "no answer came")

        monkeypatch.setattr(after, "multi", lose_the_answer)
        epoch = await register(after, 7, HERE, {before.session})
        node = await before.get("/brokers/ids/7")
        assert node is not None
        assert (node.czxid, node.owner) == (epoch, after.session)
        await after.close()
        await before.close()

    run(scenario())


def test_sessions_are_remembered_on_disk_and_nonsense_is_none(tmp_path: Path) -> None:
    files, directory = OsFiles(), str(tmp_path)
    assert remembered_sessions(files, directory) == set()
    remember_sessions(files, directory, [0x100000A, -5])
    assert remembered_sessions(files, directory) == {0x100000A, -5}
    for nonsense in (b"\xff\0", b"0\n1\nsession\n", b"0\n9\n1\n", b""):
        (tmp_path / SESSIONS_FILE).write_bytes(nonsense)
        assert remembered_sessions(files, directory) == set()
