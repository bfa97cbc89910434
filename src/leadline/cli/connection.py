"""The connection of a command to a cluster: clients, metadata, the time limit, and reasons for failures.

The client is librdkafka, through confluent-kafka. It is imported when a command first needs it, so that
`leadline --help` and `leadline start` do not wait for it.
"""

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from leadline.cli.diagnosis import (
    ANSWER_S,
    KAFKA,
    Diagnoses,
    ServerAddress,
    addresses,
    diagnose_broker,
    diagnose_tls_broker,
)
from leadline.cli.errors import Failure, client_error_text, client_errors, print_error
from leadline.cli.options import DEFAULT_SERVER, key_value
from leadline.config.client_properties import librdkafka_properties
from leadline.config.properties import parse_properties
from leadline.config.settings import nearest
from leadline.config.values import InvalidSetting
from leadline.model import BrokerId

if TYPE_CHECKING:
    import logging

    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata

T = TypeVar("T")

MIN_TIMEOUT_S = 0.001
SILENCE_S = 0.5  # without an answer, until all brokers are checked
BROKER_ANSWER_S = 2.0  # a broker that takes longer counts as silent, unless --timeout is short
LOGIN_HINT = "it speaks Kafka's protocol, and may require a login (security.protocol)"
ATTEMPT_S = 0.25  # of one request for metadata


class ClusterConnection:
    """Clients of one cluster, as the options say. They print nothing, and keep the errors of their connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        properties: dict[str, str] = {}
        if options.command_config is not None:
            properties = parse_properties(options.command_config.read_text())
        properties |= dict(key_value(pair) for pair in _pairs(options.property))
        self.properties = _client_properties(properties)
        if options.bootstrap_server is not None:
            self.properties["bootstrap.servers"] = options.bootstrap_server
        self.properties.setdefault("bootstrap.servers", DEFAULT_SERVER)
        self.properties.setdefault("client.id", "leadline")
        self.properties.setdefault("log_level", "0")
        self.servers = self.properties["bootstrap.servers"]
        self._addresses = self._checked("--bootstrap-server" if options.bootstrap_server else "bootstrap.servers")
        self.timeout_s: float = options.timeout
        self._deadline: float = time.monotonic() + self.timeout_s
        self.brokers: dict[BrokerId, ServerAddress] = {}  # of the latest metadata
        self.controller: BrokerId = -1
        self.answering_server: ServerAddress | None = None  # the broker that sent the metadata
        self._silent: dict[BrokerId, str] | None = None
        self._errors: list[KafkaError] = []  # of the client's connections, the newest last

    def _checked(self, name: str) -> list[ServerAddress]:
        try:
            return addresses(self.servers)
        except ValueError as error:
            raise Failure(f"{name} {error}") from None

    @property
    def remaining_s(self) -> float:
        """What is left of --timeout, which limits the whole command. Never 0, which means no limit to some calls."""
        return max(self._deadline - time.monotonic(), MIN_TIMEOUT_S)

    def restart_timeout(self) -> None:
        """Start --timeout again: in a command without a time limit it limits each step."""
        self._deadline = time.monotonic() + self.timeout_s

    def _on_error(self, error: "KafkaError") -> None:
        self._errors.append(error)

    def admin(self) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        return self._create(lambda: AdminClient({**self.properties}, error_cb=self._on_error))

    def producer(self, required: Mapping[str, str], logger: "logging.Logger | None" = None) -> "Producer":
        from confluent_kafka import Producer

        optional = {} if logger is None else {"logger": logger}
        return self._create(lambda: Producer({**self.properties, **required}, error_cb=self._on_error, **optional))

    def consumer(self, required: Mapping[str, str]) -> "Consumer":
        from confluent_kafka import Consumer

        return self._create(lambda: Consumer({**self.properties, **required}, error_cb=self._on_error))

    def _create(self, make: Callable[[], T]) -> T:
        """The client. A Failure names a property that it refuses."""
        try:
            return make()
        except client_errors() as error:
            raise Failure(f"client properties: {error.args[0].str()}") from None

    def metadata(self, client: "AdminClient | Producer | Consumer", topic: str | None = None) -> "ClusterMetadata":
        """The metadata of the cluster. A Failure once it is clear that no broker answers."""
        from confluent_kafka import KafkaException

        diagnoses: Diagnoses | None = None
        while True:
            attempt_s = min(self.remaining_s, ATTEMPT_S)
            try:
                cluster: ClusterMetadata = (
                    client.list_topics(timeout=attempt_s)
                    if topic is None
                    else client.list_topics(topic, timeout=attempt_s)
                )
                return self._store(cluster)
            except KafkaException as error:
                client.poll(0)  # calls `_on_error`
                diagnoses = diagnoses or Diagnoses(self._addresses, min(ANSWER_S, self.timeout_s / 4))
                if self._has_final_error() or diagnoses.are_final or self.remaining_s <= MIN_TIMEOUT_S:
                    diagnoses.wait(min(self.remaining_s, ANSWER_S))
                    raise Failure(f"cannot reach {self.servers}: {self._reason(error.args[0], diagnoses)}") from None

    def refresh(self, cluster: "ClusterMetadata") -> None:
        """Forget which brokers were silent."""
        self._store(cluster)
        self._silent = None

    def _store(self, cluster: "ClusterMetadata") -> "ClusterMetadata":
        self.brokers = {id: ServerAddress(str(node.host), node.port) for id, node in cluster.brokers.items()}
        self.controller = cluster.controller_id
        self.answering_server = self.brokers.get(cluster.orig_broker_id)
        return cluster

    @property
    def silent(self) -> dict[BrokerId, str]:
        """The brokers that do not answer, each with a text. All brokers are checked at the same time."""
        if self._silent is None:
            self._silent = {} if len(self.brokers) < 2 else self._find_silent()
        return self._silent

    def _find_silent(self) -> dict[BrokerId, str]:
        is_tls = "SSL" in self.properties.get("security.protocol", "").upper()
        answer_s = min(BROKER_ANSWER_S, self.remaining_s / 3)
        diagnoses = Diagnoses(self.brokers.values(), answer_s, diagnose_tls_broker if is_tls else diagnose_broker)
        diagnoses.wait(answer_s * 2)
        by_broker = {id: diagnoses.by_server.get(address) for id, address in self.brokers.items()}
        return {
            id: f"broker {id} at {self.brokers[id].host}:{self.brokers[id].port} does not answer"
            for id, diagnosis in sorted(by_broker.items())
            if diagnosis is None or not diagnosis.is_there
        }

    def report_silent(self, what: str) -> int:
        """Print a line for each broker that does not answer. Returns the exit code: 1 if the output is incomplete."""
        for text in self.silent.values():
            print_error(f"{text}: {what}")
        return 1 if self.silent else 0

    def _has_final_error(self) -> bool:
        from confluent_kafka import KafkaError

        final = {
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._AUTHENTICATION,
            KafkaError._RESOLVE,
            KafkaError._SSL,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.UNSUPPORTED_SASL_MECHANISM,
        }
        return any(error.code() in final for error in self._errors)

    def _reason(self, error: "KafkaError", diagnoses: Diagnoses) -> str:
        """What the servers are, if they are no brokers. Otherwise the last error of the client."""
        by_server = {} if KAFKA in diagnoses.by_server.values() else diagnoses.by_server
        texts = {server: diagnosis.text for server, diagnosis in by_server.items()}
        if len(texts) == len(self._addresses) == 1:
            return next(iter(texts.values()))
        if texts:
            return "; ".join(f"{server.host}:{server.port}: {text}" for server, text in texts.items())
        may_need_login = diagnoses.by_server and "SASL" not in self.properties.get("security.protocol", "").upper()
        return f"{self._last_error_text(error)}; {LOGIN_HINT}" if may_need_login else self._last_error_text(error)

    def _last_error_text(self, error: "KafkaError") -> str:
        from confluent_kafka import KafkaError

        errors = [trouble for trouble in self._errors if trouble.code() != KafkaError._ALL_BROKERS_DOWN]
        text = errors[-1].str() if errors else error.str()
        text = re.sub(r"^\S+: (?=[A-Z])|^.*?/bootstrap: ", "", text)
        text = re.sub(r"^Connect to ipv\d#\S+ failed: ", "", text)
        return re.sub(r" \(after \d+ms in state \w+.*\)$", "", text).removeprefix("Local: ").rstrip(": ")

    def partitions_of(self, client: "Producer | Consumer", topic: str) -> "dict[int, PartitionMetadata]":
        """Requests the metadata of all topics: a request for one topic may create it."""
        topics = self.metadata(client).topics
        if topic not in topics:
            raise no_topic(topic, topics)
        if (error := topics[topic].error) is not None:
            raise Failure(f"topic {topic}: {client_error_text(error)}")
        return topics[topic].partitions

    def wait(self, future: "Future[T]") -> T:
        """The result of a request. Errors are confluent-kafka's. A time-out names the brokers that do not answer."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result(SILENCE_S)
        except TimeoutError:
            silent = self.silent
        try:
            return future.result()
        except KafkaException as error:
            if not silent or error.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise
            role = ", which is the controller" if self.controller in silent else ""
            raise Failure(f"{'; '.join(silent.values())}{role}") from None


def _client_properties(properties: Mapping[str, str]) -> dict[str, str]:
    try:
        return librdkafka_properties(properties)
    except InvalidSetting as error:
        raise Failure(str(error)) from None


def administer(options: argparse.Namespace) -> "tuple[ClusterConnection, AdminClient]":
    """A connection and an admin client, after a broker has answered."""
    connection = ClusterConnection(options)
    admin = connection.admin()
    connection.metadata(admin)
    return connection, admin


def _pairs(pairs: Sequence[str]) -> Sequence[str]:
    for pair in pairs:
        if "=" not in pair:
            raise Failure(f"--property {pair}: expected KEY=VALUE")
    return pairs


def no_topic(name: str, topics: Mapping[str, object] | Sequence[str]) -> Failure:
    return Failure(f"there is no topic {name}{nearest(name, topics)}")
