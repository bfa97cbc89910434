"""The controller's events from the tree: each reads a node that has changed, and hands the result to the decisions.

A watch reports only that a node has changed. The path of the node names the event; the event reads the current state.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from leadline.controller import tree_reader
from leadline.controller.decisions import Decisions
from leadline.coordination import znodes
from leadline.coordination.tree import Tree
from leadline.runtime.steps import Steps, one_step

TreeEvent = Callable[[Tree, Decisions], Awaitable[Steps[None]]]  # reads the node, and returns the steps of the decision


async def _brokers_changed(tree: Tree, decisions: Decisions) -> Steps[None]:
    return decisions.brokers(await tree_reader.brokers(tree))


async def _deletions_changed(tree: Tree, decisions: Decisions) -> Steps[None]:
    names = await tree.children(znodes.DELETE_TOPICS) or []
    return one_step(lambda: decisions.deletions.requested(names))


async def _reassignment_requested(tree: Tree, decisions: Decisions) -> Steps[None]:
    requested = await tree_reader.reassignment(tree)
    if requested == decisions.state.requested_reassignment:
        return one_step(lambda: None)
    return decisions.reassignments.requested_by_node(requested)


async def _election_requested(tree: Tree, decisions: Decisions) -> Steps[None]:
    return decisions.elect_requested(await tree_reader.elections(tree))


async def _isr_changed(tree: Tree, decisions: Decisions) -> Steps[None]:
    notifications = await tree_reader.contents(tree, znodes.ISR_CHANGES)
    partitions = [tp for path, data in notifications.items() for tp in znodes.decode_partitions(path, data)]
    read = await tree_reader.gather(partial(tree_reader.state, tree), partitions)
    states = {tp: state for tp, state in zip(partitions, read, strict=True) if state is not None}

    def decide() -> Steps[None]:
        decisions.isr_changed(states)
        decisions.transitions.remove(*notifications)
        yield

    return decide()


async def _log_dirs_failed(tree: Tree, decisions: Decisions) -> Steps[None]:
    notifications = await tree_reader.contents(tree, znodes.LOG_DIR_EVENTS)
    brokers = {znodes.decode_log_dir_event(path, data) for path, data in notifications.items()}

    def decide() -> Steps[None]:
        yield from decisions.log_dir_failed(sorted(brokers))
        decisions.transitions.remove(*notifications)

    return decide()


CHILDREN_EVENTS: dict[str, TreeEvent] = {
    znodes.BROKER_IDS: _brokers_changed,
    znodes.DELETE_TOPICS: _deletions_changed,
    znodes.ISR_CHANGES: _isr_changed,
    znodes.LOG_DIR_EVENTS: _log_dirs_failed,
}
NODE_EVENTS: dict[str, TreeEvent] = {
    znodes.REASSIGN_PARTITIONS: _reassignment_requested,
    znodes.PREFERRED_REPLICA_ELECTION: _election_requested,
}
TREE_EVENTS = CHILDREN_EVENTS | NODE_EVENTS
