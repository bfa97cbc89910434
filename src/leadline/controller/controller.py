"""The controller: it is elected, decides about brokers and partitions, and resigns.

`controller_election` says how it is elected. An elected controller reads the whole tree, then follows its changes.
`decisions` decides; this shell carries the effects out: first it writes, then it sends requests to the brokers. If the
tree contradicts its memory, it resigns. The next controller, perhaps the same broker, reads everything again.

    one task, one queue: an event is decided, written and sent before the next one begins (`event_queue`)
    a watch only queues an event; the event reads what has changed (`tree_events`)
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from leadline.config.live_settings import LiveSettings
from leadline.controller import tree_reader
from leadline.controller.broker_channel import Connect
from leadline.controller.broker_channels import BrokerChannels
from leadline.controller.broker_responses import event_after
from leadline.controller.controller_election import ControllerElection
from leadline.controller.controller_watches import ControllerWatches
from leadline.controller.decisions import Decisions, PendingChanges
from leadline.controller.effects import Remove, Request, Write
from leadline.controller.event_queue import EventQueue
from leadline.controller.producer_ids import ProducerIdBlocks
from leadline.controller.state import ControllerState, RegisteredBroker
from leadline.controller.tree_events import TREE_EVENTS
from leadline.controller.tree_writer import write
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import NodeExists, SessionState, SetData, TreeError, TreeWatch
from leadline.errors import BrokerIdNotRegistered, NotController, StaleBrokerEpoch
from leadline.model import NO_ID, BrokerId, ProducerId, TopicId, new_id
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.ports import Chance
from leadline.runtime.steps import Steps, one_step
from leadline.runtime.turns import Turns
from leadline.wire.classes import Message

log = logging.getLogger(__name__)

FIRST_REBALANCE_S = 5.0
AFTER_FAILURE_S = 1.0
RESIGN_S = 5.0
SENT_AT_ONCE = 8  # requests in one turn: in the next one, their channels copy them to their connections
ELECT, REBALANCE, ALL_TOPICS = "elect", "rebalance", "all topics"  # events that no single node stands for

T = TypeVar("T")


class ElectionCounts(NamedTuple):
    """Elections of partitions that had a leader before."""

    all: int
    unclean: int  # the leader was not in sync


class Controller:
    """`await start()`: this broker takes part in elections. While `decisions` is set, it is the controller.

    `first_producer_id`: where producer ids begin if the tree has none yet.
    """

    def __init__(
        self,
        election: ControllerElection,
        settings: LiveSettings,
        connect: Connect,
        chance: Chance,
        first_producer_id: Callable[[], ProducerId] = lambda: 0,
    ) -> None:
        self.tree, self.me = election.tree, election.me
        self._election, self._settings, self._chance = election, settings, chance
        self.decisions: Decisions | None = None  # None: another broker is the controller, or none is
        self.on_decided: list[Callable[[], None]] = []  # called after decisions were written and sent
        self._turns = Turns()
        self._events = EventQueue(self._failed, self._turns)
        self._watches = ControllerWatches(self.tree, self._changed)
        self._channels = BrokerChannels(settings, connect, self)
        self._producer_ids = ProducerIdBlocks(self.tree, first_producer_id)
        self._elections_before = ElectionCounts(0, 0)  # when it was the controller earlier
        self._resignations = 0  # also counts the ends of sessions, so that an election under way notices them
        self._standing: list[TreeWatch] = []  # watches that stay, elected or not
        self._timers: list[asyncio.TimerHandle] = []
        self._suspended: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        return self.decisions is not None

    @property
    def elections(self) -> ElectionCounts:
        """The elections that this broker decided, whenever it was the controller."""
        before = self._elections_before
        if self.decisions is None:
            return before
        now = self.decisions.transitions
        return ElectionCounts(before.all + now.leader_elections, before.unclean + now.unclean_elections)

    @property
    def event_queue_size(self) -> int:
        return len(self._events)

    def queue_sizes(self) -> dict[BrokerId, int]:
        """Requests that wait to be sent, by broker."""
        return self._channels.queue_sizes()

    async def start(self) -> None:
        """Returns once there is a controller; if it is this broker, after it has made all pending decisions.

        Raises the error if the first attempt fails. Further attempts follow until the controller is stopped.
        """
        self._standing.append(self.tree.watch_session(self._session))
        self._standing.append(await self.tree.watch(znodes.CONTROLLER, lambda event: self._queue_election()))
        self._task = asyncio.create_task(self._events.run(), name="controller")
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def elect() -> None:
            try:
                await self._elect()
            except Exception as error:
                first.set_exception(error)
                raise
            first.set_result(None)

        self._events.put(elect, name=ELECT)
        await first

    async def stop(self) -> None:
        for watch in self._standing:
            watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await all_ended(self._task)
        can_resign = self.is_active and self._suspended is None  # suspended: the session expires by itself
        if self._suspended is not None:
            self._suspended.cancel()
        self._step_down()
        await self._channels.closed()
        if can_resign:
            with suppress(TimeoutError):
                async with asyncio.timeout(RESIGN_S):
                    await self._election.resign()

    async def do(self, event: Callable[[Decisions], T]) -> T:
        """Runs an event, and returns its result once the decisions are written. NotController."""
        return await self.do_in_steps(lambda decisions: one_step(lambda: event(decisions)))

    async def do_in_steps(self, event: Callable[[Decisions], Steps[T]]) -> T:
        """As `do`, for an event that may concern many partitions."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def refuse() -> None:
            if not result.done():
                result.set_exception(NotController(f"broker {self.me} is not the controller"))

        async def run() -> None:
            try:
                decided = await self._in_turns(event(self._elected))
            except Exception as error:  # noqa: BLE001  the caller gets it
                if not result.done():
                    result.set_exception(error)
            else:
                await self._carry_out()
                if not result.done():
                    result.set_result(decided)

        if not self.is_active:
            refuse()
        else:
            self._events.put(run, refuse)
        return await result

    def _decide(self, event: Callable[[Decisions], Steps[None]]) -> None:
        """As `do_in_steps`, but without waiting for the result."""

        async def run() -> None:
            await self._in_turns(event(self._elected))
            await self._carry_out()

        if self.is_active:
            self._events.put(run)

    async def _in_turns(self, steps: Steps[T]) -> T:
        """Runs steps of an event. NotController if this broker resigns meanwhile."""
        return await self._turns.run(steps, lambda: self._elected)

    @property
    def _elected(self) -> Decisions:
        """NotController if this broker has resigned since."""
        if self.decisions is None:
            raise NotController(f"broker {self.me} is not the controller")
        return self.decisions

    # Election and resignation

    def _queue_election(self) -> None:
        self._events.put_once(ELECT, self._controller_changed)

    async def _controller_changed(self) -> None:
        node = await self._election.own_node()
        if node is not None and not self.is_active:
            await self._election.withdraw(node)
        elif node is None and self.is_active:
            log.warning("broker %d is no longer the controller", self.me)
            self._step_down()
        await self._elect()

    async def _elect(self) -> None:
        if self.is_active or (epoch := await self._election.stand()) is None:
            return
        is_alone = not self._settings.broker.zookeeper_connect  # a single node is always the controller
        log.log(
            logging.DEBUG if is_alone else logging.INFO, "broker %d is the controller, with epoch %d", self.me, epoch
        )
        resignations = self._resignations
        await self._watches.watch_all()  # before the reads, so that no change is missed
        state, pending = await self._read(epoch)
        if resignations != self._resignations:
            self._step_down()
            raise NotController("the session ended while the controller read the tree")
        listener, config = self._settings.listeners.inter_broker.name, self._settings.broker
        self.decisions = Decisions(state, listener, delete_topic_enable=config.delete_topic_enable)
        self._channels.elected(state)
        await self._in_turns(self.decisions.start(pending))
        await self._carry_out()
        self.silence_changed()
        if config.auto_leader_rebalance_enable:
            self._rebalance_in(FIRST_REBALANCE_S)

    async def _read(self, epoch: int) -> tuple[ControllerState, PendingChanges]:
        for path in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):  # obsolete: everything is read now
            await self._write([Remove(child) for child in await tree_reader.contents(self.tree, path)])
        if not await self.tree.exists(znodes.FEATURE):
            with suppress(NodeExists):
                await self.tree.create(znodes.FEATURE, znodes.NO_FEATURES)
        state = ControllerState(self.me, epoch)
        await self._watch_brokers()
        state.brokers = {broker.id: broker for broker in await tree_reader.brokers(self.tree)}
        stored = await self._read_topics(await self.tree.children(znodes.TOPICS) or [])
        for topic in await tree_reader.with_states(self.tree, stored):
            state.put_topic(topic)
        pending = PendingChanges(
            await self.tree.children(znodes.DELETE_TOPICS) or [],
            await tree_reader.reassignment(self.tree),
            await tree_reader.elections(self.tree),
        )
        return state, pending

    def _step_down(self) -> None:
        """Stops being the controller at once: an event that is running gets NotController at its next decision."""
        self._elections_before = self.elections
        self.decisions = None
        self._resignations += 1
        self._watches.cancel()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._events.abandon_all_but(ELECT)
        self._channels.close()

    async def _failed(self, error: Exception) -> None:
        """An event failed: memory and tree may differ."""
        if isinstance(error, TreeError | MalformedNode):
            log.error("the controller resigns: %s", error)
        else:
            log.error("a bug: the controller resigns", exc_info=error)
        self._step_down()
        await self._election.resign()
        self._timers.append(asyncio.get_running_loop().call_later(AFTER_FAILURE_S, self._queue_election))

    def _session(self, state: SessionState) -> None:
        """Steps down after a session's time without a connection: another broker may have been elected."""
        if self._suspended is not None:
            self._suspended.cancel()
            self._suspended = None
        if state is SessionState.SUSPENDED:
            timeout_s = self._settings.broker.zookeeper_session_timeout_ms / 1000
            self._suspended = asyncio.get_running_loop().call_later(timeout_s, self._step_down)
        elif state is SessionState.EXPIRED:
            self._step_down()
        else:
            self._queue_election()
            if self.is_active:
                self._read_again()

    def _read_again(self) -> None:
        """Reads everything again: watches do not report changes from a time without a connection."""
        for path in (znodes.TOPICS, *TREE_EVENTS):
            self._changed(path)
        self._events.put_once(ALL_TOPICS, self._all_topics_changed)

    # Carrying decisions out

    async def _carry_out(self) -> None:
        """Writes, then sends. Repeats that if unclean elections are allowed, which are decided last."""
        while (effects := self._elected.take()) is not None:
            await self._write(effects.writes)
            self._channels.update(self._elected.state)
            for number, request in enumerate(effects.requests, 1):
                await (self._turns.pause() if number % SENT_AT_ONCE else self._turns.next())
                self._elected  # noqa: B018  raises if this broker has resigned
                self._channels.send(request)
                await self._turns.pause()
            if allowed := await self._allow_unclean(effects.stranded):
                self._elected.unclean_allowed(allowed)
        for notify in list(self.on_decided):
            notify()

    async def _write(self, writes: Iterable[Write]) -> None:
        await write(self.tree, self._election.epoch_version, writes)

    async def _allow_unclean(self, topics: Collection[str]) -> list[str]:
        """The topics whose settings allow an unclean election."""
        allowed = []
        for name in sorted(topics):
            path = znodes.config_path("topics", name)
            node = await self.tree.get(path)
            overrides = {} if node is None else znodes.decode_config(path, node.data)
            if self._settings.topics.with_values(overrides).unclean_leader_election_enable:
                allowed.append(name)
        return allowed

    async def answered_by(self, brokers: Iterable[BrokerId]) -> None:
        """Returns once these brokers have answered all requests so far, and their responses are processed."""
        await self._channels.answered_by(brokers)
        await self.do(lambda decisions: None)

    async def settled(self) -> None:
        """Returns once all brokers have answered all requests, and their responses cause no more of them."""
        while self.is_active:
            await self._channels.answered()
            await self.do(lambda decisions: None)  # runs after the events of their responses
            if self._channels.are_idle:
                return

    # Events from brokers and settings

    def answered(self, broker: RegisteredBroker, request: Request, response: Message) -> None:
        if (event := event_after(broker, request, response)) is not None:
            self._decide(event)

    def gone(self, broker: RegisteredBroker) -> None:
        self._decide(lambda decisions: decisions.broker_gone(broker.id, broker.epoch))

    def back(self, broker: RegisteredBroker) -> None:
        self._decide(lambda decisions: decisions.broker_back(broker.id, broker.epoch))

    def silence_changed(self) -> None:
        """Silent brokers count as gone, if this controller hears most of the registered brokers.

        A controller that hears fewer does nothing: the others resign on its behalf.
        """
        if self.decisions is not None and self._election.monitor.hears_most:
            self._channels.give_up_silent(self.decisions.state.brokers, self._election.monitor)

    def settings_changed(self, topic: str | None) -> None:
        """The settings of a topic, or of all brokers (None), changed: they may allow an unclean election now."""
        self._decide(lambda decisions: decisions.elect_stranded(None if topic is None else (topic,)))

    # Events from the tree

    def _changed(self, path: str) -> None:
        if path in TREE_EVENTS:
            self._events.put_once(path, partial(self._tree_changed, path))
        elif path == znodes.TOPICS:
            self._events.put_once(path, self._topics_changed)
        else:
            self._events.put_once(path, partial(self._topic_changed, path.removeprefix(f"{znodes.TOPICS}/")))

    async def _tree_changed(self, path: str) -> None:
        if path == znodes.BROKER_IDS:
            await self._watch_brokers()
        await self._in_turns(await TREE_EVENTS[path](self.tree, self._elected))
        await self._carry_out()

    async def _watch_brokers(self) -> None:
        """Before they are read: a broker that changes its listeners writes to its registration."""
        await self._watches.watch_brokers(await self.tree.children(znodes.BROKER_IDS) or [])

    async def _topics_changed(self) -> None:
        names = await self.tree.children(znodes.TOPICS) or []
        existing = self._elected.state.topics
        self._elected.topics(names, await self._read_topics([name for name in names if name not in existing]))
        self._watches.keep_topics(self._elected.state.topics)
        await self._carry_out()

    async def _topic_changed(self, name: str) -> None:
        node = await self.tree.get(znodes.topic_path(name))
        if node is not None:
            self._elected.partitions(name, znodes.decode_topic(name, node.data).partitions)
            await self._carry_out()

    async def _all_topics_changed(self) -> None:
        for name, topic in await tree_reader.topics(self.tree, list(self._elected.state.topics)):
            self._elected.partitions(name, topic.partitions)
        await self._carry_out()

    async def _read_topics(self, names: Collection[str]) -> list[tuple[str, znodes.TopicNode]]:
        """Watches and reads topics. A topic without an id gets one: Kafka before 2.8 wrote none."""
        await self._watches.watch_topics(names)
        topics = dict(await tree_reader.topics(self.tree, names))
        new = {
            name: topic._replace(id=new_id(self._chance.new_uuid)) for name, topic in topics.items() if topic.id is None
        }
        await self._write([SetData(znodes.topic_path(name), znodes.encode_topic(topic)) for name, topic in new.items()])
        return list((topics | new).items())

    # Preferred leaders

    def _rebalance_in(self, delay_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(delay_s, self._events.put_once, REBALANCE, self._rebalance)
        self._timers.append(timer)

    async def _rebalance(self) -> None:
        config = self._settings.broker
        if moved := await self._in_turns(self._elected.rebalance(config.leader_imbalance_per_broker_percentage)):
            log.info("moved leadership back to preferred leaders. Partitions: %d", len(moved))
        await self._carry_out()
        self._timers.clear()
        self._rebalance_in(config.leader_imbalance_check_interval_seconds)

    # Requests of brokers

    @property
    def topic_names(self) -> Mapping[TopicId, str]:
        """The topics by id. Empty if this broker is not the controller."""
        return {} if self.decisions is None else self.decisions.state.names

    def keeps(self, name: str) -> bool:
        """Whether there is such a topic, and it is not being deleted. False if this broker is not the controller."""
        state = None if self.decisions is None else self.decisions.state
        return state is not None and name in state.topics and name not in state.deleting

    def topic_id(self, name: str) -> TopicId:
        """NO_ID if there is no such topic, or if this broker is not the controller."""
        topic = None if self.decisions is None else self.decisions.state.topics.get(name)
        return NO_ID if topic is None else topic.id

    def check_broker_epoch(self, id: BrokerId, epoch: int) -> None:
        """Raises NotController, BrokerIdNotRegistered or StaleBrokerEpoch."""
        broker = self._elected.state.brokers.get(id)
        if broker is None:
            raise BrokerIdNotRegistered(f"broker {id} is not registered")
        if broker.epoch != epoch:
            raise StaleBrokerEpoch(f"broker {id} sent epoch {epoch}, but has {broker.epoch}")

    async def producer_ids(self, broker: BrokerId) -> range:
        """A block of producer ids that no other broker gets. NotController, also if the tree is out of reach."""
        while self.is_active:
            try:
                block = await self._producer_ids.claim(broker)
            except TreeError as error:
                raise NotController(f"broker {self.me} cannot claim producer ids: {error}") from error
            if block is not None:
                return block
        raise NotController(f"broker {self.me} is not the controller")
