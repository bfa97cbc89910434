"""One broker and one process of each client, for all tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.clients import cases
from tests.clients.client import COMMANDS, Client
from tests.support.broker import RunningBroker, leadline

Clients = Callable[[str], Client]


@contextmanager
def broker_for_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": cases.RETENTION_MS}
    with leadline(tmp_path_factory.mktemp("broker") / "data", **settings) as running:
        yield running


@contextmanager
def clients_of(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """A client by its name, started at its first use."""
    started: dict[str, Client] = {}

    def client(name: str) -> Client:
        if name not in started:
            started[name] = Client(name, broker.bootstrap, tmp_path_factory.mktemp(name), broker.log)
        return started[name]

    try:
        yield client
    finally:
        for running in started.values():
            running.close()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker_for_clients(tmp_path_factory) as running:
        yield running


@pytest.fixture(scope="package")
def clients(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with clients_of(broker, tmp_path_factory) as by_name:
        yield by_name


@pytest.fixture(params=COMMANDS)
def client(request: pytest.FixtureRequest, clients: Clients) -> Client:
    return clients(request.param)
