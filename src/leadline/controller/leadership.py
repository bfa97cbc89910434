"""Whether this broker still leads its partitions while the controller cannot reach it.

A broker that has lost ZooKeeper, or most of the others, does not learn of elections. Its clients would wait until they
time out, or write records that are truncated later.

    isolated            More than half of the brokers are silent: they may have elected other leaders. Clients get
                        LeaderNotAvailable until another broker says who leads. A controller that is connected to
                        ZooKeeper is not isolated: no other broker can have elected leaders.
    without ZooKeeper   The session may have expired, so this broker asks others who leads. It stops leading a partition
                        that another broker leads in a later epoch, and keeps leading the others.

A leader that hears most of the brokers removes a silent follower from the ISR at once, if enough replicas stay in sync:
it does not wait for the controller, which may still hear that follower.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from leadline.cluster.broker_client import PeerLost
from leadline.cluster.metadata_cache import LeaderAndReplicas, MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.cluster.peers import Peers
from leadline.controller.controller import Controller
from leadline.coordination.tree import SessionState, Tree
from leadline.model import NO_LEADER, BrokerId, TopicPartition
from leadline.replication.replicas import Replicas
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import kept_running
from leadline.wire.messages import MetadataRequest, MetadataResponse

log = logging.getLogger(__name__)

CHECK_S = 1.0
ASK_S = 3.0  # for a response: the other broker may be waiting for an election itself
BROKERS_AT_ONCE = 2  # are asked, in turn: in a large cluster all brokers may have lost ZooKeeper at once
METADATA_VERSION = 9


class Leadership:
    """Checks this broker's leadership from its creation until `stop()`."""

    def __init__(
        self,
        tree: Tree,
        metadata: MetadataCache,
        controller: Controller,
        peers: Peers,
        peer_monitor: PeerMonitor,
        replicas: Replicas,
    ) -> None:
        self._metadata, self._controller, self._peers = metadata, controller, peers
        self._monitor, self._replicas = peer_monitor, replicas
        self._is_connected = True
        self._changed = asyncio.Event()
        self._next_broker = 0
        self._session_watch = tree.watch_session(self._session)
        peer_monitor.on_silence.append(self._silence)
        self._task = asyncio.create_task(kept_running(self._run), name="leadership")

    async def stop(self) -> None:
        self._session_watch.cancel()
        self._monitor.on_silence.remove(self._silence)
        self._task.cancel()
        await all_ended(self._task)

    def _session(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED
        self._changed.set()

    def _silence(self, broker: BrokerId) -> None:
        is_silent = broker in self._monitor.silent
        self._peers.silence_changed(broker, is_silent=is_silent)
        if is_silent:
            self._replicas.break_off(broker)
        self._changed.set()

    async def _run(self) -> None:
        while True:
            is_quiet = self._is_connected and not self._monitor.silent and not self._metadata.is_isolated
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_quiet else CHECK_S):
                    await self._changed.wait()
            self._changed.clear()
            await self._check()

    async def _check(self) -> None:
        self._controller.silence_changed()
        is_sure = self._controller.is_active and self._is_connected
        if self._monitor.is_isolated and not is_sure:
            self._isolate()
        elif self._metadata.is_isolated:
            if await self._ask():
                self._metadata.is_isolated = False
                self._replicas.unfence()
        elif not self._is_connected:
            await self._ask()
        if self._monitor.hears_most:
            self._replicas.shrink_isrs(self._monitor.silent)

    def _isolate(self) -> None:
        if not self._metadata.is_isolated:
            log.warning("broker %d is cut off from most others: they may elect leaders", self._metadata.me.id)
        self._metadata.is_isolated = True
        self._replicas.fence()

    # Asking other brokers who leads

    async def _ask(self) -> bool:
        """Returns True if a broker has answered, or if there is nothing to ask or no broker to ask."""
        led = ((tp, hosted.leader_state) for tp, hosted in self._replicas.hosted.items())
        names = {tp.topic for tp, leader in led if leader is not None and leader.followers}
        brokers = self._brokers_to_ask()
        if not names or not brokers:
            return True
        return any(await asyncio.gather(*(self._ask_broker(broker, names) for broker in brokers)))

    def _brokers_to_ask(self) -> list[BrokerId]:
        brokers = sorted(self._metadata.brokers.keys() - self._monitor.unheard - {self._metadata.me.id})
        start, self._next_broker = self._next_broker, self._next_broker + BROKERS_AT_ONCE
        return [brokers[(start + n) % len(brokers)] for n in range(min(BROKERS_AT_ONCE, len(brokers)))]

    async def _ask_broker(self, broker: BrokerId, names: Iterable[str]) -> bool:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        try:
            response = await self._peers.ask(broker, request, MetadataResponse, METADATA_VERSION, ASK_S)
        except PeerLost:
            return False
        leaders = _leaders(response)
        for tp in self._metadata.learn(leaders):
            self._replicas.superseded(tp, leaders[tp].leader, leaders[tp].leader_epoch)
        return True


def _leaders(response: MetadataResponse) -> dict[TopicPartition, LeaderAndReplicas]:
    """The leaders of the partitions that have one."""
    return {
        TopicPartition(topic.name or "", partition.partition_index): LeaderAndReplicas(
            partition.leader_id, partition.leader_epoch, tuple(partition.isr_nodes)
        )
        for topic in response.topics
        for partition in topic.partitions
        if partition.leader_id != NO_LEADER
    }
