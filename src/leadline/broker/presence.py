"""A broker's registration in the tree, and the controlled shutdown before it leaves.

The registration ends with the session: other brokers then lead its partitions. It registers again as soon as it
has a new session, with a new epoch, and the controller then sends it LeaderAndIsr. A broker that changes its listeners
writes to its registration, which keeps its epoch.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from leadline.cluster.broker_client import PeerLost
from leadline.config.broker import BrokerConfig
from leadline.coordination.membership import register, remember_sessions, remembered_sessions
from leadline.coordination.registration import Registration
from leadline.coordination.tree import NodeExists, SessionState, Tree, TreeError, TreeWatch
from leadline.errors import NotController
from leadline.model import BrokerId
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import end_now, kept_running
from leadline.runtime.ports import Files
from leadline.wire.messages import ControlledShutdownRequest, ControlledShutdownResponse

log = logging.getLogger(__name__)

MOST_NAMED = 10  # partitions in one line

RETRY_SECONDS = 1.0
NEXT_CONTROLLER_SECONDS = 0.1
SHUTDOWN_VERSION = 3

Registered = Callable[[int], None]  # called with the broker's new epoch
Ask = Callable[[ControlledShutdownRequest, int], Awaitable[ControlledShutdownResponse]]


class Presence:
    """`await begin()`, and in the end `stop()`. Its sessions are remembered in a log directory, which is locked."""

    def __init__(
        self, tree: Tree, me: BrokerId, registration: Registration, files: Files, directory: str, registered: Registered
    ) -> None:
        self._tree, self._me, self._registration, self._on_registered = tree, me, registration, registered
        self._files, self._directory = files, directory
        self._registered_in = 0  # the session
        self._written: Registration | None = None  # in that session
        self._watch: TreeWatch | None = None
        self._again: asyncio.Task[None] | None = None
        self._is_connected = True
        self._is_expired = False
        self._handing_over: asyncio.Timeout | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the broker is registered. Without a connection it still is, until its session expires."""
        return not self._is_expired and self._tree.session == self._registered_in

    async def begin(self) -> None:
        """NodeExists if another broker has this id."""
        while self._written is not self._registration:
            await self._register()
        self._watch = self._tree.watch_session(self._session)

    async def _register(self) -> None:
        session, files, directory = self._tree.session, self._files, self._directory
        before = await asyncio.to_thread(remembered_sessions, files, directory)
        await asyncio.to_thread(remember_sessions, files, directory, {*before, session})
        registration = self._registration
        epoch = await register(self._tree, self._me, registration, before)
        await asyncio.to_thread(remember_sessions, files, directory, [session])
        self._registered_in, self._written = session, registration
        log.info("broker %d is registered, with epoch %d", self._me, epoch)
        self._on_registered(epoch)

    def _session(self, state: SessionState) -> None:
        self._is_connected, self._is_expired = state is SessionState.CONNECTED, state is SessionState.EXPIRED
        if not self._is_connected:
            self._hurry()
        if state is SessionState.EXPIRED:
            log.warning("the session expired: broker %d counts as gone until it has a new one", self._me)
        elif state is SessionState.CONNECTED:
            self._begin_again()

    def update(self, registration: Registration) -> None:
        """Other endpoints: they are written soon."""
        self._registration = registration
        self._begin_again()

    def _begin_again(self) -> None:
        if self._again is None or self._again.done():
            self._again = asyncio.create_task(kept_running(self._register_again), name="registering again")

    async def _register_again(self) -> None:
        while self._tree.session != self._registered_in or self._written is not self._registration:
            try:
                await self._register()
            except NodeExists as error:  # of the session before, for a moment; or of another broker, for ever
                log.error("broker %d cannot register: %s", self._me, error)
            except (TreeError, OSError) as error:
                log.warning("broker %d could not register; retrying: %s", self._me, error)
            else:
                continue
            await asyncio.sleep(RETRY_SECONDS)

    async def hand_over(self, epoch: int, config: BrokerConfig, ask: Ask) -> bool:
        """Have the controller move leadership to other brokers, before this one stops. False: it could not be done.

        Without ZooKeeper no controller can decide anything, so there is no wait.
        """
        request = ControlledShutdownRequest(broker_id=self._me, broker_epoch=epoch)
        backoff_s = config.controlled_shutdown_retry_backoff_ms / 1000
        try:
            async with asyncio.timeout(config.controlled_shutdown_max_retries * backoff_s) as self._handing_over:
                if not self._is_connected:
                    self._hurry()
                while not await self._is_handed_over(request, ask):  # noqa: ASYNC110  nothing announces it
                    await asyncio.sleep(backoff_s)
        except TimeoutError:
            log.warning("broker %d stops while it still leads partitions that others could lead", self._me)
            return False
        finally:
            self._handing_over = None
        return True

    def _hurry(self) -> None:
        """No controller can elect other leaders."""
        if self._handing_over is not None:
            end_now(self._handing_over)
            self._handing_over = None

    async def _is_handed_over(self, request: ControlledShutdownRequest, ask: Ask) -> bool:
        """Repeats the request while there is no controller: another one is elected soon."""
        while True:
            try:
                answer = await ask(request, SHUTDOWN_VERSION)
            except PeerLost as error:
                log.info("broker %d reaches no controller for its controlled shutdown: %s", self._me, error)
            else:
                if answer.error_code != NotController.code:
                    break
            await asyncio.sleep(NEXT_CONTROLLER_SECONDS)
        left = [f"{partition.topic_name}-{partition.partition_index}" for partition in answer.remaining_partitions]
        if answer.error_code or left:
            names = ", ".join(left[:MOST_NAMED]) + (", ..." if len(left) > MOST_NAMED else "")
            log.warning(
                "broker %d still leads (error %d, partitions: %d): %s", self._me, answer.error_code, len(left), names
            )
        return not answer.error_code and not left

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._again is not None:
            self._again.cancel()
            await all_ended(self._again)
