"""The pipeline's client against the real Kafka: through each kind of listener, in transactions, as a mirror."""

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused
from leadline.spark.client.transaction import ClientTransaction, Fenced
from leadline.spark.mirror.copy_task import run_copy_task
from leadline.spark.mirror.mirror import Mirror, MirrorSpec
from leadline.spark.topics.options import SubscribedTopics, read_options, write_options
from leadline.spark.topics.read_tasks import CLUSTERS
from leadline.spark.topics.sink import BatchNote, stage, write_once
from leadline.spark.topics.source import BatchReader
from leadline.spark.topics.staging import Staging
from tests.conformance.kafka.broker import Broker, broker, zookeeper
from tests.support.broker import leadline
from tests.support.topics import create_topic

pytestmark = pytest.mark.conformance

ROWS = 50
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
LOGIN = "org.apache.kafka.common.security"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def certificate(folder: Path) -> Path:
    """Key and certificate of a host of this name, in one file."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make a certificate")
    key, chain = folder / "key.pem", folder / "cert.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", chain], check=True, capture_output=True)
    (folder / "both.pem").write_text(key.read_text() + chain.read_text())
    return folder / "both.pem"


class Kafka:
    """A broker, and for each way into it the properties of a client."""

    def __init__(self, running: Broker, ports: Mapping[str, int], pem: Path) -> None:
        self.plain = running.bootstrap
        sasl = {"bootstrap.servers": f"127.0.0.1:{ports['SASL_PLAINTEXT']}", "security.protocol": "SASL_PLAINTEXT"}
        user = 'required username="ada" password="secret";'
        self.ways: dict[str, dict[str, str]] = {
            "PLAINTEXT": {"bootstrap.servers": self.plain},
            "SSL": {
                "bootstrap.servers": f"127.0.0.1:{ports['SSL']}",
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(pem.with_name("cert.pem")),
            },
            "PLAIN": {**sasl, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule {user}"},
        }
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            self.ways[mechanism] = {
                **sasl,
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule {user}",
            }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    home = tmp_path_factory.mktemp("kafka")
    pem, ports = certificate(home), {name: free_port() for name in ("SASL_PLAINTEXT", "SSL")}
    listeners = ["PLAINTEXT://127.0.0.1:$port", *(f"{name}://127.0.0.1:{port}" for name, port in ports.items())]
    jaas = "listener.name.sasl_plaintext.{}.sasl.jaas.config"
    settings = {
        "listeners": ",".join(listeners),
        "sasl.enabled.mechanisms": MECHANISMS,
        jaas.format("plain"): f'{LOGIN}.plain.PlainLoginModule required user_ada="secret";',
        jaas.format("scram-sha-256"): f"{LOGIN}.scram.ScramLoginModule required;",
        jaas.format("scram-sha-512"): f"{LOGIN}.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
    }
    with zookeeper(home / "zk") as zk, broker(home / "broker", zk, **settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion("ada", ScramCredentialInfo(mechanism, 4096), b"secret")
            for future in admin.alter_user_scram_credentials([credential]).values():
                future.result(120)
        yield Kafka(running, ports, pem)
        CLUSTERS.close()


def write(client: Mapping[str, str], topic: str, batch: int, staging: Path) -> bool:
    options = write_options({**{f"kafka.{name}": value for name, value in client.items()}, "topic": topic})
    values = [f"{batch}-{n}" for n in range(ROWS)]
    left = stage(
        iter([pa.record_batch({"key": values, "value": values})]), options, Staging.of(str(staging), topic), topic
    )
    with ClusterClient(options.client) as cluster:
        return write_once(cluster, ClientTransaction(cluster, topic, 60_000), [left], BatchNote(topic, batch))


def read(client: Mapping[str, str], topic: str) -> list[str]:
    options = {f"kafka.{name}": value for name, value in client.items()}
    reader = BatchReader(
        read_options({**options, "subscribe": topic, "kafka.isolation.level": "read_committed"}, streaming=False)
    )
    columns = [rows.column("value").to_pylist() for part in reader.partitions() for rows in reader.read(part)]
    return sorted(value.decode() for values in columns for value in values)


@pytest.mark.parametrize("way", ["PLAINTEXT", "SSL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_through_any_listener_batches_are_written_once_and_read(kafka: Kafka, way: str, tmp_path: Path) -> None:
    topic = f"orders-{way}"
    create_topic(kafka.plain, topic, 2)
    assert write(kafka.ways[way], topic, 0, tmp_path)
    assert write(kafka.ways[way], topic, 1, tmp_path)
    assert not write(kafka.ways[way], topic, 1, tmp_path)
    assert read(kafka.ways[way], topic) == sorted(f"{batch}-{n}" for batch in range(2) for n in range(ROWS))


@pytest.mark.parametrize(
    ("way", "changed", "words"),
    [
        (
            "PLAIN",
            {"sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required username="ada" password="wrong";'},
            "refuses the login",
        ),
        (
            "SCRAM-SHA-256",
            {"sasl.jaas.config": f'{LOGIN}.scram.ScramLoginModule required username="ada" password="wrong";'},
            "refuses the login",
        ),
        ("PLAIN", {"sasl.mechanism": "OAUTHBEARER"}, "PlainLoginModule is not for OAUTHBEARER"),
        ("PLAIN", {"sasl.jaas.config": ""}, "Login module not specified"),
        ("SSL", {"ssl.truststore.location": "/nowhere.pem"}, "/nowhere.pem, No such file"),
        ("SSL", {"ssl.truststore.type": "JKS"}, "it is not a JKS store"),
    ],
)
def test_a_refused_login_is_reported_with_its_reason(
    kafka: Kafka, way: str, changed: dict[str, str], words: str
) -> None:
    with pytest.raises(AccessRefused) as error, ClusterClient({**kafka.ways[way], **changed}) as cluster:
        cluster.topics()
    assert all(word in str(error.value) for word in words.split(", "))


def test_a_replaced_producer_is_fenced(kafka: Kafka) -> None:
    with ClusterClient({"bootstrap.servers": kafka.plain}) as cluster:
        first, second = ClientTransaction(cluster, "one", 60_000), ClientTransaction(cluster, "one", 60_000)
        first.begin()
        second.begin()
        with pytest.raises(Fenced):
            first.add(cluster.created_topic("fenced").partitions)


def test_a_topic_of_ours_is_mirrored_to_kafka(kafka: Kafka, tmp_path: Path) -> None:
    with leadline(tmp_path / "data") as source:
        create_topic(source.bootstrap, "mirrored", 2, cleanup_policy="compact")
        near, far = {"bootstrap.servers": source.bootstrap}, {"bootstrap.servers": kafka.plain}
        for batch in range(3):
            write(near, "mirrored", batch, tmp_path)
        spec = MirrorSpec(
            name="m", source=near, target=far, topics=SubscribedTopics(("mirrored",)), staging=str(tmp_path)
        )
        with ClusterClient(near) as near_client, ClusterClient(far) as far_client:
            mirror = Mirror(spec, lambda jobs: [run_copy_task(job) for job in jobs], near_client, far_client)
            mirror.load()
            assert mirror.round().records == 3 * ROWS
            assert mirror.round().records == 0
        assert read(far, "mirrored") == read(near, "mirrored")
        CLUSTERS.close()
