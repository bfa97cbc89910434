"""The tree through which brokers agree, after ZooKeeper's model. It is a port: a real ZooKeeper, or `embedded`.

A node has data, a version that counts its changes from 0, and children. An ephemeral node has no children and exists
until the session that created it ends. The name of a sequential node ends in ten digits: the number of children that
its parent has had before. The id of a transaction is greater than all earlier ones, across restarts.

    calls are carried out and answered in the order in which they were made
    all operations of a `multi` take effect, or none
    a watch is called for a change before the call that made it is answered, and before any read that shows it

Watches are persistent callbacks on the loop. A watch reports that something changed, not the new state: several changes
may cause one call, so read again. After the session state CONNECTED, read everything again.

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
    """The tree, or the connection to it, failed or rejected a call. The message names the path."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class NoNode(TreeError):
    """The node does not exist, or the parent of a new node does not."""


class NodeExists(TreeError):
    pass


class BadVersion(TreeError):
    """The node has another version than expected: it was changed in the meantime."""


class NotEmpty(TreeError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(TreeError):
    pass


class SessionExpired(TreeError):
    """The session is over, and its ephemeral nodes with it."""


class ConnectionLost(TreeError):
    """No answer came: the call may have taken effect or not."""


class TooLarge(TreeError):
    """The request exceeds the size limit of the tree."""


class Node(NamedTuple):
    data: bytes
    version: int  # counts the times that the data was set, from 0
    czxid: int  # id of the transaction that created it: that of /brokers/ids/<id> is the broker's epoch
    ctime_ms: int  # when that was
    owner: int  # the session that an ephemeral node belongs to; 0: not ephemeral
    mzxid: int = 0  # id of the transaction that set its data last; 0: the tree does not keep it


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
    """A condition for the rest of a `multi`: the node exists and has this version."""

    path: str
    expected_version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Outcome = Created | int | None  # of a Create, of a Set (the new version), of the others


class Change(Enum):
    CREATED = "created"
    SET = "set"
    DELETED = "deleted"
    CHILDREN = "children"  # some were created or deleted


class Event(NamedTuple):
    change: Change
    path: str


class SessionState(Enum):
    CONNECTED = "connected"  # read everything again; create ephemerals again if the session id is new
    SUSPENDED = "suspended"  # no connection: it continues as the same session, or expires
    EXPIRED = "expired"  # its ephemerals are deleted before the tree can be read again


class TreeWatch(Protocol):
    def cancel(self) -> None:
        """The callback is not called again, not even for changes that have already happened."""


class Tree(Protocol):
    @property
    def session(self) -> int:
        """Never 0. The owner of the ephemeral nodes that are created here."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes write to it, by rules of their own."""

    async def get(self, path: str, /) -> Node | None: ...

    async def exists(self, path: str, /) -> bool: ...

    async def children(self, path: str, /) -> list[str] | None:
        """The names, sorted. None if the node does not exist."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> Created:
        """Raises NodeExists, or NoNode for the parent. `make_parents` creates empty parents, one by one, that stay."""

    async def set(self, path: str, data: bytes, expected_version: int = ANY_VERSION) -> int:
        """Returns the new version. Raises NoNode, BadVersion."""

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""

    async def multi(self, operations: Sequence[Operation], /) -> list[Outcome]:
        """Raises the error of the first operation that fails; then none takes effect."""

    async def watch(self, path: str, call: Callable[[Event], None], /) -> TreeWatch:
        """Reports CREATED, SET and DELETED of a node, which need not exist yet, from the return of this call on."""

    async def watch_children(self, path: str, call: Callable[[Event], None], /) -> TreeWatch:
        """Reports CHILDREN of a node, which need not exist yet, and CREATED and DELETED of the node itself."""

    def watch_session(self, call: Callable[[SessionState], None], /) -> TreeWatch:
        """Reports each later state of the session."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are deleted when this returns. Later calls raise SessionExpired."""


def check_path(path: str) -> None:
    """Raises ValueError for a malformed path: a bug of the caller."""
    if path == ROOT:
        return
    steps = path.split("/")
    if steps[0] or len(steps) < 2 or not {"", ".", ".."}.isdisjoint(steps[1:]) or _UNFIT.search(path):
        raise ValueError(f"not the path of a node: {path!r}")


def check_operation(operation: Operation) -> None:
    """Raises ValueError for a malformed path, and for the deletion of the root."""
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
