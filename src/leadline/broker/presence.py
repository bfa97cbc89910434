"""That a broker is there: registered in the tree as long as its session lives, and handed over before it leaves.

A session that expired took the registration with it: others lead by now what this broker led. It registers again as
soon as it has a new session, with a new epoch, and the controller tells it what it is from then on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from leadline.config import BrokerConfig
from leadline.coordination.membership import register, remember_sessions, remembered_sessions
from leadline.coordination.registration import Registration
from leadline.coordination.tree import NodeExists, SessionState, Tree, TreeError, Watch
from leadline.model import BrokerId
from leadline.ports import Files
from leadline.replication.channel import PeerLost
from leadline.wire.messages import ControlledShutdownRequest, ControlledShutdownResponse

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
SHUTDOWN_VERSION = 3

Registered = Callable[[int], None]  # told the broker's new epoch


class Presence:
    """`await begin()`, and in the end `stop()`. Its sessions are remembered in a log directory, which is locked."""

    def __init__(
        self, tree: Tree, me: BrokerId, registration: Registration, files: Files, directory: str, told: Registered
    ) -> None:
        self._tree, self._me, self._registration, self._told = tree, me, registration, told
        self._files, self._directory = files, directory
        self._registered_in = 0  # the session
        self._watch: Watch | None = None
        self._again: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """NodeExists if another broker has this id."""
        await self._register()
        self._watch = self._tree.watch_session(self._session)

    async def _register(self) -> None:
        session, files, directory = self._tree.session, self._files, self._directory
        before = await asyncio.to_thread(remembered_sessions, files, directory)
        await asyncio.to_thread(remember_sessions, files, directory, {*before, session})
        epoch = await register(self._tree, self._me, self._registration, before)
        await asyncio.to_thread(remember_sessions, files, directory, [session])
        self._registered_in = session
        log.info("broker %d is registered, with epoch %d", self._me, epoch)
        self._told(epoch)

    def _session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            log.warning("the session is over: broker %d counts as gone until it has another", self._me)
        elif state is SessionState.CONNECTED and (self._again is None or self._again.done()):
            self._again = asyncio.create_task(self._register_again(), name="registering again")

    async def _register_again(self) -> None:
        while self._tree.session != self._registered_in:
            try:
                await self._register()
            except NodeExists as error:  # of the session before, for a moment; or of another broker, for ever
                log.error("broker %d cannot register: %s", self._me, error)
            except (TreeError, OSError) as error:
                log.warning("broker %d could not register, and tries again: %s", self._me, error)
            else:
                continue
            await asyncio.sleep(RETRY_SECONDS)

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._again is not None:
            self._again.cancel()
            await asyncio.gather(self._again, return_exceptions=True)


Ask = Callable[[ControlledShutdownRequest, int], Awaitable[ControlledShutdownResponse]]


async def hand_over(me: BrokerId, epoch: int, config: BrokerConfig, ask: Ask) -> bool:
    """Let the controller give to others what this broker leads, before it stops. False: it could not be done."""
    request = ControlledShutdownRequest(broker_id=me, broker_epoch=epoch)
    for attempt in range(config.controlled_shutdown_max_retries):
        if attempt:
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
        try:
            answer = await ask(request, SHUTDOWN_VERSION)
        except PeerLost as error:
            log.warning("the controller cannot be asked for others to lead instead of broker %d: %s", me, error)
            continue
        left = [f"{each.topic_name}-{each.partition_index}" for each in answer.remaining_partitions]
        if not answer.error_code and not left:
            return True
        log.warning("broker %d still leads %s (error %d)", me, left, answer.error_code)
    return False
