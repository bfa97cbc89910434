"""How fast connections may come: to the broker, to a listener, from one address.

Pure: addresses and times in, milliseconds out.

For each connection that is accepted, in this order: `listener_delay_ms`, for which the acceptor waits without refusing
a connection; then the number of connections is checked, which is not done here; then `address_delay_ms`: if it is not
0, the connection is kept unread for that time and then closed, and counts nowhere.
    the listener between brokers, if it is not the only one, does not count towards the broker's rate
    no delay is longer than one sample of the rate
"""

from collections.abc import Iterable

from leadline.security.rates import DEFAULT_SAMPLE_MS, DEFAULT_SAMPLES, INT_MAX, Rate

UNLIMITED = INT_MAX
MOST_ADDRESSES = 50_000  # addresses measured at a time; beyond that, idle ones are dropped


class ConnectionRates:
    """The limits may be changed at any time: they apply at once, also to values that were recorded before."""

    def __init__(
        self,
        listeners: Iterable[str],
        inter_broker_listener: str,
        samples: int = DEFAULT_SAMPLES,
        sample_ms: int = DEFAULT_SAMPLE_MS,
    ) -> None:
        self._window = samples, sample_ms
        self.broker_limit = UNLIMITED  # max.connection.creation.rate
        self.listener_limits: dict[str, int] = {}  # the same of a listener; those without one have none
        self.default_address_limit = UNLIMITED  # /config/ips/<default>
        self.address_limits: dict[str, int] = {}  # /config/ips/<ip>, by the address as Java prints it
        self._inter_broker_listener = inter_broker_listener
        self._broker = Rate(*self._window)
        self._listeners = {listener: Rate(*self._window) for listener in listeners}
        self._addresses: dict[str, Rate] = {}

    def add_listener(self, listener: str) -> None:
        self._listeners.setdefault(listener, Rate(*self._window))

    def remove_listener(self, listener: str) -> None:
        del self._listeners[listener]

    def listener_delay_ms(self, listener: str, now_ms: int) -> int:
        """How long the acceptor waits before it continues with a connection."""
        for_broker = 0
        if not self._is_protected(listener):
            for_broker = self._delay_ms(self._broker, self.broker_limit, now_ms)
        limit = self.listener_limits.get(listener, UNLIMITED)
        return max(for_broker, self._delay_ms(self._listeners[listener], limit, now_ms))

    def address_delay_ms(self, listener: str, address: str, now_ms: int) -> int:
        """0: continue. Otherwise the connection is closed after this time, and counts nowhere."""
        limit = self.address_limits.get(address, self.default_address_limit)
        if limit == UNLIMITED:
            return 0
        rate = self._address(address, now_ms)
        delay_ms = self._delay_ms(rate, limit, now_ms)
        if delay_ms:
            rate.record(-1, now_ms)
            self._listeners[listener].record(-1, now_ms)
            if not self._is_protected(listener):
                self._broker.record(-1, now_ms)
        return delay_ms

    def drop_idle(self, now_ms: int) -> None:
        """Drop addresses without recent connections: they would measure the same as new ones."""
        self._addresses = {address: rate for address, rate in self._addresses.items() if not rate.is_idle(now_ms)}

    def _address(self, address: str, now_ms: int) -> Rate:
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= MOST_ADDRESSES:
                self.drop_idle(now_ms)
            rate = self._addresses[address] = Rate(*self._window)
        return rate

    def _delay_ms(self, rate: Rate, limit: int, now_ms: int) -> int:
        rate.record(1, now_ms)
        return rate.throttle_ms(limit, now_ms, self._window[1])

    def _is_protected(self, listener: str) -> bool:
        return listener == self._inter_broker_listener and len(self._listeners) > 1
