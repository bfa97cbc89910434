"""The embedded tree: what the file behind it promises. What both homes promise is in `test_tree`."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from leadline.coordination.database import FILE_NAME, Database, TreeInUse
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import (
    ConnectionLost,
    Create,
    Event,
    SessionExpired,
    SessionState,
)
from leadline.errors import CorruptFile
from leadline.runtime.ports import SystemTime
from tests.support.waiting import eventually

from .conftest import Run


async def open_tree(directory: Path) -> EmbeddedTree:
    return await EmbeddedTree.open(str(directory), SystemTime())


def test_ephemerals_of_a_process_that_did_not_close_are_gone_at_the_next_start(run: Run, tmp_path: Path) -> None:
    database = Database(str(tmp_path), SystemTime())
    database.begin()
    database.transaction(lambda: database.multi([Create("/ids"), Create("/ids/0", ephemeral=True), Create("/kept")]))
    database.commit()
    database.close()

    async def scenario() -> None:
        tree = await open_tree(tmp_path)
        assert await tree.children("/") == ["ids", "kept"]
        assert await tree.children("/ids") == []
        await tree.close()

    run(scenario())


def test_the_loop_never_touches_the_database(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    commit = Database.commit

    def noted(self: Database) -> None:
        threads.add(threading.current_thread().name)
        commit(self)

    monkeypatch.setattr(Database, "commit", noted)

    async def scenario() -> None:
        tree = await open_tree(tmp_path)
        await tree.create("/a")
        await tree.close()

    run(scenario())
    assert threads == {"coordination"}


def fail_at_commit(_: Database) -> None:
    raise sqlite3.OperationalError("disk I/O error")


def test_a_disk_that_fails_ends_the_session(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[SessionState] = []
    events: list[Event] = []

    async def scenario() -> None:
        tree = await open_tree(tmp_path)
        tree.watch_session(states.append)
        tree.watch_session(states.append).cancel()
        await tree.watch("/a", events.append)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "commit", fail_at_commit)
            results = await asyncio.gather(tree.create("/a"), tree.get("/a"), return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]
        with pytest.raises(SessionExpired, match="disk I/O error"):
            await tree.create("/b")
        await tree.close()
        again = await open_tree(tmp_path)
        assert await again.children("/") == []
        await again.close()

    run(scenario())
    assert (states, events) == ([SessionState.EXPIRED], [])


def test_a_second_opener_is_refused(run: Run, tmp_path: Path) -> None:
    tree = run(open_tree(tmp_path))
    with pytest.raises(TreeInUse, match=FILE_NAME):
        run(open_tree(tmp_path))
    code = "import sys; from leadline.coordination.database import *; from leadline.runtime.ports import *\n"
    code += "try: Database(sys.argv[1], SystemTime())\nexcept TreeInUse: print('in use')"
    other = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert other.stdout == "in use\n"
    assert run(tree.children("/")) == []
    run(tree.close())


def another_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE other (x)")
    connection.close()


def a_format_of_tomorrow(path: Path) -> None:
    Database(str(path.parent), SystemTime()).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()


@pytest.mark.parametrize("make", [another_database, a_format_of_tomorrow])
def test_a_file_that_is_not_a_tree_is_refused(run: Run, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / FILE_NAME)
    with pytest.raises(CorruptFile, match=FILE_NAME):
        run(open_tree(tmp_path))


def test_a_missing_directory_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(open_tree(tmp_path / "nowhere"))


def test_an_opening_that_is_cancelled_gives_the_file_back(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        opening = asyncio.create_task(open_tree(tmp_path))
        await asyncio.sleep(0)
        opening.cancel()
        trees = []

        async def is_opened() -> bool:
            with suppress(TreeInUse):
                trees.append(await open_tree(tmp_path))
            return bool(trees)

        await eventually(is_opened)
        await trees[0].close()

    run(scenario())


def test_a_full_disk_refuses_a_write_and_takes_the_next_one_when_there_is_room(run: Run, tmp_path: Path) -> None:
    def limit(pages: int) -> Callable[[Database], object]:
        return lambda database: database._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    async def scenario() -> None:
        tree = await open_tree(tmp_path)
        states: list[SessionState] = []
        tree.watch_session(states.append)
        await tree.create("/kept", b"before")
        await tree._ask("/", limit(1))
        with pytest.raises(ConnectionLost, match="full: free some space"):
            await tree.create("/large", b"x" * 900_000)
        assert await tree.children("/") == ["kept"]
        await tree._ask("/", limit(1_000_000))
        zxid = (await tree.create("/large", b"x" * 900_000)).czxid
        assert zxid > (await tree.create("/next")).czxid - 2
        assert states == []
        await tree.close()
        again = await open_tree(tmp_path)
        assert await again.children("/") == ["kept", "large", "next"]
        await again.close()

    run(scenario())
