"""One broker and one process of each client, for all tests of this folder."""

from collections.abc import Callable, Iterator

import pytest

from tests.clients import cases
from tests.clients.client import COMMANDS, Client
from tests.support.broker import RunningBroker, leadline

Clients = Callable[[str], Client]


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": cases.RETENTION_MS}
    with leadline(tmp_path_factory.mktemp("broker") / "data", **settings) as running:
        yield running


@pytest.fixture(scope="package")
def clients(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """A client by its name, started at its first use."""
    started: dict[str, Client] = {}

    def client(name: str) -> Client:
        if name not in started:
            started[name] = Client(name, broker.bootstrap, tmp_path_factory.mktemp(name))
        return started[name]

    try:
        yield client
    finally:
        for running in started.values():
            running.close()


@pytest.fixture(params=COMMANDS)
def client(request: pytest.FixtureRequest, clients: Clients) -> Client:
    return clients(request.param)
