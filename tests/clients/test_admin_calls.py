"""Each client's administration of topics, settings, partitions and records: what it changes it is then told."""

from pathlib import Path

import pytest

from tests.clients import cases
from tests.clients.client import Client, ClientError, Lacking
from tests.support.broker import RunningBroker

LACKS = {
    "librdkafka": {"describe_log_dirs"},
    "aiokafka": {"alter_config", "describe_log_dirs"},
    "kafkajs": {"alter_config", "describe_log_dirs"},
}
LACKS_MAX_TIMESTAMP = {"aiokafka", "sarama", "kafkajs"}
LACKS_CLUSTER_ID = {"sarama"}


def lacks(client: Client, op: str, **fields: object) -> bool:
    """Whether a client cannot do it; then it says so."""
    if op not in LACKS.get(client.name, set()):
        return False
    with pytest.raises(Lacking):
        client.ask(op, **fields)
    return True


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions that the client has created."""
    name = f"{client.name}.{request.function.__name__[5:60]}"
    client.ask("create_topic", topic=name, partitions=2, config={"retention.ms": "-1", "segment.bytes": "100000"})
    return name


def fill(client: Client, topic: str, count: int) -> None:
    """Times go down: the newest record is the first."""
    records = [cases.Written(0, b"%d" % n, b"value", (), cases.START_MS - n).as_values() for n in range(count)]
    client.ask("produce", topic=topic, codec="none", idempotent=True, records=records)


def test_topics_are_created_described_listed_grown_and_deleted(client: Client, topic: str) -> None:
    (leader,) = set(client.ask("describe_topic", topic=topic))
    assert client.ask("describe_topic", topic=topic) == [leader] * 2
    assert topic in client.ask("list_topics")
    client.ask("create_partitions", topic=topic, total=4)
    assert client.ask("describe_topic", topic=topic) == [leader] * 4
    fill(client, topic, 1)
    client.ask("delete_topic", topic=topic)
    assert topic not in client.ask("list_topics")


def test_what_cannot_be_created_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(ClientError, match=r"(?i)exist"):
        client.ask("create_topic", topic=topic, partitions=1, config={})
    with pytest.raises(ClientError, match=r"(?i)config|setting"):
        client.ask("create_topic", topic=f"{topic}-2", partitions=1, config={"no.such.setting": "1"})
    with pytest.raises(ClientError, match=r"(?i)topic|invalid"):
        client.ask("create_topic", topic="no/slashes", partitions=1, config={})
    with pytest.raises(ClientError, match=r"(?i)partitions"):
        client.ask("create_partitions", topic=topic, total=1)
    with pytest.raises(ClientError, match=r"(?i)unknown|not (exist|host)|no such|UNKNOWN_TOPIC"):
        client.ask("delete_topic", topic=f"{topic}-3")


def test_settings_are_described_replaced_and_changed(client: Client, topic: str) -> None:
    config = client.ask("describe_config", topic=topic)
    assert (config["retention.ms"], config["segment.bytes"], config["cleanup.policy"]) == ("-1", "100000", "delete")
    assert len(config) > 30

    client.ask("set_config", topic=topic, config={"retention.ms": "-1", "max.message.bytes": "5000"})
    config = client.ask("describe_config", topic=topic)
    if client.name != "kafka-python":  # it adds what is set already
        assert config["segment.bytes"] == "1073741824"
    assert config["max.message.bytes"] == "5000"

    changes = [("SET", "segment.ms", "60000"), ("DELETE", "retention.ms", ""), ("APPEND", "cleanup.policy", "compact")]
    if not lacks(client, "alter_config", topic=topic, changes=changes):
        client.ask("alter_config", topic=topic, changes=changes)
        config = client.ask("describe_config", topic=topic)
        assert (config["segment.ms"], config["retention.ms"]) == ("60000", str(cases.RETENTION_MS))
        assert (config["cleanup.policy"], config["max.message.bytes"]) == ("delete,compact", "5000")
        client.ask("alter_config", topic=topic, changes=[("SUBTRACT", "cleanup.policy", "delete")])
        assert client.ask("describe_config", topic=topic)["cleanup.policy"] == "compact"
        with pytest.raises(ClientError, match=r"(?i)config|invalid"):
            client.ask("alter_config", topic=topic, changes=[("SET", "segment.ms", "soon")])


def test_records_are_deleted_and_offsets_listed(client: Client, topic: str) -> None:
    fill(client, topic, 10)
    where = {"topic": topic, "partition": 0}
    assert client.ask("list_offset", **where, at="earliest") == 0
    assert client.ask("list_offset", **where, at="latest") == 10
    assert client.ask("list_offset", **where, at=cases.START_MS) == 0
    if client.name in LACKS_MAX_TIMESTAMP:
        with pytest.raises(ClientError):
            client.ask("list_offset", **where, at="max")
    else:
        assert client.ask("list_offset", **where, at="max") == 0
    assert client.ask("delete_records", **where, before=7) == 7
    assert client.ask("list_offset", **where, at="earliest") == 7
    assert [row[1] for row in client.ask("consume", topic=topic, starts=[[0, 7, 3]])] == [7, 8, 9]
    with pytest.raises(ClientError, match=r"(?i)range|deleting records"):
        client.ask("delete_records", **where, before=11)


def test_a_time_after_the_last_record_leads_nowhere_or_to_the_end(client: Client, topic: str) -> None:
    fill(client, topic, 3)
    offset = client.ask("list_offset", topic=topic, partition=0, at=cases.START_MS + 1)
    assert offset == (3 if client.name in ("franz-go", "kafkajs") else -1)


def test_log_directories_are_described_with_their_sizes(client: Client, topic: str, broker: RunningBroker) -> None:
    if not lacks(client, "describe_log_dirs", topic=topic):
        fill(client, topic, 10)
        size = Path(broker.directory, f"{topic}-0", "00000000000000000000.log").stat().st_size
        assert client.ask("describe_log_dirs", topic=topic) == {"0": size, "1": 0}


def test_the_cluster_is_described(client: Client, topic: str, broker: RunningBroker) -> None:
    (leader,) = set(client.ask("describe_topic", topic=topic))
    cluster = client.ask("describe_cluster")
    assert cluster["brokers"] == [[leader, "localhost", broker.port]]
    assert cluster["controller"] == leader
    properties = Path(broker.directory, "meta.properties").read_text()
    assert client.name in LACKS_CLUSTER_ID or f"cluster.id={cluster['cluster']}\n" in properties
