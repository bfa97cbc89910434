"""Changes that need the address of a host: the broker serves while it is looked up, and the latest change holds."""

import asyncio

from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.memory_network import MemoryNetwork
from tests.support.waiting import eventually


class SlowResolver:
    """Answers for one host when it is told to."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.hosts: list[str] = []
        self.may_answer = asyncio.Event()
        network.addresses_of = self.addresses_of  # type: ignore[method-assign]

    async def addresses_of(self, host: str) -> list[str]:
        self.hosts.append(host)
        await self.may_answer.wait()
        return ["10.0.0.9"]


def network_of(client: InMemoryClient) -> MemoryNetwork:
    network = client.broker.ports.network
    assert isinstance(network, MemoryNetwork)
    return network


async def alter(client: InMemoryClient, **config: str) -> None:
    properties = {name.replace("_", "."): value for name, value in config.items()}
    await client.broker.cluster.alter_broker_config(lambda: properties, of_all=True)


def test_a_broker_serves_while_it_looks_up_the_host_of_a_changed_limit() -> None:
    async def test(client: InMemoryClient) -> None:
        resolver = SlowResolver(network_of(client))
        change = asyncio.create_task(alter(client, max_connections_per_ip_overrides="clients.example:3"))
        await eventually(lambda: resolver.hosts == ["clients.example"])
        response = await client.send(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert response.error_code == 0
        assert not change.done()
        resolver.may_answer.set()
        await change
        assert client.broker.net.limits.max_connections_per_ip_overrides == (("10.0.0.9", 3),)

    run(test)


def test_the_later_of_two_changes_holds_however_long_the_lookup_of_the_earlier_takes() -> None:
    async def test(client: InMemoryClient) -> None:
        resolver, configs = SlowResolver(network_of(client)), client.broker.configs
        first = asyncio.create_task(alter(client, max_connections_per_ip_overrides="clients.example:3"))
        await eventually(lambda: resolver.hosts == ["clients.example"])
        notified = asyncio.create_task(configs._put("brokers", "<default>", {"max.connections": "7"}))
        await asyncio.sleep(0)
        resolver.may_answer.set()
        await asyncio.gather(first, notified)
        limits = client.broker.net.limits
        assert (limits.max_connections, limits.max_connections_per_ip_overrides) == (7, ())

    run(test)


def test_the_quota_of_a_host_counts_for_the_address_that_the_network_names() -> None:
    async def test(client: InMemoryClient) -> None:
        network_of(client).addresses["clients.example"] = ["10.0.0.9"]
        assert await client.broker.client_configs.address_of("clients.example") == "10.0.0.9"
        assert await client.broker.client_configs.address_of("nobody.example") is None

    run(test)
