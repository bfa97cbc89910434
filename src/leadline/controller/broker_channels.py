"""The controller's channels: one to each run of each registered broker."""

import asyncio
from collections.abc import Collection, Iterable

from leadline.cluster import failure_detector
from leadline.config.live_settings import LiveSettings
from leadline.controller.broker_channel import BrokerChannel, BrokerEvents, Connect
from leadline.controller.effects import BrokerRequest
from leadline.controller.silence_monitor import SilenceMonitor
from leadline.controller.state import ControllerState
from leadline.model import BrokerId
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.ordered_set import OrderedSet


class BrokerChannels:
    def __init__(self, settings: LiveSettings, connect: Connect, events: BrokerEvents) -> None:
        self._settings, self._connect, self._events = settings, connect, events
        self._channels: dict[BrokerId, BrokerChannel] = {}
        self._listening: set[int] = set()  # epochs of brokers that were registered before the controller was elected
        self._closing: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def elected(self, state: ControllerState) -> None:
        """The registered brokers have listened before: if they refuse connections, they are gone."""
        self._listening = {broker.epoch for broker in state.brokers.values()}

    def update(self, state: ControllerState) -> None:
        """Opens channels to new brokers, and closes those to brokers that left or registered again.

        A broker whose endpoints changed is reached at the new ones.
        """
        registered = {broker.id: broker for broker in (*state.gone.values(), *state.brokers.values())}
        for id, channel in list(self._channels.items()):
            if id not in registered or registered[id].epoch != channel.broker.epoch:
                self._close(self._channels.pop(id))
        timeout_s = self._settings.broker.controller_socket_timeout_ms / 1000
        for id, broker in registered.items():
            if id not in self._channels:
                is_new = broker.epoch not in self._listening
                self._channels[id] = BrokerChannel(broker, self._connect, self._events, timeout_s, is_new=is_new)
            elif self._channels[id].broker != broker:
                self._channels[id].reconnect(broker)

    def send(self, request: BrokerRequest) -> None:
        if (channel := self._channels.get(request.broker)) is not None:
            channel.send(request.request)

    def give_up_silent(self, registered: Collection[BrokerId], monitor: SilenceMonitor) -> None:
        """Gives up on silent brokers, if most of the registered brokers are heard."""
        given_up = {id for id, channel in self._channels.items() if channel.is_given_up}
        brokers = given_up.union(registered)
        unheard = (monitor.unheard & brokers) | given_up
        if failure_detector.hears_most(len(brokers), len(unheard)):
            for id in monitor.silent & self._channels.keys():
                self._channels[id].give_up()

    async def answered_by(self, brokers: Iterable[BrokerId]) -> None:
        """Returns once these brokers have answered all requests that were sent to them so far."""
        for channel in [self._channels[id] for id in set(brokers) if id in self._channels]:
            await channel.answered_all()

    async def answered(self) -> None:
        await self.answered_by(list(self._channels))

    def queue_sizes(self) -> dict[BrokerId, int]:
        return {id: channel.queue_size for id, channel in self._channels.items()}

    @property
    def are_idle(self) -> bool:
        return all(channel.is_idle for channel in self._channels.values())

    def close(self) -> None:
        for channel in self._channels.values():
            self._close(channel)
        self._channels.clear()

    def _close(self, channel: BrokerChannel) -> None:
        task = channel.close()
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Returns once the tasks of closed channels have ended."""
        await all_ended(*self._closing)
