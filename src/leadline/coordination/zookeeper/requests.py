"""What a tree is asked for, in ZooKeeper's words, and what ZooKeeper answers, in the tree's.

Pure: requests and answers of kazoo's, and nothing that sends them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE

from leadline.coordination.tree import (
    ROOT,
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Outcome,
    SetData,
    TooLarge,
    TreeError,
    parent_of,
)

T = TypeVar("T")
Request = Any  # one of kazoo's, which has no types

MAX_REQUEST_BYTES = 0xFFFFF  # jute.maxbuffer: ZooKeeper closes the connection of a client that sends more
HEADER_BYTES = 8

ERRORS: dict[type[Exception], tuple[type[TreeError], str]] = {
    exceptions.NoNodeError: (NoNode, "there is no such node"),
    exceptions.NodeExistsError: (NodeExists, "there is such a node already"),
    exceptions.BadVersionError: (BadVersion, "it has another version than the one expected"),
    exceptions.NotEmptyError: (NotEmpty, "it has children"),
    exceptions.NoChildrenForEphemeralsError: (NoChildrenForEphemerals, "an ephemeral node has no children"),
}
PARENT_ERRORS = (exceptions.NoNodeError, exceptions.NoChildrenForEphemeralsError)  # if it is about a create
CONNECTION_ERRORS = (exceptions.ConnectionLoss, exceptions.SessionExpiredError)
ROLLED_BACK = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)  # the rest of a multi that failed


class Chroot(NamedTuple):
    """The node below which all lies: ZooKeeper's paths begin with it, ours do not."""

    path: str  # empty: the root

    def absolute(self, path: str) -> str:
        return (self.path if path == ROOT else self.path + path) or ROOT

    def relative(self, path: str) -> str:
        return path[len(self.path) :] or ROOT

    def get(self, path: str) -> Request:
        return serialization.GetData(self.absolute(path), None)

    def exists(self, path: str, watch: bool = False) -> Request:
        return serialization.Exists(self.absolute(path), watch)

    def children(self, path: str, watch: bool = False) -> Request:
        return serialization.GetChildren(self.absolute(path), watch)

    def multi(self, operations: Sequence[Operation]) -> Request:
        return serialization.Transaction(list(map(self.write, operations)))

    def write(self, operation: Operation) -> Request:
        path = self.absolute(operation.path)
        match operation:
            case Create(data=data, ephemeral=ephemeral, sequential=sequential):
                if sequential and operation.path == ROOT:
                    path = self.path + ROOT
                # Kafka leaves nodes without data at null, which its readers tell from empty.
                return serialization.Create(path, data or None, OPEN_ACL_UNSAFE, ephemeral | sequential << 1)
            case SetData(data=data, expected_version=version):
                return serialization.SetData(path, data, version)
            case Delete(expected_version=version):
                return serialization.Delete(path, version)
            case Check(expected_version=version):
                return serialization.CheckVersion(path, version)

    def created(self, path: str, zxid: int) -> Created:
        """All that a transaction creates has its id."""
        return Created(self.relative(path), zxid)

    def outcomes(self, operations: Sequence[Operation], results: Sequence[Any], zxid: int) -> list[Outcome]:
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, ROLLED_BACK):
                raise error_of(operation.path, isinstance(operation, Create), result)
        return [self._outcome(operation, result, zxid) for operation, result in zip(operations, results, strict=True)]

    def _outcome(self, operation: Operation, result: Any, zxid: int) -> Outcome:
        match operation:
            case Create():
                return self.created(result, zxid)
            case SetData():
                return int(result.version)
        return None


def check_size(path: str, request: Request) -> None:
    size = HEADER_BYTES + len(request.serialize())
    if size > MAX_REQUEST_BYTES:
        reason = f"a request of {size} bytes, more than the {MAX_REQUEST_BYTES} of ZooKeeper's jute.maxbuffer"
        raise TooLarge(path, reason)


def node_of(answer: Any, _: int) -> Node:
    data, stat = answer
    return Node(data or b"", stat.version, stat.czxid, stat.ctime, stat.ephemeralOwner)


def or_error(path: str, creates: bool, read: Callable[[Any, int], T], answer: object, zxid: int) -> T:
    """The answer as `read` reads it, or raised, if it is an error."""
    if isinstance(answer, Exception):
        raise error_of(path, creates, answer)
    return read(answer, zxid)


def error_of(path: str, creates: bool, error: Exception) -> TreeError:
    kind, reason = ERRORS.get(type(error), (TreeError, f"ZooKeeper refuses it: {error!r}"))
    if creates and isinstance(error, PARENT_ERRORS):
        return kind(parent_of(path), f"{reason}, so {path} cannot be created")
    return kind(path, reason)
