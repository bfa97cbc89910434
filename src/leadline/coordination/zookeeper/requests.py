"""The tree's operations as requests of kazoo, and kazoo's answers as results and errors of the tree.

Pure: encodes requests and decodes answers. `session` sends them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from kazoo import exceptions
from kazoo.protocol import serialization

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
from leadline.coordination.zookeeper.access import acl_of

T = TypeVar("T")
Request = Any  # a request of kazoo, which has no types

MAX_REQUEST_BYTES = 0xFFFFF  # jute.maxbuffer: ZooKeeper closes the connection of a client that sends more
HEADER_BYTES = 8

ERRORS: dict[type[Exception], tuple[type[TreeError], str]] = {
    exceptions.NoNodeError: (NoNode, "the node does not exist"),
    exceptions.NodeExistsError: (NodeExists, "the node exists already"),
    exceptions.BadVersionError: (BadVersion, "the node has another version than expected"),
    exceptions.NotEmptyError: (NotEmpty, "the node has children"),
    exceptions.NoAuthError: (TreeError, "ZooKeeper does not allow it: the ACL of the node is for another user"),
    exceptions.NoChildrenForEphemeralsError: (NoChildrenForEphemerals, "an ephemeral node cannot have children"),
}
PARENT_ERRORS = (exceptions.NoNodeError, exceptions.NoChildrenForEphemeralsError)  # of a create
CONNECTION_ERRORS = (exceptions.ConnectionLoss, exceptions.SessionExpiredError)
ROLLED_BACK = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)  # the others of a failed multi


class Chroot(NamedTuple):
    """The node that is the root of our tree: ZooKeeper's paths begin with it, ours do not."""

    path: str  # empty: ZooKeeper's root
    set_acl: bool = False  # zookeeper.set.acl

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
                acl = acl_of(operation.path, self.set_acl)
                # Kafka leaves nodes without data at null, which its readers tell from empty.
                return serialization.Create(path, data or None, acl, ephemeral | sequential << 1)
            case SetData(data=data, expected_version=version):
                return serialization.SetData(path, data, version)
            case Delete(expected_version=version):
                return serialization.Delete(path, version)
            case Check(expected_version=version):
                return serialization.CheckVersion(path, version)

    def created(self, path: str, zxid: int) -> Created:
        """All nodes that a transaction creates have its id."""
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
        reason = f"the request has {size} bytes; ZooKeeper's jute.maxbuffer allows {MAX_REQUEST_BYTES}"
        raise TooLarge(path, reason)


def node_of(answer: Any, _: int) -> Node:
    data, stat = answer
    return Node(data or b"", stat.version, stat.czxid, stat.ctime, stat.ephemeralOwner, stat.mzxid)


def or_error(path: str, creates: bool, read: Callable[[Any, int], T], answer: object, zxid: int) -> T:
    """Decodes the answer with `read`. Raises a TreeError if it is an error."""
    if isinstance(answer, Exception):
        raise error_of(path, creates, answer)
    return read(answer, zxid)


def error_of(path: str, creates: bool, error: Exception) -> TreeError:
    kind, reason = ERRORS.get(type(error), (TreeError, f"ZooKeeper rejected the call: {error!r}"))
    if creates and isinstance(error, PARENT_ERRORS):
        return kind(parent_of(path), f"{reason}, so {path} cannot be created")
    return kind(path, reason)
