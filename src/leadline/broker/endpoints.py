"""The endpoints of a broker: where it listens, and which of them it advertises. Listeners may change while it runs.

a change that cannot be carried out changes nothing: the old listeners are open, and their connections stay
"""

import logging

from leadline.broker.net import Net
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.listener_changes import ListenerChanges
from leadline.config.listeners import Listener
from leadline.config.live_settings import LiveSettings
from leadline.config.values import InvalidSetting
from leadline.coordination.registration import RegisteredEndpoint

log = logging.getLogger(__name__)


class Endpoints:
    def __init__(self, settings: LiveSettings, net: Net, addresses: dict[str, Endpoint]) -> None:
        """`addresses`: where it listens, by listener."""
        self._settings, self._net, self.addresses = settings, net, addresses

    def open(self) -> None:
        """Opens all listeners. Raises OSError."""
        for listener in self._settings.listeners.bound:
            self._listen(listener, listener.port)

    def _listen(self, listener: Listener, port: int) -> None:
        self.addresses[listener.name] = Endpoint(*self._net.listen(listener.name, listener.host, port))

    def check(self, changes: ListenerChanges) -> None:
        """Whether the new listeners could be opened. Raises InvalidSetting; nothing changes."""
        freed = {self.addresses[listener.name].port for listener in changes.closed}
        for listener in changes.opened:
            if listener.port not in freed:
                try:
                    self._net.check_address(listener.name, listener.host, listener.port)
                except OSError as error:
                    raise InvalidSetting(f"listeners: {error.strerror}") from None

    def change(self, changes: ListenerChanges) -> None:
        """Closes and opens listeners. Raises InvalidSetting; nothing has changed then.

        A new listener may have the port of one that is closed.
        """
        ports = {listener.name: self.addresses[listener.name].port for listener in changes.closed}
        for name in ports:
            self._net.stop_listening_on(name)
        try:
            for listener in changes.opened:
                self._listen(listener, listener.port)
        except OSError as error:
            for listener in changes.opened:
                if self.addresses.pop(listener.name, None) is not None:
                    self._net.forget_listener(listener.name)
            for listener in changes.closed:
                self._listen(listener, ports[listener.name])
            raise InvalidSetting(f"listeners: {error.strerror}") from None
        for name in ports:
            del self.addresses[name]
            self._net.forget_listener(name)
            log.info("listener %s is closed", name)
        for listener in changes.opened:
            log.info("listener %s is open on %s:%d", listener.name, *self.addresses[listener.name])

    @property
    def advertised(self) -> dict[str, Endpoint]:
        """The endpoints that clients get, by listener."""
        host = self._net.network.host_name()
        return {
            listener.name: Endpoint(listener.host or host, listener.port or self.addresses[listener.name].port)
            for listener in self._settings.listeners.advertised
        }

    @property
    def registered(self) -> tuple[RegisteredEndpoint, ...]:
        """The same, as the broker registers them."""
        protocols = {listener.name: listener.protocol.name for listener in self._settings.listeners.advertised}
        return tuple(RegisteredEndpoint(name, *at, protocols[name]) for name, at in self.advertised.items())
