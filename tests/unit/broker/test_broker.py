"""The assembly of a broker: what was started is stopped in reverse order."""

import asyncio
from pathlib import Path

import pytest

from leadline.replication.replicas import Replicas
from tests.support.in_process import broker_in_process


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
