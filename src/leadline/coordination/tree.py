"""The tree that brokers agree through, ZooKeeper's model: a port with two homes, a real ZooKeeper and `embedded`.

A node has data, a version that counts its changes from 0, and children. An ephemeral node has no children and lives as
long as the session that created it. A sequential node is named by its path and ten digits, the number of children that
its parent has had before. Each transaction has an id greater than all before it, across restarts.

    calls are carried out and answered in the order in which they were made
    all operations of a `multi` take effect, or none
    a watch is called for a change before the call that made it is answered, and before any read that shows it

Watches are persistent callbacks on the loop. One that fires says that something changed, not what is there now:
several changes may cause one call, so read again. After a session state of CONNECTED, read everything again.

A call that is cancelled, or fails with ConnectionLost, may still take effect.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
ROOT = "/"
SEQUENCE_DIGITS = 10

# As ZooKeeper: no control characters, no surrogates or private use, no specials.
_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class TreeError(Exception):
    """Something that the tree, or the way to it, did not allow. Names the path."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class NoNode(TreeError):
    """The node, or the parent of one that is to be created, is not there."""


class NodeExists(TreeError):
    pass


class BadVersion(TreeError):
    """Somebody else was quicker: the node has another version than the one that was expected."""


class NotEmpty(TreeError):
    """A node that is to be deleted has children."""


class NoChildrenForEphemerals(TreeError):
    pass


class SessionExpired(TreeError):
    """The session is over, and its ephemeral nodes with it."""


class ConnectionLost(TreeError):
    """No answer came: what was asked may have been done or not."""


class TooLarge(TreeError):
    """More than the tree takes at once."""


class Node(NamedTuple):
    data: bytes
    version: int  # counts the times that the data was set, from 0
    czxid: int  # id of the transaction that created it: that of /brokers/ids/<id> is the broker's epoch
    ctime_ms: int  # when that was
    owner: int  # the session that an ephemeral node belongs to; 0: not ephemeral


class Created(NamedTuple):
    path: str  # with the number, if it is sequential
    czxid: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Nothing but a condition for the rest of a `multi`: the node is there and has this version."""

    path: str
    expected_version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Outcome = Created | int | None  # of a Create, of a Set (the new version), of the others


class Change(Enum):
    CREATED = "created"
    SET = "set"
    DELETED = "deleted"
    CHILDREN = "children"  # some came or went


class Event(NamedTuple):
    change: Change
    path: str


class SessionState(Enum):
    CONNECTED = "connected"  # read everything again; under another session id, ephemerals have to be made again
    SUSPENDED = "suspended"  # out of reach: may come back as the same session, or as another
    EXPIRED = "expired"  # over: ephemerals are gone, or go before anybody else can ask for them


class TreeWatch(Protocol):
    def cancel(self) -> None:
        """Not a call more, not even of what has already happened."""


class Tree(Protocol):
    @property
    def session(self) -> int:
        """Never 0. The owner of the ephemeral nodes that are created here."""

    async def get(self, path: str, /) -> Node | None: ...

    async def exists(self, path: str, /) -> bool: ...

    async def children(self, path: str, /) -> list[str] | None:
        """Names, sorted. None if the node is not there."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        """Raises NodeExists, or NoNode for the parent, unless parents are made: empty, one by one, for good."""

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        """The new version. Raises NoNode, BadVersion."""

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        """Raises what the first operation that cannot be done raises; then none is done."""

    async def watch(self, path: str, call: Callable[[Event], None], /) -> TreeWatch:
        """CREATED, SET and DELETED of a node, which need not be there yet. From the return of this on."""

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> TreeWatch:
        """CHILDREN of a node, which need not be there yet, and CREATED and DELETED of itself."""

    def watch_session(self, call: Callable[[SessionState], None], /) -> TreeWatch:
        """Each state of the session that follows."""

    async def close(self) -> None:
        """End the session. Its ephemeral nodes are gone when this returns; calls from here on raise SessionExpired."""


def check_path(path: str) -> None:
    """ValueError for a malformed path: a bug of the caller."""
    if path == ROOT:
        return
    steps = path.split("/")
    if steps[0] or len(steps) < 2 or not {"", ".", ".."}.isdisjoint(steps[1:]) or _UNFIT.search(path):
        raise ValueError(f"not the path of a node: {path!r}")


def check_operation(operation: Operation) -> None:
    """ValueError for what no tree can do: a path that is none, or the end of the root."""
    path = operation.path
    numbered = isinstance(operation, Create) and operation.sequential
    check_path(f"{path}0" if numbered else path)
    if path == ROOT and isinstance(operation, Delete):
        raise ValueError("the root cannot be deleted")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def child_of(path: str, name: str) -> str:
    return f"/{name}" if path == ROOT else f"{path}/{name}"


def sequential_path(path: str, number: int) -> str:
    return f"{path}{number:0{SEQUENCE_DIGITS}}"
