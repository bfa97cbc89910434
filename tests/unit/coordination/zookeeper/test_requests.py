"""The tree's operations as requests of kazoo, and its answers and errors as ours, without a ZooKeeper."""

from types import SimpleNamespace

import pytest
from kazoo import exceptions
from kazoo.security import OPEN_ACL_UNSAFE

from leadline.coordination.tree import (
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
    SetData,
    TooLarge,
    TreeError,
)
from leadline.coordination.zookeeper.requests import (
    MAX_REQUEST_BYTES,
    Chroot,
    check_size,
    error_of,
    node_of,
    or_error,
)

KAFKA = Chroot("/kafka")


@pytest.mark.parametrize(("path", "absolute"), [("/", "/kafka"), ("/a", "/kafka/a"), ("/kafka/a", "/kafka/kafka/a")])
def test_paths_are_absolute_for_zookeeper_and_relative_for_us(path: str, absolute: str) -> None:
    assert KAFKA.absolute(path) == absolute
    assert KAFKA.relative(absolute) == path
    assert (Chroot("").absolute(path), Chroot("").relative(path)) == (path, path)


@pytest.mark.parametrize(
    ("operation", "request_fields"),
    [
        (Create("/a", b"1"), ("/kafka/a", b"1", OPEN_ACL_UNSAFE, 0)),
        (Create("/a", b"1", ephemeral=True), ("/kafka/a", b"1", OPEN_ACL_UNSAFE, 1)),
        (Create("/a/n", b"1", sequential=True), ("/kafka/a/n", b"1", OPEN_ACL_UNSAFE, 2)),
        (Create("/", b"1", ephemeral=True, sequential=True), ("/kafka/", b"1", OPEN_ACL_UNSAFE, 3)),
        (SetData("/a", b"1", 4), ("/kafka/a", b"1", 4)),
        (Delete("/a"), ("/kafka/a", -1)),
        (Check("/a", 2), ("/kafka/a", 2)),
    ],
)
def test_an_operation_is_a_request_of_kazoo(operation: Operation, request_fields: tuple[object, ...]) -> None:
    assert tuple(KAFKA.write(operation)) == request_fields


def test_an_answer_is_a_node() -> None:
    stat = SimpleNamespace(version=3, czxid=7, ctime=9, ephemeralOwner=0x1F, mzxid=11)
    assert node_of((b"data", stat), 100) == Node(b"data", 3, 7, 9, 0x1F, 11)
    assert node_of((None, stat), 100).data == b"", "ZooKeeper has nodes whose data is null"


OPERATIONS: list[Operation] = [Check("/a"), Create("/b"), SetData("/c", b""), Delete("/d")]


def test_the_results_of_a_multi_are_outcomes_with_the_id_of_the_transaction() -> None:
    results = [True, "/kafka/b", SimpleNamespace(version=6), True]
    assert KAFKA.outcomes(OPERATIONS, results, 77) == [None, Created("/b", 77), 6, None]


def test_a_multi_raises_the_error_of_the_operation_that_failed_and_not_of_those_rolled_back() -> None:
    rolled_back, inconsistent = exceptions.RolledBackError(), exceptions.RuntimeInconsistency()
    with pytest.raises(BadVersion, match=r"^/c: "):
        KAFKA.outcomes(OPERATIONS, [rolled_back, rolled_back, exceptions.BadVersionError(), inconsistent], 77)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.NoNodeError(), NoNode),
        (exceptions.NodeExistsError(), NodeExists),
        (exceptions.BadVersionError(), BadVersion),
        (exceptions.NotEmptyError(), NotEmpty),
        (exceptions.NoChildrenForEphemeralsError(), NoChildrenForEphemerals),
    ],
)
def test_an_error_of_zookeeper_is_ours_and_names_the_path(error: Exception, kind: type[TreeError]) -> None:
    ours = error_of("/a/b", False, error)
    assert (type(ours), ours.path) == (kind, "/a/b")


@pytest.mark.parametrize("error", [exceptions.NoNodeError(), exceptions.NoChildrenForEphemeralsError()])
def test_a_create_fails_because_of_its_parent(error: Exception) -> None:
    ours = error_of("/a/b", True, error)
    assert ours.path == "/a"
    assert "so /a/b cannot be created" in str(ours)


def test_an_unexpected_error_of_zookeeper_is_shown() -> None:
    with pytest.raises(TreeError, match=r"^/a: ZooKeeper rejected the call: AuthFailedError"):
        or_error("/a", False, lambda answer, zxid: answer, exceptions.AuthFailedError(), 1)
    assert or_error("/a", False, lambda answer, zxid: (answer, zxid), "fine", 1) == ("fine", 1)


def test_a_request_beyond_the_limit_of_zookeeper_is_not_sent() -> None:
    frame = len(KAFKA.write(SetData("/a", b"x")).serialize()) - 1 + 8
    check_size("/a", KAFKA.write(SetData("/a", bytes(MAX_REQUEST_BYTES - frame))))
    with pytest.raises(TooLarge, match="/a: the request has 1048576 bytes"):
        check_size("/a", KAFKA.write(SetData("/a", bytes(MAX_REQUEST_BYTES - frame + 1))))
