"""Replaces a damaged coordination.db by a new one with all nodes that can be read.

The damaged file is kept as coordination.db.damaged. The new file is complete before it gets its name. So a crash leaves
the old file, which is salvaged again, or the new one.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from leadline.coordination.tree import ROOT, check_path, child_of, parent_of
from leadline.runtime.private_file import make_private

DAMAGED, NEW, WAL = ".damaged", ".new", "-wal"
COLUMNS = "parent, name, data, version, czxid, ctime_ms, born"


class SalvagedNode(NamedTuple):
    """A node of the damaged file. Ephemeral nodes are not salvaged."""

    path: str
    data: bytes
    version: int
    czxid: int
    ctime_ms: int
    born: int


def salvage(path: str, create_schema: str) -> int:
    """Replaces the file. Returns the number of nodes in the new one. OSError, sqlite3.Error."""
    for suffix in ("", WAL):
        with suppress(FileNotFoundError):
            shutil.copy(path + suffix, path + DAMAGED + suffix)  # with the mode
    rows = _with_parents({row.path: row for row in _readable(path + DAMAGED)})
    for suffix in ("", WAL):
        with suppress(FileNotFoundError):
            os.unlink(path + NEW + suffix)
    make_private(path + NEW)
    with closing(sqlite3.connect(path + NEW, isolation_level=None)) as connection:
        connection.executescript(f"BEGIN; {create_schema}")
        connection.executemany(
            "INSERT OR REPLACE INTO node (parent, name, data, version, czxid, ctime_ms, owner, born) "
            "VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
            [(*_key(row.path), row.data, row.version, row.czxid, row.ctime_ms, row.born) for row in rows],
        )
        connection.execute("UPDATE tree SET zxid = ?", (max((row.czxid for row in rows), default=0),))
        connection.execute("COMMIT")
    with suppress(FileNotFoundError):
        os.unlink(path + WAL)  # of the damaged file
    os.replace(path + NEW, path)
    return len(rows)


def _readable(path: str) -> Iterator[SalvagedNode]:
    """The nodes before the first damaged page, then those after the last one, read backwards."""
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            connection.text_factory = bytes
            for fields in connection.execute(f"SELECT {COLUMNS} FROM node WHERE owner = 0 ORDER BY rowid {order}"):
                if (row := _row(*fields)) is not None:
                    yield row


def _row(parent: object, name: object, data: object, *numbers: object) -> SalvagedNode | None:
    """Returns None for a row that no broker writes."""
    if not (isinstance(parent, bytes) and isinstance(name, bytes) and isinstance(data, bytes)):
        return None
    version, czxid, ctime_ms, born = numbers
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    try:
        path = child_of(parent.decode(), name.decode()) if name else ROOT
        check_path(path)
    except ValueError:
        return None
    assert isinstance(version, int)
    assert isinstance(czxid, int)
    assert isinstance(ctime_ms, int)
    assert isinstance(born, int)
    return SalvagedNode(path, data, version, czxid, ctime_ms, born)


def _with_parents(rows: dict[str, SalvagedNode]) -> list[SalvagedNode]:
    """Adds an empty node for each parent that could not be read."""
    for path in list(rows):
        while (path := parent_of(path) if path != ROOT else ROOT) not in rows:
            rows[path] = SalvagedNode(path, b"", 0, 0, 0, 0)
    return list(rows.values())


def _key(path: str) -> tuple[str, str]:
    return ("", "") if path == ROOT else (parent_of(path), path.rpartition("/")[2])
