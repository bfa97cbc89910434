"""The endpoints of a broker: where it listens, and which of them it advertises and registers."""

import asyncio
from collections.abc import Callable

import pytest

from leadline.broker.endpoints import Endpoints
from leadline.broker.net import Net
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.listener_changes import ListenerChanges
from leadline.config.listeners import Listener, SecurityProtocol
from leadline.config.values import InvalidSetting
from leadline.coordination.registration import RegisteredEndpoint
from leadline.runtime.network import ListeningSocket
from tests.support.memory_network import MemoryNetwork
from tests.support.net import net_of
from tests.support.settings import live_settings

EXTRA, MORE, LAST = (
    Listener(name, SecurityProtocol.PLAINTEXT, "", port) for name, port in (("EXTRA", 0), ("MORE", 7), ("LAST", 8))
)


class OccupiedPort(MemoryNetwork):
    """Nobody can listen on the port of LAST."""

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        if port == LAST.port:
            raise OSError(98, "Address already in use")
        return super().listen(host, port, backlog)


def run(test: Callable[[Endpoints, MemoryNetwork], None], **settings: str) -> None:
    async def main() -> None:
        network = OccupiedPort()
        net: Net = net_of(network=network)
        own = {"listeners": "PLAINTEXT://:0"} | {name.replace("_", "."): text for name, text in settings.items()}
        endpoints = Endpoints(live_settings(own), net, {})
        endpoints.open()
        test(endpoints, network)
        await net.close()

    asyncio.run(main())


def test_an_empty_host_and_port_0_are_advertised_as_those_that_clients_reach() -> None:
    def test(endpoints: Endpoints, network: MemoryNetwork) -> None:
        (port,) = network.listening
        assert endpoints.addresses == {"PLAINTEXT": Endpoint("", port)}
        assert endpoints.advertised == {"PLAINTEXT": Endpoint("localhost", port)}
        assert endpoints.registered == (RegisteredEndpoint("PLAINTEXT", "localhost", port, "PLAINTEXT"),)

    run(test)


def test_an_advertised_address_is_registered_as_it_is_set() -> None:
    def test(endpoints: Endpoints, network: MemoryNetwork) -> None:
        assert endpoints.registered == (RegisteredEndpoint("PLAINTEXT", "there", 9, "PLAINTEXT"),)

    run(test, advertised_listeners="PLAINTEXT://there:9")


def test_a_change_closes_and_opens_listeners() -> None:
    def test(endpoints: Endpoints, network: MemoryNetwork) -> None:
        endpoints.change(ListenerChanges(opened=(EXTRA,)))
        assert set(endpoints.addresses) == {"PLAINTEXT", "EXTRA"}
        endpoints.change(ListenerChanges(closed=(EXTRA,), opened=(MORE,)))
        assert set(endpoints.addresses) == {"PLAINTEXT", "MORE"}
        assert set(network.listening) == {at.port for at in endpoints.addresses.values()}

    run(test)


def test_a_change_that_fails_half_way_leaves_the_same_listeners_on_the_same_ports() -> None:
    def test(endpoints: Endpoints, network: MemoryNetwork) -> None:
        endpoints.change(ListenerChanges(opened=(EXTRA,)))
        addresses = dict(endpoints.addresses)
        for call in (endpoints.check, endpoints.change):
            with pytest.raises(InvalidSetting, match=r"listeners: cannot listen on \*:8 \(LAST\): Address already in"):
                call(ListenerChanges(closed=(EXTRA,), opened=(MORE, LAST)))
            assert endpoints.addresses == addresses
            assert set(network.listening) == {at.port for at in addresses.values()}

    run(test)
