"""The tree in a SQLite file: blocking, for one thread.

    node   parent, name    together its path; the root is ('', '')
           data, version, czxid, ctime_ms, owner      as in `tree.Node`
           born            the number of children that were ever created: that of the next sequential one
    tree   zxid            id of the last transaction
           session         number of the last session: each opening of the file is a session

One process at a time has the file, under SQLite's own exclusive lock, which ends with the process. Each opening deletes
the ephemeral nodes of earlier sessions. A commit is on disk when it returns (WAL, synchronous=FULL). If the file is
damaged, `salvage` keeps all nodes that can be read.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from leadline.coordination.salvage import DAMAGED, salvage
from leadline.coordination.tree import (
    ANY_VERSION,
    ROOT,
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
    child_of,
    parent_of,
    sequential_path,
)
from leadline.errors import CorruptFile
from leadline.runtime.ports import Time
from leadline.runtime.private_file import make_private

log = logging.getLogger(__name__)

T = TypeVar("T")

FILE_NAME = "coordination.db"
APPLICATION_ID = 0x4C454144
FORMAT = 1

SCHEMA = """
    CREATE TABLE node (
        parent TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL,
        ctime_ms INTEGER NOT NULL, owner INTEGER NOT NULL, born INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (parent, name)
    );
    CREATE INDEX ephemeral ON node (owner) WHERE owner != 0;
    CREATE TABLE tree (zxid INTEGER NOT NULL, session INTEGER NOT NULL);
    INSERT INTO node (parent, name, data, version, czxid, ctime_ms, owner) VALUES ('', '', x'', 0, 0, 0, 0);
    INSERT INTO tree VALUES (0, 0);
"""
CREATE_SCHEMA = f"{SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
REMEDY = (
    "restore a file of Leadline's that this user can read and write, or delete it: then the settings of topics and of "
    "the broker are lost, but not the topics and their records"
)


class TreeInUse(Exception):
    """Another process, or another tree of this process, has the file open."""


class Database:
    """An open file. A write happens within `transaction`, which adds its changes to `events`, in order."""

    def __init__(self, directory: str, clock: Time) -> None:
        self.path = os.path.join(directory, FILE_NAME)
        self._clock = clock
        self.events: list[Event] = []
        self._zxid = 0
        os.stat(directory)  # if the directory is missing, the error names it; SQLite's would not
        with self._opening():
            try:
                self._connect()
            except sqlite3.DatabaseError as error:
                if _primary_code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    raise
                count = salvage(self.path, CREATE_SCHEMA)
                log.error(
                    "%s was damaged (%s): %d nodes are kept; the damaged file is %s. Settings of topics and of the "
                    "broker may be lost; the records of topics are not affected",
                    self.path, error, count, self.path + DAMAGED,
                )  # fmt: skip
                self._connect()

    def _connect(self) -> None:
        make_private(self.path)
        self._connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _primary_code(error) == sqlite3.SQLITE_BUSY:
                raise TreeInUse(f"{self.path} is in use: another broker runs on this directory") from None
            raise OSError(f"{self.path}: {error}; {REMEDY}") from error

    def _open(self) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        for (finding,) in run("PRAGMA quick_check(1)"):
            if finding != "ok":
                raise _malformed(finding)
        run("BEGIN IMMEDIATE")
        (kind,) = run("PRAGMA application_id").fetchone()
        (format,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables:
            self._create_schema()
        elif (kind, format) != (APPLICATION_ID, FORMAT):
            problem = f"kind {kind:#x}, format {format}; expected {APPLICATION_ID:#x}, {FORMAT}"
            raise CorruptFile(self.path, 0, f"{problem}; {REMEDY}")
        run("UPDATE tree SET session = session + 1")
        self._zxid, self.session = run("SELECT zxid, session FROM tree").fetchone()
        self.transaction(self.end_sessions)
        run("COMMIT")
        self.events.clear()  # there are no watches yet

    def _create_schema(self) -> None:
        for statement in CREATE_SCHEMA.split(";"):
            self._connection.execute(statement)

    def close(self) -> None:
        self._connection.close()

    def begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def undo(self) -> bool:
        """Undoes everything since `begin`, after the disk or the memory was full. Returns False if that fails."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            (self._zxid,) = self._connection.execute("SELECT zxid FROM tree").fetchone()
        except sqlite3.Error:
            return False
        self.events.clear()
        return True

    def transaction(self, write: Callable[[], T]) -> T:
        """Runs `write` between `begin` and `commit`: all its changes take effect under one id, or none does."""
        run = self._connection.execute
        events, zxid = len(self.events), self._zxid
        run("SAVEPOINT write")
        try:
            self._zxid += 1
            result = write()
            run("UPDATE tree SET zxid = ?", (self._zxid,))
            run("RELEASE write")
        except BaseException:
            if self._connection.in_transaction:  # if the disk was full, SQLite may have rolled back already
                run("ROLLBACK TO write")
                run("RELEASE write")
            self._zxid = zxid
            del self.events[events:]
            raise
        return result

    def get(self, path: str) -> Node | None:
        query = "SELECT data, version, czxid, ctime_ms, owner FROM node WHERE parent = ? AND name = ?"
        row = self._connection.execute(query, _key(path)).fetchone()
        return Node(*row) if row else None

    def exists(self, path: str) -> bool:
        query = "SELECT 1 FROM node WHERE parent = ? AND name = ?"
        return self._connection.execute(query, _key(path)).fetchone() is not None

    def children(self, path: str) -> list[str] | None:
        rows = self._connection.execute("SELECT name FROM node WHERE parent = ? ORDER BY name", (path,)).fetchall()
        if not rows and not self.exists(path):
            return None
        return [name for (name,) in rows]

    def multi(self, operations: list[Operation]) -> list[Outcome]:
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> Outcome:
        match operation:
            case Create():
                return self.create(operation)
            case SetData():
                return self._set(operation)
            case Delete():
                self._delete(operation)
            case Check():
                self._check(operation.path, operation.expected_version)
        return None

    def make_parents(self, path: str) -> None:
        parent = parent_of(path)
        if not self.exists(parent):
            self.make_parents(parent)
            self.create(Create(parent))

    def create(self, operation: Create) -> Created:
        parent = parent_of(operation.path)
        query = "SELECT owner, born FROM node WHERE parent = ? AND name = ?"
        row = self._connection.execute(query, _key(parent)).fetchone()
        if not row:
            raise NoNode(parent, f"the node does not exist, so {operation.path} cannot be created")
        owner, born = row
        if owner:
            raise NoChildrenForEphemerals(parent, "an ephemeral node cannot have children")
        path = sequential_path(operation.path, born) if operation.sequential else operation.path
        self._insert(path, operation)
        self._connection.execute("UPDATE node SET born = born + 1 WHERE parent = ? AND name = ?", _key(parent))
        self._note_change(Change.CREATED, path)
        return Created(path, self._zxid)

    def _insert(self, path: str, operation: Create) -> None:
        owner = self.session if operation.ephemeral else 0
        try:
            self._connection.execute(
                "INSERT INTO node (parent, name, data, version, czxid, ctime_ms, owner) VALUES (?, ?, ?, 0, ?, ?, ?)",
                (*_key(path), operation.data, self._zxid, self._clock.now_ms(), owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path, "the node exists already") from None

    def _set(self, operation: SetData) -> int:
        path = operation.path
        version = self._check(path, operation.expected_version) + 1
        statement = "UPDATE node SET data = ?, version = ? WHERE parent = ? AND name = ?"
        self._connection.execute(statement, (operation.data, version, *_key(path)))
        self.events.append(Event(Change.SET, path))
        return version

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        self._check(path, operation.expected_version)
        if self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path, "the node has children")
        self._connection.execute("DELETE FROM node WHERE parent = ? AND name = ?", _key(path))
        self._note_change(Change.DELETED, path)

    def _check(self, path: str, expected: int) -> int:
        query = "SELECT version FROM node WHERE parent = ? AND name = ?"
        row = self._connection.execute(query, _key(path)).fetchone()
        if not row:
            raise NoNode(path, "the node does not exist")
        version = int(row[0])
        if expected not in (ANY_VERSION, version):
            raise BadVersion(path, f"the node has version {version}, not {expected}")
        return version

    def end_sessions(self) -> None:
        """Deletes all ephemeral nodes. There is one session at a time, and it has just begun or is about to end."""
        rows = self._connection.execute("SELECT parent, name FROM node WHERE owner != 0 ORDER BY czxid").fetchall()
        for parent, name in rows:
            self._delete(Delete(child_of(parent, name)))

    def _note_change(self, change: Change, path: str) -> None:
        self.events += (Event(change, path), Event(Change.CHILDREN, parent_of(path)))


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's error code without its extension: the low byte."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _malformed(problem: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(" ".join(str(problem).split()))
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _key(path: str) -> tuple[str, str]:
    """Parent and name."""
    if path == ROOT:
        return "", ""
    return parent_of(path), path.rpartition("/")[2]
