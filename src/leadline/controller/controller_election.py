"""The election of the controller.

The broker that creates /controller is the controller until its session ends. /controller_epoch counts the controllers.
Every write of a controller is conditional on the version of /controller_epoch that its own election left, so a deposed
controller cannot write.

A broker waits before it stands for election, for each broker that is silent to it: the one that hears most is elected.
"""

import asyncio
import logging
from contextlib import suppress

from leadline.controller.silence_monitor import SilenceMonitor
from leadline.coordination import znodes
from leadline.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    SetData,
    Tree,
    TreeError,
)
from leadline.model import BrokerId
from leadline.runtime.ports import Time

log = logging.getLogger(__name__)

DELAY_S = 0.5  # before an election, for each silent broker
NOT_ELECTED = -1


class ControllerElection:
    """One broker's part in the elections."""

    def __init__(self, tree: Tree, me: BrokerId, clock: Time, monitor: SilenceMonitor) -> None:
        self.tree, self.me, self.monitor = tree, me, monitor
        self._clock = clock
        self.epoch_version = NOT_ELECTED  # of /controller_epoch, as this broker's last election left it

    async def stand(self) -> int | None:
        """The controller epoch, if this broker is elected. None if there is another controller."""
        if await self.tree.exists(znodes.CONTROLLER):
            return None
        await asyncio.sleep(DELAY_S * len(self.monitor.silent))
        node = await self._epoch_node()
        epoch = znodes.decode_controller_epoch(node.data) + 1
        controller = znodes.encode_controller(znodes.ControllerNode(self.me, self._clock.now_ms()))
        try:
            _, version = await self.tree.multi(
                [
                    Create(znodes.CONTROLLER, controller, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), node.version),
                ]
            )
        except (NodeExists, BadVersion):
            return None  # another broker was elected; the watch on /controller reports its end
        assert isinstance(version, int)
        self.epoch_version = version
        return epoch

    async def _epoch_node(self) -> Node:
        node = await self.tree.get(znodes.CONTROLLER_EPOCH)
        if node is None:
            with suppress(NodeExists):
                await self.tree.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            node = await self.tree.get(znodes.CONTROLLER_EPOCH)
            assert node is not None
        return node

    async def own_node(self) -> Node | None:
        """/controller, if this broker created it in this session."""
        node = await self.tree.get(znodes.CONTROLLER)
        if node is None or node.owner != self.tree.session:
            return None
        return node if znodes.decode_controller(node.data).broker == self.me else None

    async def withdraw(self, node: Node) -> None:
        """Deletes /controller of an election whose success this broker did not learn of, or did not act on."""
        with suppress(TreeError):
            await self.tree.delete(znodes.CONTROLLER, node.version)

    async def resign(self) -> None:
        """Deletes /controller, unless another broker was elected since."""
        with suppress(TreeError):
            await self.tree.multi([Check(znodes.CONTROLLER_EPOCH, self.epoch_version), Delete(znodes.CONTROLLER)])


async def resign_on_behalf(tree: Tree, broker: BrokerId) -> None:
    """Deletes /controller if it names a broker that has failed, so that no election waits until its session expires.

    If that broker still runs, it is deposed: every write of a controller is conditional on /controller_epoch. So is
    this one: several brokers may resign on its behalf, and all but the first would depose the successor.
    """
    with suppress(TreeError):
        epoch, node = await tree.get(znodes.CONTROLLER_EPOCH), await tree.get(znodes.CONTROLLER)
        if epoch is None or node is None or znodes.decode_controller(node.data).broker != broker:
            return
        log.warning("the controller, broker %d, has failed: this broker resigns on its behalf", broker)
        await tree.multi([Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(znodes.CONTROLLER)])
