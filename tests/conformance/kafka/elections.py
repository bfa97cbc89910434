"""The controller of a cluster, as its nodes in ZooKeeper name it, and elections of another one."""

from collections.abc import Callable

from kazoo.client import KazooClient

from leadline.coordination import znodes
from tests.support.waiting import until


def controller_of(tree: KazooClient) -> int | None:
    if tree.exists(znodes.CONTROLLER) is None:
        return None
    return znodes.decode_controller(tree.get(znodes.CONTROLLER)[0]).broker


def elect(tree: KazooClient, is_right: Callable[[int], bool]) -> int:
    """Let controllers resign until the right broker is elected."""

    def is_elected() -> bool:
        controller = controller_of(tree)
        if controller is not None and not is_right(controller):
            tree.delete(znodes.CONTROLLER)
        return controller is not None and is_right(controller)

    until(is_elected, "an election")
    controller = controller_of(tree)
    assert controller is not None
    return controller
