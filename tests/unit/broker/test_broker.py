"""The assembly of a broker: what was started is stopped in reverse order, also if the start fails half way."""

import asyncio
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.broker.broker_lifecycle import BrokerLifecycle
from leadline.broker.ports import Ports
from leadline.config.broker import broker_settings
from leadline.replication.replicas import Replicas
from tests.support.crash_disk import Unsynced
from tests.support.in_process import broker_in_process
from tests.support.waiting import eventually


def test_a_stopping_broker_refuses_new_connections_before_its_partitions_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[bool] = []
    stop = Replicas.stop

    async def main() -> None:
        async def connect_and_stop(replicas: Replicas) -> None:
            try:
                _, writer = await asyncio.open_connection(address.host, address.port)
            except ConnectionRefusedError:
                refused.append(True)
            else:
                writer.close()
                refused.append(False)
            await stop(replicas)

        monkeypatch.setattr(Replicas, "stop", connect_and_stop)
        async with broker_in_process(tmp_path) as broker:
            address = broker.addresses["PLAINTEXT"]

    asyncio.run(main())
    assert refused == [True]


class StartFailed(Exception):
    pass


@pytest.mark.parametrize(
    "step",
    [
        "leadline.broker.broker.load_dynamic_settings",
        "leadline.broker.broker.make_persistent_nodes",
        "leadline.broker.broker.QuotaStore.start",
        "leadline.broker.broker.LogDirs.load",
        "leadline.broker.broker.Controller.start",
        "leadline.broker.broker.GroupCoordinator.start",
        "leadline.broker.broker.Net.start",
    ],
)
def test_a_start_that_fails_half_way_stops_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise StartFailed

    async def main() -> None:
        settings = broker_settings({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://localhost:0"})
        broker = Broker(settings, Ports(files=Unsynced()))
        with monkeypatch.context() as patched:
            patched.setattr(step, fail)
            with pytest.raises(StartFailed):
                await broker.start()
        assert broker.state is not BrokerLifecycle.RUNNING
        for address in broker.addresses.values():
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(address.host, address.port)
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()}, lambda: f"{asyncio.all_tasks()}")
        async with broker_in_process(tmp_path) as next_broker:  # the directory and the tree are not locked
            assert next_broker.state is BrokerLifecycle.RUNNING

    asyncio.run(main())
