"""The connection of a command: its properties, its errors, and brokers that do not answer."""

import argparse
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from leadline.admin import connection as module
from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.cli.options import connection_options
from tests.support.certificates import new_authority
from tests.support.java_stores import jks


def options(*arguments: str) -> argparse.Namespace:
    return connection_options().parse_args(arguments)


class MetadataClient:
    """A client whose cluster has the topic `orders`, and two brokers of which 1 is the controller."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.requested: list[tuple[Any, ...]] = []
        nodes = {1: SimpleNamespace(host="one", port=9092), 2: SimpleNamespace(host="two", port=9093)}
        orders = SimpleNamespace(error=error, partitions={0: "partition 0"})
        self._metadata = SimpleNamespace(brokers=nodes, controller_id=1, orig_broker_id=2, topics={"orders": orders})

    def list_topics(self, *arguments: Any, timeout: float) -> Any:
        self.requested.append(arguments)
        return self._metadata


def connected(*arguments: str, error: KafkaError | None = None) -> tuple[ClusterConnection, Any]:
    connection, client = ClusterConnection(options(*arguments)), MetadataClient(error)
    connection.metadata(client)  # type: ignore[arg-type]
    return connection, client


def test_options_override_properties_and_properties_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nlinger.ms=5\n")
    connection = ClusterConnection(options("--command-config", str(file), "--property", "client.id=option"))
    assert connection.properties == {
        "bootstrap.servers": "file:1",
        "client.id": "option",
        "linger.ms": "5",
        "log_level": "0",
    }
    connection = ClusterConnection(options("--command-config", str(file), "--bootstrap-server", "here:2"))
    assert connection.servers == "here:2"
    assert ClusterConnection(options()).servers == "localhost:9092"


def test_errors_name_the_usual_port_where_none_is_given() -> None:
    assert ClusterConnection(options("--bootstrap-server", "a, SSL://b:1,[::1]")).servers == "a:9092,b:1,[::1]:9092"


def test_all_properties_that_do_not_exist_are_named_at_once() -> None:
    unknown = ("--property", "linger.mss=5", "--property", "acl=1", "--property", "default.api.timeout.ms=5")
    with pytest.raises(Failure, match=r"^client properties: there is no property acl, linger\.mss$"):
        ClusterConnection(options(*unknown)).admin()
    with pytest.raises(Failure, match=r"^client properties: there is no property ssl\.x, ssl\.y$"):
        ClusterConnection(options("--property", "ssl.x=1", "--property", "ssl.y=1"))


def test_a_librdkafka_without_kerberos_is_named_with_what_helps() -> None:
    kerberos = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=GSSAPI", "sasl.kerberos.service.name=kafka")
    connection = ClusterConnection(options(*(part for text in kerberos for part in ("--property", text))))
    for create in (connection.admin, lambda: connection.producer({})):
        with pytest.raises(Failure, match=r"GSSAPI: librdkafka, .* without Kerberos: .* Kafka's own tools$"):
            create()


def test_a_java_trust_store_reaches_librdkafka(tmp_path: Path) -> None:
    (tmp_path / "trust.jks").write_bytes(jks("store-secret", {}, {"ca": new_authority()}))
    (tmp_path / "client.properties").write_text(
        f"security.protocol=SSL\nssl.truststore.location={tmp_path}/trust.jks\nssl.truststore.password=store-secret\n"
    )
    ClusterConnection(options("--command-config", str(tmp_path / "client.properties"))).admin()
    (tmp_path / "trust.jks").write_bytes(b"none")
    with pytest.raises(Failure, match=r"trust\.jks of type JKS: it is not a JKS store$"):
        ClusterConnection(options("--command-config", str(tmp_path / "client.properties"))).admin()


def test_the_broker_that_answered_is_known() -> None:
    connection, _ = connected()
    assert (connection.controller, connection.answering_server) == (1, ("two", 9093))


def test_partitions_are_found_without_a_request_that_could_create_the_topic() -> None:
    connection, client = connected()
    assert list(connection.partitions_of(client, "orders")) == [0]
    assert all(arguments == () for arguments in client.requested)
    with pytest.raises(Failure, match=r"there is no topic order \(did you mean orders\?\)"):
        connection.partitions_of(client, "order")


def test_an_error_of_the_topic_is_one_line() -> None:
    connection, client = connected(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(Failure, match=r"topic orders: .* \(TOPIC_AUTHORIZATION_FAILED\)"):
        connection.partitions_of(client, "orders")


@pytest.mark.parametrize(("silent", "role"), [(1, ", which is the controller"), (2, "")])
def test_a_time_out_names_the_brokers_that_do_not_answer(
    silent: int, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.001)
    connection, _ = connected()
    connection._silent = {silent: f"broker {silent} does not answer"}
    with pytest.raises(Failure, match=f"^broker {silent} does not answer{role}$"):
        connection.wait(failing_later(KafkaError._TIMED_OUT))


def test_other_errors_and_time_outs_of_answering_brokers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.001)
    connection, _ = connected()
    for silent, code in (({}, KafkaError._TIMED_OUT), ({2: "silent"}, KafkaError.INVALID_CONFIG)):
        connection._silent = silent
        with pytest.raises(KafkaException):
            connection.wait(failing_later(code))


def failing_later(code: int) -> "Future[None]":
    """A result that is not there at first."""

    class Later(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            if timeout is not None:
                raise TimeoutError
            raise KafkaException(KafkaError(code))

    return Later()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("localhost:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)",
         "Connection refused"),
        ("sasl_plaintext://here:1/bootstrap: SASL authentication error: bad (after 5ms in state AUTH_REQ, 1 identical)",
         "SASL authentication error: bad"),
        ("Local: Host resolution failure", "Host resolution failure"),
    ],
)  # fmt: skip
def test_an_error_of_the_client_is_shown_without_its_own_state(text: str, shown: str) -> None:
    connection = ClusterConnection(options())
    assert connection._last_error_text(KafkaError(KafkaError._TRANSPORT, text)) == shown


def test_the_last_error_of_a_connection_counts_but_not_that_all_brokers_are_down() -> None:
    connection = ClusterConnection(options())
    connection._errors = [
        KafkaError(KafkaError._TRANSPORT, "first"),
        KafkaError(KafkaError._TRANSPORT, "second"),
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
    ]
    assert connection._last_error_text(KafkaError(KafkaError._TIMED_OUT, "timed out")) == "second"
