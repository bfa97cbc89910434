"""ACLs created and deleted through two brokers at once, some of which lose notifications, against plain sets."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.coordination.tree import SessionState, Tree
from leadline.runtime.ports import SystemTime
from leadline.security import acl_nodes
from leadline.security.acl_store import AclStore
from leadline.security.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from tests.support.chance import SeededChance
from tests.support.trees import run_on_tree
from tests.support.waiting import eventually

kinds = st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
patterns = st.builds(ResourcePattern, st.just(ResourceType.TOPIC), st.sampled_from(["a", "ab", "*"]), kinds)
entries = st.builds(
    AccessControlEntry,
    st.sampled_from(["User:a", "User:*"]),
    st.just("*"),
    st.sampled_from([AclOperation.READ, AclOperation.WRITE]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
bindings = st.builds(AclBinding, patterns, entries)
filters = st.builds(
    AclBindingFilter,
    st.builds(
        ResourcePatternFilter,
        st.sampled_from([ResourceType.ANY, ResourceType.TOPIC]),
        st.none() | st.sampled_from(["a", "ab", "*"]),
        st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    ),
    st.builds(
        AccessControlEntryFilter,
        st.none() | st.just("User:a"),
        st.none(),
        st.sampled_from([AclOperation.ANY, AclOperation.READ]),
        st.sampled_from([AclPermission.ANY, AclPermission.DENY]),
    ),
)
steps = st.lists(
    st.tuples(
        st.integers(0, 1), st.lists(bindings, min_size=1, max_size=5) | st.lists(filters, min_size=1, max_size=3)
    ),
    max_size=8,
)


async def catch_up(store: AclStore, expected: set[AclBinding]) -> None:
    """As after a time without connection."""
    store._notifications[0]._session(SessionState.CONNECTED)
    await eventually(lambda: set(store.authorizer.bindings(AclBindingFilter())) == expected)


async def in_tree(tree: Tree) -> set[AclBinding]:
    stored = set[AclBinding]()
    for kind in (PatternType.LITERAL, PatternType.PREFIXED):
        for name in await tree.children(acl_nodes.type_path(ResourceType.TOPIC, kind)) or []:
            pattern = ResourcePattern(ResourceType.TOPIC, name, kind)
            node = await tree.get(acl_nodes.acl_path(pattern))
            assert node is not None
            acls = acl_nodes.decode_acls(acl_nodes.acl_path(pattern), node.data)
            assert acls, "a node without ACLs is deleted"
            stored |= {AclBinding(pattern, entry) for entry in acls}
    return stored


async def run(tree: Tree, history: list[tuple[int, list[AclBinding] | list[AclBindingFilter]]]) -> None:
    stores = [AclStore(tree, Authorizer(), SystemTime(), SeededChance()) for _ in range(2)]
    for store in stores:
        await store.start()
    model = set[AclBinding]()
    for number, step in history:
        store = stores[number]
        await catch_up(store, model)
        creations = [item for item in step if isinstance(item, AclBinding)]
        deletions = [item for item in step if isinstance(item, AclBindingFilter)]
        if creations:
            assert await store.create(creations) == [None] * len(creations)
            model |= set(creations)
        else:
            results = await store.delete(deletions)
            reported = [binding for result in results for binding, error in result if error is None]
            matched = {binding for binding in model if any(filter.matches(binding) for filter in deletions)}
            assert sorted(reported) == sorted(matched)
            model -= matched
        assert set(store.authorizer.bindings(AclBindingFilter())) == model  # at once, where it was changed
        assert await in_tree(tree) == model
    for store in stores:
        await catch_up(store, model)
        await store.stop()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_each_broker_has_in_force_what_was_created_and_not_deleted(
    history: list[tuple[int, list[AclBinding] | list[AclBindingFilter]]],
) -> None:
    run_on_tree(lambda tree: run(tree, history))
