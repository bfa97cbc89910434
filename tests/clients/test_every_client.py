"""Each client writes and reads with every codec, and each reads what each of the others wrote, field by field."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leadline.records import batch
from tests.clients import cases
from tests.clients.client import COMMANDS, Client, ClientError
from tests.support.broker import RunningBroker

Read = list[list[object]]  # partition, offset, time, key, value, headers
Written = Callable[[str], Read]


@pytest.fixture(scope="package")
def written(clients: Callable[[str], Client]) -> Written:
    """What a client has written into the topic of its name, as it is to be read; by partition and offset."""
    by_client: dict[str, Read] = {}

    def by(name: str) -> Read:
        if name not in by_client:
            client = clients(name)
            client.ask("create_topic", topic=name, partitions=cases.PARTITIONS, config={})
            by_client[name] = sorted((row for run in range(len(cases.RUNS)) for row in _write(client, run)), key=_place)
        return by_client[name]

    return by


def _write(client: Client, run: int) -> Read:
    codec, idempotent = cases.RUNS[run]
    records = cases.records(run, client.name)
    rows = [record.as_values() for record in records]
    offsets = client.ask("produce", topic=client.name, codec=codec, idempotent=idempotent, records=rows)
    return [record.read(offset) for record, offset in zip(records, offsets, strict=True)]


def _place(row: list[object]) -> tuple[object, object]:
    return row[0], row[1]


def _batches(broker: RunningBroker, topic: str, partition: int) -> list[batch.Header]:
    data = Path(broker.directory, f"{topic}-{partition}", "00000000000000000000.log").read_bytes()
    return [header for _, header in batch.walk(data)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_acknowledged_offset_is_given_once_and_without_gaps(name: str, written: Written) -> None:
    rows = written(name)
    counts = Counter(row[0] for row in rows)
    assert [_place(row) for row in rows] == [(n, at) for n in range(cases.PARTITIONS) for at in range(counts[n])]
    assert len(rows) == len(cases.RUNS) * (cases.ODD + cases.SMALL + cases.LARGE)


@pytest.mark.parametrize("name", COMMANDS)
def test_batches_are_stored_with_the_codec_and_producer_id_of_the_client(
    name: str, written: Written, broker: RunningBroker
) -> None:
    written(name)
    for partition in range(cases.PARTITIONS):
        headers = _batches(broker, name, partition)
        runs = list(dict.fromkeys((header.codec.name.lower(), header.has_producer_id) for header in headers))
        assert runs == cases.RUNS
    assert max(header.size for header in headers) > 500_000, "some batch is large"


@pytest.mark.parametrize("reader", COMMANDS)
@pytest.mark.parametrize("writer", COMMANDS)
def test_what_one_client_wrote_another_reads(
    writer: str, reader: str, written: Written, clients: Callable[[str], Client]
) -> None:
    rows = written(writer)
    counts = Counter(row[0] for row in rows)
    starts = [[partition, 0, counts[partition]] for partition in range(cases.PARTITIONS)]
    assert sorted(clients(reader).ask("consume", topic=writer, starts=starts), key=_place) == rows


def test_reading_starts_inside_a_batch_where_the_client_says(client: Client, written: Written) -> None:
    rows = [row for row in written(client.name) if row[0] == 1]
    offset = 3 * cases.SMALL + 77
    consumed = client.ask("consume", topic=client.name, starts=[[1, offset, 100]])
    assert consumed[:100] == rows[offset : offset + 100]


def test_a_time_leads_to_the_first_record_at_or_after_it(client: Client, written: Written) -> None:
    rows = [row for row in written(client.name) if row[0] == 1]
    for at in (rows[500][2], int(str(rows[500][2])) - 1):
        assert client.ask("list_offset", topic=client.name, partition=1, at=at) == 500


def test_a_topic_comes_to_be_when_it_is_first_written_to(client: Client) -> None:
    topic = f"{client.name}-first-used"
    record = cases.Written(0, b"k", b"v", (), cases.START_MS)
    assert client.ask("produce", topic=topic, codec="none", idempotent=True, records=[record.as_values()]) == [0]
    assert client.ask("consume", topic=topic, starts=[[0, 0, 1]]) == [record.read(0)]


def test_a_reader_at_the_end_is_given_what_comes(client: Client, clients: Callable[[str], Client]) -> None:
    topic, writer = f"{client.name}-awaited", clients("librdkafka" if client.name != "librdkafka" else "franz-go")
    client.ask("create_topic", topic=topic, partitions=2, config={})
    record = cases.Written(1, b"k", b"v", (), cases.START_MS)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(client.ask, "consume", topic=topic, starts=[[1, 0, 1]])
        time.sleep(0.3)
        writer.ask("produce", topic=topic, codec="none", idempotent=True, records=[record.as_values()])
        assert reading.result() == [record.read(0)]


def test_a_topic_with_append_time_has_the_brokers_time(client: Client) -> None:
    topic = f"{client.name}-append-time"
    client.ask("create_topic", topic=topic, partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    record = cases.Written(0, b"k", b"v", (), cases.START_MS)
    assert client.ask("produce", topic=topic, codec="gzip", idempotent=True, records=[record.as_values()] * 2) == [0, 1]
    first, second = client.ask("consume", topic=topic, starts=[[0, 0, 2]])
    assert first[2] == second[2] > cases.START_MS


def test_a_record_that_the_topic_does_not_take_is_refused(client: Client) -> None:
    topic = f"{client.name}-narrow"
    client.ask("create_topic", topic=topic, partitions=1, config={"max.message.bytes": "1000"})
    record = cases.Written(0, b"k", b"v" * 2000, (), cases.START_MS)
    with pytest.raises(ClientError, match=r"(?i)too.?large|larger than|TOO_LARGE"):
        client.ask("produce", topic=topic, codec="none", idempotent=True, records=[record.as_values()])


def test_a_record_without_a_key_is_refused_where_keys_count(client: Client) -> None:
    topic = f"{client.name}-compacted"
    client.ask("create_topic", topic=topic, partitions=1, config={"cleanup.policy": "compact"})
    record = cases.Written(0, None, b"v", (), cases.START_MS)
    # aiokafka does not know the code of this error
    with pytest.raises(ClientError, match=r"(?i)invalid.?record|failed (the )?validation|compact|Error -1"):
        client.ask("produce", topic=topic, codec="none", idempotent=False, records=[record.as_values()])
