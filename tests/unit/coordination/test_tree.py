"""Each test shows one promise of `tree.Tree`, in both of its homes."""

import asyncio

import pytest

from leadline.coordination.tree import (
    BadVersion,
    Change,
    Check,
    Create,
    Created,
    Delete,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    SetData,
    Tree,
    TreeError,
)

from .conftest import Home, Run


def test_a_node_has_what_it_was_given(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        path, czxid = await tree.create("/a", b"one")
        node = await tree.get("/a")
        assert path == "/a"
        assert node is not None
        assert (node.data, node.version, node.czxid, node.owner) == (b"one", 0, czxid, 0)
        assert await tree.set("/a", b"two", expected_version=0) == 1
        assert await tree.exists("/a")
        assert await tree.children("/") == ["a"]
        await tree.delete("/a", expected_version=1)
        assert await tree.get("/a") is None
        assert await tree.children("/a") is None
        assert not await tree.exists("/a")

    run(scenario())


@pytest.mark.parametrize(
    ("operation", "error", "path"),
    [
        (Create("/there"), NodeExists, "/there"),
        (Create("/"), NodeExists, "/"),
        (Create("/no/child"), NoNode, "/no"),
        (Create("/brief/child"), NoChildrenForEphemerals, "/brief"),
        (SetData("/no", b""), NoNode, "/no"),
        (SetData("/there", b"", 7), BadVersion, "/there"),
        (Delete("/no"), NoNode, "/no"),
        (Delete("/there", 7), BadVersion, "/there"),
        (Delete("/full"), NotEmpty, "/full"),
        (Check("/no"), NoNode, "/no"),
        (Check("/there", 7), BadVersion, "/there"),
    ],
)
def test_what_cannot_be_done_names_the_path_and_undoes_the_rest(
    run: Run, tree: Tree, operation: Operation, error: type[TreeError], path: str
) -> None:
    async def scenario() -> None:
        await tree.multi([Create("/there"), Create("/brief", ephemeral=True), Create("/full"), Create("/full/child")])
        with pytest.raises(error) as refused:
            await tree.multi([Create("/before"), SetData("/there", b"new"), operation])
        assert refused.value.path == path
        node = await tree.get("/there")
        assert node is not None
        assert (node.data, node.version) == (b"", 0)
        assert await tree.children("/") == ["brief", "full", "there"]

    run(scenario())


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\0", "/\ud800"])
def test_what_is_no_path_is_a_bug_of_the_caller(run: Run, tree: Tree, path: str) -> None:
    for call in (tree.get, tree.exists, tree.children, tree.create, tree.delete):
        with pytest.raises(ValueError, match="not the path of a node"):
            run(call(path))


def test_the_root_cannot_be_deleted(run: Run, tree: Tree) -> None:
    with pytest.raises(ValueError, match="root"):
        run(tree.delete("/"))
    assert run(tree.set("/", b"data")) == 1


def test_a_multi_answers_for_each_operation_and_is_one_transaction(run: Run, tree: Tree) -> None:
    operations: list[Operation] = [
        Create("/a"),
        Create("/a/b", b"1"),
        SetData("/a/b", b"2"),
        Check("/a/b", 1),
        Delete("/a/b"),
    ]
    a, b, version, *rest = run(tree.multi(operations))
    assert isinstance(a, Created)
    assert isinstance(b, Created)
    assert (a.path, b.path, version, rest) == ("/a", "/a/b", 1, [None, None])
    assert a.czxid == b.czxid
    assert run(tree.multi([])) == []


def test_sequential_nodes_are_numbered_by_the_births_below_their_parent(run: Run, tree: Tree) -> None:
    async def scenario() -> list[str]:
        await tree.create("/changes")
        first = await tree.create("/changes/change_", sequential=True)
        await tree.delete(first.path)
        await tree.create("/changes/other")
        second = await tree.create("/changes/change_", sequential=True)
        third = await tree.create("/changes/", sequential=True)
        top = await tree.create("/", sequential=True)
        return [first.path, second.path, third.path, top.path]

    assert run(scenario()) == [
        "/changes/change_0000000000",
        "/changes/change_0000000002",
        "/changes/0000000003",
        "/0000000001",
    ]


def test_parents_are_created_on_request(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        await tree.create("/a/b/c", b"data", make_parents=True)
        await tree.create("/a/b/d", make_parents=True)
        assert await tree.children("/a/b") == ["c", "d"]
        with pytest.raises(NodeExists):
            await tree.create("/a/b/c", make_parents=True)

    run(scenario())


def test_the_tree_outlives_the_process_and_ephemerals_do_not(run: Run, home: Home) -> None:
    async def scenario() -> None:
        tree = await home.open()
        stays = await tree.create("/stays", b"data")
        await tree.set("/stays", b"other")
        goes = await tree.create("/goes", ephemeral=True)
        node = await tree.get("/goes")
        assert node is not None
        assert node.owner == tree.session != 0
        await tree.close()
        again = await home.open()
        assert again.session != tree.session
        kept = await again.get("/stays")
        assert kept is not None
        assert (kept.data, kept.version, kept.czxid) == (b"other", 1, stays.czxid)
        assert await again.children("/") == ["stays"]
        assert (await again.create("/goes")).czxid > goes.czxid
        await again.close()

    run(scenario())


def test_watches_are_called_in_order_and_before_the_answer(run: Run, tree: Tree) -> None:
    events: list[object] = []

    async def scenario() -> None:
        await tree.watch("/a", events.append)
        await tree.watch_children("/a", events.append)
        root = await tree.watch_children("/", events.append)
        for operation in (Create("/a"), Create("/a/b"), SetData("/a", b"1"), Delete("/a/b"), SetData("/a", b"2")):
            await tree.multi([operation])
            events.append(type(operation).__name__)
        root.cancel()
        root.cancel()
        await tree.multi([Delete("/a"), Create("/c")])

    run(scenario())
    created, changed, deleted = (Event(change, "/a") for change in (Change.CREATED, Change.SET, Change.DELETED))
    children = Event(Change.CHILDREN, "/a")
    assert events == [
        *(created, created, Event(Change.CHILDREN, "/"), "Create"),
        *(children, "Create"),
        *(changed, "SetData"),
        *(children, "Delete"),
        *(changed, "SetData"),
        *(deleted, deleted),
    ]


def test_a_failed_operation_calls_no_watch(run: Run, tree: Tree) -> None:
    events: list[Event] = []

    async def scenario() -> None:
        await tree.watch("/a", events.append)
        with pytest.raises(NoNode):
            await tree.multi([Create("/a"), Delete("/b")])

    run(scenario())
    assert events == []


def test_a_cancelled_watch_hears_nothing_even_of_what_has_happened(run: Run, tree: Tree) -> None:
    events: list[str] = []

    async def scenario() -> None:
        def first(_: Event) -> None:
            events.append("first")
            second.cancel()

        await tree.watch("/a", first)
        second = await tree.watch("/a", lambda _: events.append("second"))
        await tree.create("/a")

    run(scenario())
    assert events == ["first"]


def test_a_failing_callback_does_not_stop_the_others(run: Run, tree: Tree) -> None:
    events: list[Event] = []
    errors: list[object] = []

    def fail(_: Event) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        await tree.watch("/a", fail)
        await tree.watch("/a", events.append)
        await tree.create("/a")

    run(scenario())
    assert events == [Event(Change.CREATED, "/a")]
    assert isinstance(errors[0], ZeroDivisionError)


def test_calls_at_once_are_carried_out_in_their_order(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        await tree.create("/n")
        writes = [tree.set("/n", b"%d" % number, expected_version=number) for number in range(2500)]
        versions, node, names = await asyncio.gather(asyncio.gather(*writes), tree.get("/n"), tree.children("/"))
        assert versions == list(range(1, 2501))
        assert node is not None
        assert (node.data, names) == (b"2499", ["n"])

    run(scenario())


def test_of_many_that_expect_the_same_version_one_wins(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        await tree.create("/controller_epoch")
        tries = (tree.set("/controller_epoch", b"%d" % number, expected_version=0) for number in range(20))
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert results[0] == 1
        assert all(isinstance(result, BadVersion) for result in results[1:])

    run(scenario())


def test_a_call_that_is_cancelled_leaves_the_others_alone(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        cancelled = asyncio.create_task(tree.create("/a"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await tree.create("/b")).path == "/b"
        assert cancelled.cancelled()

    run(scenario())


def test_after_close_the_session_is_over(run: Run, home: Home) -> None:
    async def scenario() -> None:
        tree = await home.open()
        pending = asyncio.create_task(tree.create("/a"))
        await asyncio.sleep(0)
        await tree.close()
        assert (await pending).path == "/a"
        with pytest.raises(SessionExpired, match="/a: the session is over: it was closed"):
            await tree.get("/a")
        await tree.close()

    run(scenario())
