"""Listeners that change while a broker runs, as Kafka's DynamicListenerConfig: opened, closed and protected anew.

a change that cannot be carried out changes nothing
"""

from collections.abc import Awaitable, Callable

from leadline.broker.endpoints import Endpoints
from leadline.broker.listener_security import ListenerSecurities
from leadline.broker.net import Net
from leadline.config.broker import BrokerSettings
from leadline.config.listener_changes import ListenerChanges, check_listener_changes, listener_changes
from leadline.config.live_settings import LiveSettings


class DynamicListeners:
    def __init__(self, settings: LiveSettings, net: Net, securities: ListenerSecurities, endpoints: Endpoints) -> None:
        self._settings, self._net, self._securities, self._endpoints = settings, net, securities, endpoints
        self.on_change: list[Callable[[], Awaitable[None]]] = []  # called when others are open or advertised

    def check(self, settings: BrokerSettings) -> None:
        """Whether these settings could be in force. Raises InvalidSetting; nothing changes."""
        check_listener_changes(self._settings.current, settings)
        self._securities.check(settings)
        self._endpoints.check(listener_changes(self._settings.listeners, settings.listeners))

    def change(self, settings: BrokerSettings) -> ListenerChanges:
        """Raises InvalidSetting; nothing has changed then. New listeners accept connections in a later turn."""
        check_listener_changes(self._settings.current, settings)
        protection = self._securities.change(settings)
        changes = listener_changes(self._settings.listeners, settings.listeners)
        self._endpoints.change(changes)
        self._securities.use(protection)
        self._net.logins.use(self._securities.by_listener)
        return changes

    async def announce(self) -> None:
        """After a change, once the settings are in force."""
        for notify in self.on_change:
            await notify()
