"""The tree in a SQLite file: transactions, versions, sequences, and the sessions of one opening after the other."""

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from leadline.coordination.database import Database
from leadline.coordination.tree import (
    BadVersion,
    Change,
    Check,
    Create,
    Created,
    Delete,
    Event,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Outcome,
    SetData,
    TreeError,
)
from tests.support import in_memory
from tests.support.logs import START_MS, ManualClock


@pytest.fixture
def directory() -> Iterator[Path]:
    yield from in_memory.directory()


@pytest.fixture
def database(directory: Path) -> Iterator[Database]:
    opened = Database(str(directory), ManualClock())
    yield opened
    opened.close()


def write(database: Database, *operations: Operation) -> list[Outcome]:
    """One transaction in one commit."""
    database.begin()
    try:
        return database.transaction(partial(database.multi, list(operations)))
    finally:
        database.commit()


def test_a_node_has_the_id_and_time_of_its_transaction_and_counts_its_changes(database: Database) -> None:
    (created,) = write(database, Create("/a", b"1"))
    assert isinstance(created, Created)
    assert write(database, SetData("/a", b"2"), SetData("/a", b"3", 1)) == [1, 2]
    node = database.get("/a")
    assert node is not None
    assert node == Node(b"3", 2, created.czxid, START_MS, 0)
    assert write(database, Create("/b")) == [Created("/b", created.czxid + 2)]


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/missing/b"), NoNode),
        (Create("/ephemeral/b"), NoChildrenForEphemerals),
        (SetData("/missing", b""), NoNode),
        (SetData("/a", b"", 1), BadVersion),
        (Delete("/a", 1), BadVersion),
        (Delete("/a"), NotEmpty),
        (Check("/a", 1), BadVersion),
        (Check("/missing"), NoNode),
    ],
)
def test_a_transaction_with_an_operation_that_fails_changes_nothing(
    database: Database, operation: Operation, error: type[TreeError]
) -> None:
    last, *_ = write(database, Create("/a"), Create("/a/child"), Create("/ephemeral", ephemeral=True))
    assert isinstance(last, Created)
    database.events.clear()
    with pytest.raises(error):
        write(database, Create("/before"), operation)
    assert database.children("/") == ["a", "ephemeral"]
    assert database.events == []
    assert write(database, Create("/after")) == [Created("/after", last.czxid + 1)], "a failed one has no id"


def test_changes_are_events_in_their_order(database: Database) -> None:
    write(database, Create("/a"), SetData("/a", b"1"), Delete("/a"))
    assert database.events == [
        Event(Change.CREATED, "/a"),
        Event(Change.CHILDREN, "/"),
        Event(Change.SET, "/a"),
        Event(Change.DELETED, "/a"),
        Event(Change.CHILDREN, "/"),
    ]


def test_sequential_nodes_count_deleted_children_too(database: Database) -> None:
    write(database, Create("/a"), Create("/a/x"), Delete("/a/x"))
    outcomes = write(database, *(Create("/a/n", sequential=True) for _ in range(2)))
    assert [outcome.path for outcome in outcomes if isinstance(outcome, Created)] == [
        "/a/n0000000001",
        "/a/n0000000002",
    ]


def test_children_are_sorted_and_those_of_a_missing_node_are_none(database: Database) -> None:
    write(database, Create("/a"), Create("/a/c"), Create("/a/b"), Create("/a/b/x"))
    assert database.children("/a") == ["b", "c"]
    assert database.children("/a/c") == []
    assert database.children("/missing") is None


def test_parents_are_made_once(database: Database) -> None:
    for path in ("/a/b/c", "/a/b/d"):
        database.begin()
        database.transaction(partial(database.make_parents, path))
        database.commit()
    assert database.children("/a") == ["b"]
    assert not database.exists("/a/b/c")


def test_the_next_opening_is_another_session_without_the_ephemerals_of_the_last(directory: Path) -> None:
    first = Database(str(directory), ManualClock())
    write(first, Create("/stays"), Create("/ephemeral", ephemeral=True))
    node = first.get("/ephemeral")
    assert node is not None
    assert node.owner == first.session
    first.close()
    second = Database(str(directory), ManualClock())
    assert second.session == first.session + 1
    assert (second.children("/"), second.events) == (["stays"], [])
    second.close()


def test_undoing_a_commit_that_failed_takes_back_all_since_its_begin(database: Database) -> None:
    write(database, Create("/a"))
    database.events.clear()
    database.begin()
    database.transaction(partial(database.multi, [Create("/b")]))
    assert database.undo()
    assert (database.children("/"), database.events) == (["a"], [])
    assert write(database, Create("/c")) == [Created("/c", 3)]


def test_undo_returns_false_on_a_closed_database(database: Database) -> None:
    database.begin()
    database.close()
    assert not database.undo()
    with pytest.raises(sqlite3.ProgrammingError):
        database.begin()
