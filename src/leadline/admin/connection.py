"""The connection of a command to a cluster: clients, metadata, the time limit, and reasons for failures.

The client is librdkafka, through confluent-kafka. It is imported when a command first needs it, so that
`leadline --help` and `leadline start` do not wait for it.
"""

import argparse
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, TypeVar

from leadline.admin.diagnosis import (
    ANSWER_S,
    KAFKA,
    Diagnoses,
    ServerAddress,
    addresses,
    diagnose,
    diagnose_broker,
    diagnose_for_tls,
    diagnose_tls_broker,
)
from leadline.admin.errors import Failure, client_error_text, client_errors
from leadline.config.properties import decode_properties
from leadline.config.settings import nearest
from leadline.config.values import InvalidSetting
from leadline.model import BrokerId
from leadline.security.client_properties import PREFIXES, ClientStores, SecurityProperties, librdkafka_stores
from leadline.spark.client.login_tokens import NoToken, login_tokens

if TYPE_CHECKING:
    import logging

    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata

T = TypeVar("T")

DEFAULT_SERVER = "localhost:9092"
MIN_TIMEOUT_S = 0.001
SILENCE_S = 0.5  # without an answer, until all brokers are checked
BROKER_ANSWER_S = 2.0  # a broker that takes longer counts as silent, unless --timeout is short
LOGIN_HINT = "it speaks Kafka's protocol, and may require a login (security.protocol)"
ATTEMPT_S = 0.25  # of one request for metadata
_LACKS_KERBEROS = "No provider for SASL mechanism GSSAPI"
WITHOUT_KERBEROS = (
    "sasl.mechanism=GSSAPI: librdkafka, as confluent-kafka's wheels have it, was built without Kerberos: build "
    "confluent-kafka with a librdkafka that has it, use another listener, or Kafka's own tools"
)
_UNKNOWN_PROPERTY = re.compile(r'No such configuration property: "([^"]*)"')

# Properties of Java's clients that librdkafka does not have, and that mean nothing to a command.
WITHOUT_EFFECT = frozenset(
    """
    auto.include.jmx.reporter default.api.timeout.ms exclude.internal.topics key.deserializer key.serializer
    max.poll.records metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    receive.buffer.bytes send.buffer.bytes value.deserializer value.serializer
    """.split()
)


class ClusterConnection:
    """Clients of one cluster, built from the options. They print nothing, and keep the errors of their connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        properties: dict[str, str] = {}
        if options.command_config is not None:
            properties = decode_properties(options.command_config.read_bytes())
        properties |= dict(map(_pair, options.property))
        if options.bootstrap_server is not None:
            properties["bootstrap.servers"] = options.bootstrap_server
        properties.setdefault("bootstrap.servers", DEFAULT_SERVER)
        properties.setdefault("client.id", "leadline")
        self.configured_properties = properties  # under the names of Kafka's clients or of librdkafka
        self.security = checked_security(properties)
        self._properties: dict[str, str] | None = None
        self._stores: ClientStores | None = None
        option = "bootstrap.servers" if options.bootstrap_server is None else "--bootstrap-server"
        self._addresses = self._checked(option, properties["bootstrap.servers"])
        self.servers = ",".join(map(str, self._addresses))
        self.timeout_s: float = options.timeout
        self._deadline: float = time.monotonic() + self.timeout_s
        self.brokers: dict[BrokerId, ServerAddress] = {}  # of the latest metadata
        self.controller: BrokerId = -1
        self.answering_server: ServerAddress | None = None  # the broker that sent the metadata
        self._silent: dict[BrokerId, str] | None = None
        self._begun_diagnoses: Diagnoses | None = None
        self._errors: list[KafkaError] = []  # of the client's connections, the newest last

    def _checked(self, name: str, servers: str) -> list[ServerAddress]:
        try:
            return addresses(servers)
        except ValueError as error:
            raise Failure(f"{name} {error}") from None

    @property
    def properties(self) -> dict[str, str]:
        """The properties for librdkafka. Kafka's own stores are not among them: `_create` adds them."""
        if self._properties is None:
            general = {
                name: value
                for name, value in self.configured_properties.items()
                if name not in WITHOUT_EFFECT and not name.startswith(PREFIXES)
            }
            self._properties = {**general, **settings_or_failure(self.security.librdkafka)}
            self._properties.setdefault("log_level", "0")
        return self._properties

    @property
    def stores(self) -> ClientStores:
        if self._stores is None:
            self._stores = settings_or_failure(lambda: self.security.stores(read_file))
        return self._stores

    @property
    def remaining_s(self) -> float:
        """The rest of --timeout, which limits the whole command. Never 0, which means no limit to some calls."""
        return max(self._deadline - time.monotonic(), MIN_TIMEOUT_S)

    def restart_timeout(self, limit_s: float = math.inf) -> None:
        """Start --timeout again: in a command without a time limit it limits each step. `limit_s`: a shorter one."""
        self._deadline = time.monotonic() + min(self.timeout_s, limit_s)

    def _on_error(self, error: "KafkaError") -> None:
        self._errors.append(error)

    def admin(self) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        return self._create(AdminClient, {})

    def producer(self, required: Mapping[str, str], logger: "logging.Logger | None" = None) -> "Producer":
        from confluent_kafka import Producer

        optional = {} if logger is None else {"logger": logger}
        return self._create(Producer, required, **optional)

    def consumer(self, required: Mapping[str, str]) -> "Consumer":
        from confluent_kafka import Consumer

        return self._create(Consumer, required)

    def _token(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """The token of OAUTHBEARER that librdkafka asks for where it cannot get one by itself."""
        tokens = login_tokens(self.security)
        token = tokens.token()
        return token.text.reveal_text(), token.expires_ms / 1000, "", dict(tokens.extensions)

    def check_token(self) -> None:
        """Raises Failure if there is no token, before a client tries to get one."""
        try:
            settings_or_failure(lambda: self._token(""))
        except NoToken as error:
            raise Failure(f"cannot reach {self.servers}: {error}") from None

    def _create(self, make: Callable[..., T], required: Mapping[str, str], **optional: object) -> T:
        """The client. A Failure names all properties that it does not have, or the first with a wrong value."""
        if self.security.needs_token_callback:
            self.check_token()
            optional["oauth_cb"] = self._token
        properties, unknown = {**self.properties, **required}, list[str]()
        with librdkafka_stores(self.stores) as stores:
            while True:
                try:
                    client = make({**properties, **stores}, error_cb=self._on_error, **optional)
                except client_errors() as error:
                    text = error.args[0].str()
                    if _LACKS_KERBEROS in text:
                        raise Failure(f"client properties: {WITHOUT_KERBEROS}") from None
                    if (name := _unknown_property(text)) not in properties:
                        raise Failure(f"client properties: {text}") from None
                    unknown.append(name)
                    del properties[name]
                else:
                    break
        if unknown:
            raise Failure(f"client properties: there is no property {', '.join(sorted(unknown))}")
        return client

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
                diagnoses = diagnoses or self._diagnoses()
                if self._has_final_error() or diagnoses.are_final or self.remaining_s <= MIN_TIMEOUT_S:
                    diagnoses.wait(min(self.remaining_s, ANSWER_S))
                    raise self._unreachable(self._last_error_text(error.args[0]), diagnoses) from None

    @contextmanager
    def diagnosing(self) -> Iterator[None]:
        """For another client: after a quarter of --timeout, find out what its servers are, for `unreachable`."""

        def begin() -> None:
            self._begun_diagnoses = self._diagnoses()

        timer = Timer(self.timeout_s / 4, begin)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def unreachable(self, text: str) -> Failure:
        """What is wrong with servers that another client could not reach. `text`: the error of that client."""
        diagnoses = self._begun_diagnoses or self._diagnoses()
        diagnoses.wait(min(self.remaining_s, ANSWER_S))
        return self._unreachable(text, diagnoses)

    def _diagnoses(self) -> Diagnoses:
        """If the client speaks TLS, a server that does so is not reported as a problem: it may be slow."""
        diagnose_server = diagnose_for_tls if self.security.uses_tls else diagnose
        return Diagnoses(self._addresses, min(ANSWER_S, self.timeout_s / 4), diagnose_server)

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
        is_tls = self.security.uses_tls
        answer_s = min(BROKER_ANSWER_S, self.remaining_s / 3)
        diagnoses = Diagnoses(self.brokers.values(), answer_s, diagnose_tls_broker if is_tls else diagnose_broker)
        diagnoses.wait(answer_s * 2)
        by_broker = {id: diagnoses.by_server.get(address) for id, address in self.brokers.items()}
        return {
            id: f"broker {id} at {self.brokers[id]} does not answer"
            for id, diagnosis in sorted(by_broker.items())
            if diagnosis is None or not diagnosis.is_there
        }

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

    def _unreachable(self, text: str, diagnoses: Diagnoses) -> Failure:
        return Failure(f"cannot reach {self.servers}: {self._reason(text, diagnoses)}")

    def _reason(self, text: str, diagnoses: Diagnoses) -> str:
        """What the servers are, if they are not brokers. Otherwise the last error of the client."""
        by_server = {} if KAFKA in diagnoses.by_server.values() else diagnoses.by_server
        texts = {server: diagnosis.text for server, diagnosis in by_server.items()}
        if len(texts) == len(self._addresses) == 1:
            return next(iter(texts.values()))
        if texts:
            return "; ".join(f"{server}: {text}" for server, text in texts.items())
        may_need_login = diagnoses.by_server and self.security.mechanism is None
        return f"{text}; {LOGIN_HINT}" if may_need_login else text

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


def checked_security(properties: Mapping[str, str]) -> SecurityProperties:
    return settings_or_failure(lambda: SecurityProperties.of(properties))


def settings_or_failure(make: Callable[[], T]) -> T:
    """Call something that depends on client properties. An InvalidSetting becomes a Failure."""
    try:
        return make()
    except InvalidSetting as error:
        raise Failure(f"client properties: {error}") from None


def read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def _unknown_property(text: str) -> str:
    """Its name, if that is what librdkafka's error is about; otherwise nothing."""
    match = _UNKNOWN_PROPERTY.search(text)
    return match[1] if match else ""


def administer(options: argparse.Namespace) -> "tuple[ClusterConnection, AdminClient]":
    """A connection and an admin client, after a broker has answered."""
    connection = ClusterConnection(options)
    admin = connection.admin()
    connection.metadata(admin)
    return connection, admin


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name.strip() and separator):
        raise Failure(f"--property {text}: expected KEY=VALUE")
    return name.strip(), value


def no_topic(name: str, topics: Mapping[str, object] | Sequence[str]) -> Failure:
    return Failure(f"there is no topic {name}{nearest(name, topics)}")
