"""The admin client of kafka-python, for requests that librdkafka lacks: transactions, producers of a partition,
deletion of single offsets, reassignments, log directories.

kafka-python has no types: this package converts its results to our own. A security property that kafka-python does not
have is refused by name.
"""
# mypy: disable-error-code="import-untyped"

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from leadline.admin.connection import MIN_TIMEOUT_S, ClusterConnection, read_file, settings_or_failure
from leadline.admin.errors import Failure
from leadline.admin.formatting import host_text
from leadline.config.values import InvalidSetting
from leadline.model import BrokerId
from leadline.security.client_properties import JAAS, OAUTHBEARER, SecurityProperties
from leadline.security.key_stores import ReadFile
from leadline.spark.client.login_tokens import LoginTokens, login_tokens

T = TypeVar("T")

RETRY_S = 0.1


def admin_properties(properties: SecurityProperties, client_id: str, read: ReadFile) -> dict[str, object]:
    """The properties under kafka-python's names. InvalidSetting for a property that it does not support."""
    properties.check_own()
    translated: dict[str, object] = {"client_id": client_id, "security_protocol": properties.protocol}
    if properties.login is not None:
        if properties.login.by_token:
            raise InvalidSetting(f"{JAAS}: tokenauth: this command cannot log in with a delegation token")
        translated["sasl_mechanism"] = properties.mechanism
        translated["sasl_plain_username"] = properties.login.username
        translated["sasl_plain_password"] = properties.login.password.reveal_text()
    if properties.mechanism == OAUTHBEARER:
        translated["sasl_mechanism"] = OAUTHBEARER
        translated["sasl_oauth_token_provider"] = token_provider(login_tokens(properties))
    if properties.uses_tls:
        translated["ssl_context"] = properties.ssl_context(read)
        translated["ssl_check_hostname"] = properties.checks_names
    return translated


def token_provider(tokens: LoginTokens) -> object:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return tokens.token().text.reveal_text()

        def extensions(self) -> dict[str, str]:
            return dict(tokens.extensions)

    return TokenProvider()


@contextmanager
def kafka_python_admin(connection: ClusterConnection) -> Iterator["KafkaPythonAdmin"]:
    admin = connected_admin(connection)
    try:
        yield admin
    finally:
        admin.close()


def connected_admin(connection: ClusterConnection) -> "KafkaPythonAdmin":
    """The caller closes it."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # the caller reports errors itself
    client = _connected_client(connection)
    try:
        return KafkaPythonAdmin(client, connection)
    except BaseException:
        client.close()
        raise


def _connected_client(connection: ClusterConnection) -> Any:
    """A client that is connected through the broker that has already answered: others may be silent."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    server = connection.answering_server
    servers = connection.servers.split(",") if server is None else f"{host_text(server.host)}:{server.port}"
    properties = settings_or_failure(
        lambda: admin_properties(connection.security, connection.configured_properties["client.id"], read_file)
    )
    if connection.security.mechanism == OAUTHBEARER:
        connection.check_token()
    for timeout_s in (connection.remaining_s / 2, None):  # its first attempt may hang, and a second one succeed
        try:
            return KafkaAdminClient(
                bootstrap_servers=servers,
                request_timeout_ms=round(connection.remaining_s * 1000),
                bootstrap_timeout_ms=round((timeout_s or connection.remaining_s) * 1000),
                **properties,
            )
        except (KafkaError, ValueError, AssertionError) as error:
            if timeout_s is None or not isinstance(error, KafkaError):
                raise Failure(f"cannot reach {connection.servers}: {error}") from None
    raise AssertionError


class KafkaPythonAdmin:
    """Sends no request to a broker that does not answer, so that no command waits for it."""

    def __init__(self, admin: object, connection: ClusterConnection) -> None:
        from kafka import KafkaAdminClient

        assert isinstance(admin, KafkaAdminClient)
        self.client, self.connection = admin, connection
        for broker in self.answering[:1]:  # requests to any broker go to a connected one
            self._connect(broker)

    def close(self) -> None:
        self.client.close()

    @property
    def answering(self) -> list[BrokerId]:
        return sorted(self.connection.brokers.keys() - self.connection.silent.keys())

    def _connect(self, broker: BrokerId) -> None:
        from kafka.errors import KafkaError

        manager = self.client._manager

        async def connect() -> None:
            await manager.get_connection(broker)

        with suppress(KafkaError):  # the next request reports the error
            manager.run(connect)

    def request(self, what: str, ask: Callable[[], T], broker: BrokerId | None = None) -> T:
        """The response. Retriable errors are retried until --timeout: a coordinator may be loading.

        `broker`: the only broker that can answer, if that is known.
        """
        from kafka.errors import KafkaError

        if broker in (silent := self.connection.silent):
            raise Failure(f"{what}: {silent[broker]}")
        while True:
            self._limit()
            try:
                return ask()
            except KafkaError as error:
                if not error.retriable or self.connection.remaining_s <= MIN_TIMEOUT_S:
                    raise Failure(f"{what}: {error_text(error)}") from None
            time.sleep(RETRY_S)

    def _limit(self) -> None:
        """The rest of --timeout is for the next request. A connection keeps the time-out that it began with."""
        manager, timeout_s = self.client._manager, self.connection.remaining_s
        for config in (self.client.config, manager.config):
            config["request_timeout_ms"] = max(round(timeout_s * 1000), 1)
        for connection in manager._conns.values():
            connection._timeout_secs = timeout_s

    def request_controller(self, what: str, ask: Callable[[], T]) -> T:
        return self.request(f"{what}, which only the controller has", ask, self.connection.controller)

    def request_each(self, what: str, ask: Callable[[BrokerId], T], brokers: Iterable[BrokerId]) -> dict[BrokerId, T]:
        """The response of each broker, without those that do not answer.

        The requests go one after another: with several threads this client loses responses (kafka-python 3.0.12).
        """
        return {
            broker: self.request(f"{what} of broker {broker}", partial(ask, broker))
            for broker in brokers
            if broker not in self.connection.silent
        }

    def coordinator(self, what: str, key: str, kind: int) -> BrokerId:
        manager = self.client._manager
        return int(self.request(what, partial(manager.run, self.client._find_coordinator_id, key, kind)))


def error_text(error: Exception) -> str:
    """An error of kafka-python or a broker, with its name in parentheses."""
    from kafka.errors import BrokerResponseError, NodeNotReadyError

    if isinstance(error, NodeNotReadyError):
        return f"broker {error.args[0] if error.args else ''} does not answer"
    if isinstance(error, BrokerResponseError):
        return f"{error.description.rstrip('.')} ({error.message})"
    return str(error)
