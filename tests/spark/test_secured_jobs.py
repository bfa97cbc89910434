"""Spark's options and the pipeline's commands over SASL_SSL, with ACLs: on a broker of ours, with one session."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leadline.cli import main
from leadline.cli.pipeline import mirror, replay, report, run, table, verify
from leadline.config.security import LOGIN_HANDLERS, SIGNED_HANDLER
from leadline.security.jaas import OAUTHBEARER_LOGIN_MODULE
from leadline.spark.topics.read_tasks import CLUSTERS
from pyspark_leadline import DefaultSource
from tests.support.lasting_session import Lasting
from tests.support.secured_broker import SCRAM_PASSWORD, SecuredBroker, secured_broker
from tests.support.topics import create_topic
from tests.support.web_tokens import jwk, key_set, signed

RECORDS = 20
WORKER, NOBODY = "worker", "nobody"
TOPICS = ("orders", "copies", "again", "far.orders")
RIGHTS = (
    *((f"topic:{topic}", "read,write,create,describe_configs") for topic in TOPICS),
    ("topic:leadline-mirror-m", "read,write,create,describe_configs"),
    ("group:*", "read"),
    ("transactional_id:*", "write"),
)
CommandResult = tuple[int, str]


@pytest.fixture(scope="module")
def broker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    (folder / "keys").write_bytes(key_set(jwk("rsa")))
    bearer = "listener.name.sasl_ssl.oauthbearer"
    changes = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": SIGNED_HANDLER,
        f"{bearer}.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        f"{bearer}.sasl.server.callback.handler.class": SIGNED_HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/keys",
    }
    with secured_broker(folder, changes) as started:
        for user in (WORKER, NOBODY):
            started.add_scram_user(user)
            started.write_client_properties(user, SCRAM_PASSWORD)
        servers = f"localhost:{started.broker.addresses['PLAINTEXT'].port}"
        for topic in TOPICS[:3]:
            create_topic(servers, topic, 2)
        producer = Producer({"bootstrap.servers": servers})
        for number in range(RECORDS):
            producer.produce("orders", f"v{number}".encode())
        assert producer.flush() == 0
        started.allow((WORKER, resource, operations) for resource, operations in RIGHTS)
        spark.dataSource.register(DefaultSource)
        yield started
        CLUSTERS.close()


def options_of(broker: SecuredBroker, user: str) -> dict[str, str]:
    """Of Spark."""
    return {f"kafka.{name}": value for name, value in broker.client_properties(user, SCRAM_PASSWORD).items()}


def values(spark: SparkSession, topic: str, options: dict[str, str]) -> set[str]:
    read = spark.read.format("leadline").options(**options, subscribe=topic).load()
    return {row[0] for row in read.select(F.col("value").cast("string")).collect()}


EXPECTED = {f"v{number}" for number in range(RECORDS)}


def test_a_batch_is_read_by_scram(spark: SparkSession, broker: SecuredBroker) -> None:
    assert values(spark, "orders", options_of(broker, WORKER)) == EXPECTED


def test_a_batch_is_read_by_oauthbearer(spark: SparkSession, broker: SecuredBroker, tmp_path: Path) -> None:
    now_s = int(time.time())
    (tmp_path / "token").write_text(signed({"sub": WORKER, "iat": now_s, "exp": now_s + 3600}))
    options = options_of(broker, WORKER) | {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        "kafka.sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
        "kafka.sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    }
    assert values(spark, "orders", options) == EXPECTED


def test_a_stream_writes_to_a_topic(spark: SparkSession, broker: SecuredBroker, tmp_path: Path) -> None:
    options = options_of(broker, WORKER)
    reader = spark.readStream.format("leadline").options(**options, subscribe="orders", startingOffsets="earliest")
    writer = reader.load().writeStream.format("leadline").options(**options, topic="copies")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(300)
    assert values(spark, "copies", options) == EXPECTED


def test_a_user_without_the_right_reads_nothing_and_shows_no_secret(spark: SparkSession, broker: SecuredBroker) -> None:
    with pytest.raises(PySparkException, match=r"(?i)topic.?authorization") as error:
        values(spark, "orders", options_of(broker, NOBODY))
    assert SCRAM_PASSWORD not in str(error.value)


@pytest.fixture
def typed(
    spark: SparkSession, broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., CommandResult]:
    for module in (table, verify, replay, mirror, report, run):
        monkeypatch.setattr(module, "start_spark", lambda *_: Lasting(spark))

    def type_in(user: str | None, *arguments: object) -> CommandResult:
        file = [] if user is None else ["--command-config", str(broker._folder / f"{user}.properties")]
        servers = broker.client_properties("", "")["bootstrap.servers"]
        words = ["pipeline", *map(str, arguments), "--bootstrap-server", servers, "--timeout", "30"]
        code = main([*words, *file])
        return code, capsys.readouterr().err

    return type_in


def jobs(broker: SecuredBroker, folder: Path, user: str | None) -> dict[str, list[object]]:
    """The words of each command that connects."""
    file = [] if user is None else ["--to-config", broker._folder / f"{user}.properties"]
    servers = broker.client_properties("", "")["bootstrap.servers"]
    (folder / "jobs.toml").write_text(f'[[tables]]\ntopics = ["orders"]\ntable = "{folder}/{{topic}}-of-many"\n')
    return {
        "table": ["table", "orders", folder / "orders", "--once"],
        "verify": ["verify", folder / "orders"],
        "replay": ["replay", folder / "orders", "again", "--name", "r"],
        "report": ["report", "orders", "--out", folder / "report.html"],
        "run": ["run", folder / "jobs.toml", "--once"],
        "mirror": ["mirror", "orders", "--to", servers, "--prefix", "far.", "--name", "m", "--once", *file],
    }


def test_the_commands_of_the_pipeline_work_with_their_file_and_end_with_one_line_without_it(
    typed: Callable[..., CommandResult], broker: SecuredBroker, tmp_path: Path
) -> None:
    for job, words in jobs(broker, tmp_path, WORKER).items():
        code, error = typed(WORKER, *words)
        assert code == 0, f"{job}: {error}"
    for user in (None, NOBODY):
        folder = tmp_path / str(user)
        folder.mkdir()
        for job, words in jobs(broker, folder, user).items():
            words = [word if word != folder / "orders" or job == "table" else tmp_path / "orders" for word in words]
            code, error = typed(user, *words)
            lines = [line for line in error.splitlines() if job != "run" or line.startswith("leadline: ")]
            assert (code, len(lines)) == (1, 1), f"{job}: {error}"  # run reports on all of its topics
            assert lines[0].startswith("leadline: ")
            assert "Traceback" not in error
            assert SCRAM_PASSWORD not in error
