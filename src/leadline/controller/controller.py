"""One broker decides for all. This is the way into that office, the work in it, and the way out.

Who creates /controller is the controller, for as long as its session lasts; /controller_epoch counts them. Every write
is made under the condition that this number is still the one of this controller, so one that has been replaced without
knowing it cannot write. Whatever contradicts what it knows ends its time in office: the next one, which may be itself,
reads everything again.

    one task, one queue: an event is decided, written, told, and only then comes the next
    watches become events: they say that something changed, the event looks what
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from leadline.cluster import failure_detector
from leadline.config.broker import BrokerSettings
from leadline.controller import tree_reader
from leadline.controller.broker_channel import BrokerChannel, Connect
from leadline.controller.broker_responses import what_follows
from leadline.controller.decisions import Decisions, PendingChanges
from leadline.controller.effects import ControllerEffects, Remove, Request, Write
from leadline.controller.state import ControllerState, RegisteredBroker
from leadline.controller.tree_writer import write
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    Node,
    NodeExists,
    SessionState,
    SetData,
    Tree,
    TreeError,
    TreeWatch,
)
from leadline.errors import NotController
from leadline.model import BrokerId, ProducerId, new_id
from leadline.runtime.ports import Time
from leadline.wire.classes import Message

log = logging.getLogger(__name__)

FIRST_REBALANCE_S = 5.0
AFTER_FAILURE_S = 1.0
GIVE_BACK_S = 5.0
STAND_BACK_S = 0.5  # before an election, for each broker that is silent here: who hears more is elected first
PRODUCER_IDS_AT_ONCE = 1000
ELECT, REBALANCE = "elect", "rebalance"  # events that no node stands for

T = TypeVar("T")


class _Job(NamedTuple):
    run: Callable[[], Awaitable[None]]
    abandon: Callable[[], None]  # there is nobody in office any longer
    name: str = ""  # of an event


class Monitor(Protocol):
    """Who this broker does not hear."""

    @property
    def silent(self) -> set[BrokerId]: ...
    @property
    def unheard(self) -> set[BrokerId]:
        """Also those that may be about to be silent."""

    @property
    def hears_most(self) -> bool:
        """This broker has heard most of the others for a while."""


class _NobodyIsSilent:
    def __init__(self) -> None:
        self.silent: set[BrokerId] = set()
        self.unheard: set[BrokerId] = set()
        self.hears_most = True


class Controller:
    """`await start()`: takes part in elections. While `decisions` is there, this broker is the controller."""

    def __init__(
        self,
        tree: Tree,
        me: BrokerId,
        settings: Callable[[], BrokerSettings],
        connect: Connect,
        clock: Time,
        *,
        listener: str,
        session_timeout_s: float = 18.0,
        first_producer_id: Callable[[], ProducerId] = lambda: 0,
        is_alone: bool = False,
    ) -> None:
        self.tree, self.me, self._settings = tree, me, settings
        self._connect, self.clock, self._listener = connect, clock, listener
        self._session_timeout_s, self._first_producer_id = session_timeout_s, first_producer_id
        self._is_alone = is_alone  # that it decides is no news then
        self.decisions: Decisions | None = None  # None: another is in office, or nobody is
        self.on_decided: list[Callable[[], None]] = []  # something was, and written, and told
        self.monitor: Monitor = _NobodyIsSilent()
        self._term = 0  # counts the times that we left office, or were told that we cannot be in it
        self._epoch_version = -1  # of /controller_epoch, when this one came into office
        self._lines: dict[BrokerId, BrokerChannel] = {}
        self._found: set[int] = set()  # epochs of the brokers that were there when this one came into office
        self._closing: set[asyncio.Task[None]] = set()  # what lines still do
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._watches: list[TreeWatch] = []  # while in office
        self._topic_watches: dict[str, TreeWatch] = {}
        self._standing: list[TreeWatch] = []  # in office or not
        self._timers: list[asyncio.TimerHandle] = []
        self._suspended: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._queued: set[str] = set()  # events that are to come and need not be queued again

    @property
    def is_active(self) -> bool:
        return self.decisions is not None

    async def start(self) -> None:
        """Returns once there is a controller; if it is this one, after it has decided what there was to decide.

        Raises what stood in the way of that; it goes on trying until it is stopped.
        """
        self._standing.append(self.tree.watch_session(self._session))
        self._standing.append(await self.tree.watch(znodes.CONTROLLER, self._on(ELECT, self._look_who_decides)))
        self._task = asyncio.create_task(self._work(), name="controller")
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def elect() -> None:
            try:
                await self._elect()
            except Exception as error:
                first.set_exception(error)
                raise
            first.set_result(None)

        self._jobs.put_nowait(_Job(elect, lambda: None, ELECT))
        await first

    async def stop(self) -> None:
        for watch in self._standing:
            watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        can_give_back = self.is_active and self._suspended is None  # else nobody is there to take it: it times out
        if self._suspended is not None:
            self._suspended.cancel()
        self._leave_office()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if can_give_back:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._give_back(), GIVE_BACK_S)

    async def do(self, event: Callable[[Decisions], T]) -> T:
        """Decide something, and answer once it is written. NotController."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def refuse() -> None:
            if not answer.done():
                answer.set_exception(NotController(f"broker {self.me} is not the controller"))

        async def run() -> None:
            try:
                decided = event(self._in_office)
            except Exception as error:  # noqa: BLE001  an answer for who asked, like any other
                if not answer.done():
                    answer.set_exception(error)
            else:
                await self._carry_out()
                if not answer.done():
                    answer.set_result(decided)

        if not self.is_active:
            refuse()
        else:
            self._jobs.put_nowait(_Job(run, refuse))
        return await answer

    @property
    def _in_office(self) -> Decisions:
        """NotController: not any longer, since we last looked."""
        if self.decisions is None:
            raise NotController(f"broker {self.me} is not the controller")
        return self.decisions

    # The queue

    async def _work(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                await job.run()
            except NotController:
                job.abandon()
            except (TreeError, MalformedNode) as error:
                job.abandon()
                log.error("the controller resigns: %s", error)
                await self._resign()
            except Exception:
                job.abandon()
                log.exception("the controller resigns: what it met is a bug")
                await self._resign()

    def _on(self, name: str, run: Callable[[], Awaitable[None]]) -> Callable[[Event], None]:
        return lambda event: self._queue(name, run)

    def _queue(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """An event that is still to come will see what has changed now, too."""
        if name not in self._queued:
            self._queued.add(name)

            async def once() -> None:
                self._queued.discard(name)
                await run()

            self._jobs.put_nowait(_Job(once, lambda: None, name))

    # Into office and out of it

    async def _look_who_decides(self) -> None:
        node = await self.tree.get(znodes.CONTROLLER)
        is_ours = node is not None and self._is_ours(node)
        if node is not None and is_ours and not self.is_active:
            with suppress(TreeError):  # we had given up, or never heard that we were elected
                await self.tree.delete(znodes.CONTROLLER, node.version)
        elif self.is_active and not is_ours:
            log.warning("broker %d is not the controller any longer", self.me)
            self._leave_office()
        await self._elect()

    def _is_ours(self, node: Node) -> bool:
        return node.owner == self.tree.session and znodes.decode_controller(node.data).broker == self.me

    async def _elect(self) -> None:
        if self.is_active or await self.tree.exists(znodes.CONTROLLER):
            return
        await asyncio.sleep(STAND_BACK_S * len(self.monitor.silent))
        node = await self.tree.get(znodes.CONTROLLER_EPOCH)
        if node is None:
            with suppress(NodeExists):
                await self.tree.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            node = await self.tree.get(znodes.CONTROLLER_EPOCH)
            assert node is not None
        epoch = znodes.decode_controller_epoch(node.data) + 1
        office = znodes.encode_controller(znodes.ControllerNode(self.me, self.clock.now_ms()))
        try:
            _, version = await self.tree.multi(
                [
                    Create(znodes.CONTROLLER, office, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), node.version),
                ]
            )
        except (NodeExists, BadVersion):
            return  # somebody else was quicker; if that is over already, the watch says so
        assert isinstance(version, int)
        self._epoch_version = version
        level = logging.DEBUG if self._is_alone else logging.INFO
        log.log(level, "broker %d is the controller, with epoch %d", self.me, epoch)
        await self._take_office(epoch)

    async def _take_office(self, epoch: int) -> None:
        """Watches before reads, so that nothing comes between."""
        term = self._term
        await self._watch_everything()
        for path in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):  # all is read anyway
            await self._write([Remove(each) for each in await tree_reader.contents(self.tree, path)])
        if not await self.tree.exists(znodes.FEATURE):
            with suppress(NodeExists):
                await self.tree.create(znodes.FEATURE, znodes.encode_features(znodes.FinalizedFeatures({})))
        state = ControllerState(self.me, epoch)
        state.brokers = {broker.id: broker for broker in await tree_reader.brokers(self.tree)}
        self._found = {broker.epoch for broker in state.brokers.values()}
        stored = await self._read_topics(await self.tree.children(znodes.TOPICS) or [])
        for topic in await tree_reader.many([tree_reader.with_states(self.tree, *each) for each in stored]):
            state.put_topic(topic)
        wanted = PendingChanges(
            await self.tree.children(znodes.DELETE_TOPICS) or [],
            await tree_reader.reassignment(self.tree),
            await tree_reader.elections(self.tree),
        )
        if term != self._term:
            self._leave_office()
            raise NotController("the session was over before all was read")
        config = self._settings().broker
        self.decisions = Decisions(state, self._listener, delete_topic_enable=config.delete_topic_enable)
        self.decisions.start(wanted)
        await self._carry_out()
        self.silence_changed()
        if config.auto_leader_rebalance_enable:
            self._rebalance_in(FIRST_REBALANCE_S)

    async def _watch_everything(self) -> None:
        children = {
            znodes.BROKER_IDS: self._brokers_changed,
            znodes.TOPICS: self._topics_changed,
            znodes.DELETE_TOPICS: self._deletions_changed,
            znodes.ISR_CHANGES: self._isr_changed,
            znodes.LOG_DIR_EVENTS: self._log_dirs_failed,
        }
        nodes = {
            znodes.REASSIGN_PARTITIONS: self._reassignment_asked,
            znodes.PREFERRED_REPLICA_ELECTION: self._elections_asked,
        }
        watches = [self.tree.watch_children(path, self._on(path, run)) for path, run in children.items()]
        watches += [self.tree.watch(path, self._on(path, run)) for path, run in nodes.items()]
        await tree_reader.many([self._keep(watch) for watch in watches])

    async def _keep(self, watch: Awaitable[TreeWatch]) -> None:
        self._watches.append(await watch)

    def _leave_office(self) -> None:
        """At once, whatever is under way: it finds nobody in office when it comes back."""
        self.decisions = None
        self._term += 1
        for watch in (*self._watches, *self._topic_watches.values()):
            watch.cancel()
        self._watches.clear()
        self._topic_watches.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._abandon_jobs()
        for line in self._lines.values():
            self._close(line)
        self._lines.clear()

    def _close(self, line: BrokerChannel) -> None:
        task = line.close()
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _abandon_jobs(self) -> None:
        """But for those that lead into office."""
        jobs = [self._jobs.get_nowait() for _ in range(self._jobs.qsize())]
        self._queued &= {ELECT}
        for job in jobs:
            if job.name == ELECT:
                self._jobs.put_nowait(job)
            else:
                job.abandon()

    async def resign_on_behalf(self, broker: BrokerId) -> None:
        """Of a controller whose process is gone: so that nobody waits until its session has timed out.

        Should it be there after all, it is not in office any longer: it finds another epoch wherever it writes.
        """
        with suppress(TreeError):
            node = await self.tree.get(znodes.CONTROLLER)
            if node is not None and znodes.decode_controller(node.data).broker == broker:
                log.warning("broker %d was the controller, and is gone: its office is given up", broker)
                await self.tree.delete(znodes.CONTROLLER, node.version)

    async def _resign(self) -> None:
        """Give the office back, if it is still ours; and stand for election again a little later."""
        self._leave_office()
        await self._give_back()
        again = asyncio.get_running_loop().call_later(AFTER_FAILURE_S, self._queue, ELECT, self._look_who_decides)
        self._timers.append(again)

    async def _give_back(self) -> None:
        with suppress(TreeError):
            await self.tree.multi([Check(znodes.CONTROLLER_EPOCH, self._epoch_version), Delete(znodes.CONTROLLER)])

    def _session(self, state: SessionState) -> None:
        """Out of reach for a session's time, another may be in office; so that it does not come to two, we are not."""
        if self._suspended is not None:
            self._suspended.cancel()
            self._suspended = None
        if state is SessionState.SUSPENDED:
            loop = asyncio.get_running_loop()
            self._suspended = loop.call_later(self._session_timeout_s, self._leave_office)
        elif state is SessionState.EXPIRED:
            self._leave_office()
        else:
            self._queue(ELECT, self._look_who_decides)
            if self.is_active:
                self._look_at_everything()

    def _look_at_everything(self) -> None:
        for path, run in (
            (znodes.BROKER_IDS, self._brokers_changed),
            (znodes.TOPICS, self._topics_changed),
            (znodes.DELETE_TOPICS, self._deletions_changed),
            (znodes.REASSIGN_PARTITIONS, self._reassignment_asked),
            (znodes.PREFERRED_REPLICA_ELECTION, self._elections_asked),
            (znodes.LOG_DIR_EVENTS, self._log_dirs_failed),
        ):
            self._queue(path, run)

    # Doing what was decided

    async def _carry_out(self) -> None:
        """Written, then told; then perhaps more is decided."""
        effects = self._in_office.take()
        while effects:
            await self._write(effects.writes)
            self._keep_lines()
            self._tell(effects)
            if allowed := await self._unclean(effects.stranded):
                self._in_office.unclean_allowed(allowed)
            effects = self._in_office.take()
        for told in list(self.on_decided):
            told()

    async def answered_by(self, brokers: Iterable[BrokerId]) -> None:
        """Until these have answered what they were told so far, and what follows from it is decided."""
        for line in [line for id in set(brokers) if (line := self._lines.get(id)) is not None]:
            await line.answered_all()
        await self.do(lambda decisions: None)

    async def settled(self) -> None:
        """Until all that was decided has been answered by all brokers, and what follows from it, too."""
        while self.is_active:
            for line in list(self._lines.values()):
                await line.answered_all()
            await self.do(lambda decisions: None)  # behind what follows from their answers
            if all(line.is_idle for line in self._lines.values()):
                return

    async def _write(self, writes: Collection[Write]) -> None:
        await write(self.tree, self._epoch_version, writes)

    def _keep_lines(self) -> None:
        """One to each run of each broker that is registered."""
        state = self._in_office.state
        wanted = {broker.id: broker for broker in (*state.gone.values(), *state.brokers.values())}
        for id, line in list(self._lines.items()):
            if id not in wanted or wanted[id].epoch != line.broker.epoch:
                self._close(self._lines.pop(id))
        timeout_s = self._settings().broker.controller_socket_timeout_ms / 1000
        for id, broker in wanted.items():
            if id not in self._lines:
                is_new = broker.epoch not in self._found
                self._lines[id] = BrokerChannel(broker, self._connect, self, timeout_s, is_new=is_new)

    def _tell(self, effects: ControllerEffects) -> None:
        for id, request in effects.requests:
            if (line := self._lines.get(id)) is not None:
                line.send(request)

    async def _unclean(self, topics: Collection[str]) -> list[str]:
        """Those whose settings allow it."""
        defaults = self._settings().topics
        found = []
        for name in sorted(topics):
            path = znodes.config_path("topics", name)
            node = await self.tree.get(path)
            own = {} if node is None else znodes.decode_config(path, node.data)
            if defaults.with_values(own).unclean_leader_election_enable:
                found.append(name)
        return found

    # What brokers answer

    def answered(self, broker: RegisteredBroker, request: Request, response: Message) -> None:
        if (event := what_follows(broker, request, response)) is not None:
            self._decide(event)

    def gone(self, broker: RegisteredBroker) -> None:
        self._decide(lambda decisions: decisions.broker_gone(broker.id, broker.epoch))

    def back(self, broker: RegisteredBroker) -> None:
        self._decide(lambda decisions: decisions.broker_back(broker.id, broker.epoch))

    def silence_changed(self) -> None:
        """Brokers that are silent count as gone, if this controller hears most of those that are registered.

        One that hears fewer does nothing: the others give its office up.
        """
        if self.decisions is None or not self.monitor.hears_most:
            return
        given_up = {id for id, line in self._lines.items() if line.is_given_up}
        registered = self.decisions.state.brokers.keys() | given_up
        unheard = (self.monitor.unheard & registered) | given_up
        if failure_detector.hears_most(len(registered), len(unheard)):
            for id in self.monitor.silent & self._lines.keys():
                self._lines[id].give_up()

    def _decide(self, event: Callable[[Decisions], None]) -> None:
        """Nobody waits for it."""

        async def run() -> None:
            event(self._in_office)
            await self._carry_out()

        if self.is_active:
            self._jobs.put_nowait(_Job(run, lambda: None))

    # Events: look what has changed

    async def _brokers_changed(self) -> None:
        self._in_office.brokers(await tree_reader.brokers(self.tree))
        await self._carry_out()

    async def _topics_changed(self) -> None:
        names = await self.tree.children(znodes.TOPICS) or []
        known = self._in_office.state.topics
        new = await self._read_topics([name for name in names if name not in known])
        self._in_office.topics(names, new)
        for name in [name for name in self._topic_watches if name not in self._in_office.state.topics]:
            self._topic_watches.pop(name).cancel()
        await self._carry_out()

    async def _topic_changed(self, name: str) -> None:
        node = await self.tree.get(znodes.topic_path(name))
        if node is not None:
            self._in_office.partitions(name, znodes.decode_topic(name, node.data).partitions)
            await self._carry_out()

    async def _deletions_changed(self) -> None:
        self._in_office.deletions.wanted(await self.tree.children(znodes.DELETE_TOPICS) or [])
        await self._carry_out()

    async def _reassignment_asked(self) -> None:
        asked = await tree_reader.reassignment(self.tree)
        if asked != self._in_office.state.asked_reassignment:
            self._in_office.reassignments.asked_by_node(asked)
            await self._carry_out()

    async def _elections_asked(self) -> None:
        self._in_office.elect_asked(await tree_reader.elections(self.tree))
        await self._carry_out()

    async def _isr_changed(self) -> None:
        told = await tree_reader.contents(self.tree, znodes.ISR_CHANGES)
        partitions = [tp for path, data in told.items() for tp in znodes.decode_partitions(path, data)]
        states = await tree_reader.many([tree_reader.state(self.tree, tp) for tp in partitions])
        found = {tp: state for tp, state in zip(partitions, states, strict=True) if state is not None}
        self._in_office.isr_changed(found)
        self._in_office.steps.remove(*told)
        await self._carry_out()

    async def _log_dirs_failed(self) -> None:
        told = await tree_reader.contents(self.tree, znodes.LOG_DIR_EVENTS)
        brokers = {znodes.decode_log_dir_event(path, data) for path, data in told.items()}
        self._in_office.log_dir_failed(sorted(brokers))
        self._in_office.steps.remove(*told)
        await self._carry_out()

    def _rebalance_in(self, delay_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(delay_s, self._queue, REBALANCE, self._rebalance)
        self._timers.append(timer)

    async def _rebalance(self) -> None:
        config = self._settings().broker
        if moved := self._in_office.rebalance(config.leader_imbalance_per_broker_percentage):
            log.info("gave leadership of %d partitions back to their preferred leaders", len(moved))
        await self._carry_out()
        self._timers.clear()
        self._rebalance_in(config.leader_imbalance_check_interval_seconds)

    async def _read_topics(self, names: Collection[str]) -> list[tuple[str, znodes.TopicNode]]:
        """With a watch on each, and an id, which Kafka before 2.8 did not write."""
        await tree_reader.many([self._watch_topic(name) for name in names if name not in self._topic_watches])
        found = await tree_reader.topics(self.tree, names)
        nameless = [(name, topic._replace(id=new_id())) for name, topic in found if topic.id is None]
        await self._write([SetData(znodes.topic_path(name), znodes.encode_topic(topic)) for name, topic in nameless])
        return list((dict(found) | dict(nameless)).items())

    async def _watch_topic(self, name: str) -> None:
        path = znodes.topic_path(name)
        self._topic_watches[name] = await self.tree.watch(path, self._on(path, partial(self._topic_changed, name)))

    def settings_changed(self, topic: str | None) -> None:
        """Of a topic, or of all brokers: they may allow what was not allowed before."""
        self._decide(lambda decisions: decisions.elect_stranded(None if topic is None else (topic,)))

    # Producer ids

    async def producer_ids(self, broker: BrokerId) -> range:
        """A block of ids that nobody else has or will have. NotController."""
        while self.is_active:
            node = await self.tree.get(znodes.PRODUCER_ID_BLOCK)
            last = None if node is None else znodes.decode_producer_id_block(node.data)
            start = self._first_producer_id() if last is None else last.last + 1
            block = znodes.ProducerIdBlock(broker, start, start + PRODUCER_IDS_AT_ONCE - 1)
            data = znodes.encode_producer_id_block(block)
            with suppress(BadVersion, NodeExists):
                if node is None:
                    await self.tree.create(znodes.PRODUCER_ID_BLOCK, data, make_parents=True)
                else:
                    await self.tree.set(znodes.PRODUCER_ID_BLOCK, data, node.version)
                return range(start, start + PRODUCER_IDS_AT_ONCE)
        raise NotController(f"broker {self.me} is not the controller")
