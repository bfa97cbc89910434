"""Requests about ACLs, users, quotas and tokens, by our own client of the wire protocol.

librdkafka and kafka-python lack some of them: quotas, tokens, ACLs of users and tokens. Our own client has them all,
and can log in with a delegation token.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.errors import (
    ERROR_NAMES,
    ClusterAuthorizationFailed,
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    NotController,
    SecurityDisabled,
    WireError,
)
from leadline.model import BrokerId
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import Unreachable
from leadline.spark.client.failures import RequestFailed
from leadline.spark.errors import JobFailed
from leadline.wire.classes import Message

M = TypeVar("M", bound=Message)

_ADDRESS = re.compile(r"^(?:cannot reach )?\S+:\d+:? ")
_REQUEST_LIMIT = re.compile(r"no answer within [\d.e-]+ s")
REFUSED_S = 1.0  # refused connections are retried for this long

# What a broker answers without a message of its own.
TEXTS: dict[type[WireError], str] = {
    ClusterAuthorizationFailed: "Cluster authorization failed",
    NotController: "This is not the correct controller for this cluster",
    SecurityDisabled: "No authorizer is configured on the broker",
    DelegationTokenAuthDisabled: "Delegation tokens are off: the brokers have no delegation.token.secret.key",
    DelegationTokenNotFound: "The brokers have no such delegation token",
    DelegationTokenOwnerMismatch: "You are neither the owner nor a renewer of this token",
    DelegationTokenRequestNotAllowed: (
        "Tokens are only given over TLS with a certificate or a SASL login, and not to those who came with a token"
    ),
    DelegationTokenAuthorizationFailed: "Not allowed to create a token for another user",
    DelegationTokenExpired: "The token has expired",
    InvalidPrincipalType: "A renewer is a principal of the type User",
}


_TEXT_BY_CODE = {kind.code: text for kind, text in TEXTS.items()}


class SecurityAdmin:
    """Sends requests to any broker, or to the controller. Errors become a Failure."""

    def __init__(self, client: ClusterClient, connection: ClusterConnection) -> None:
        self.client, self.connection = client, connection
        self._answered = False

    def limit(self) -> None:
        """The next request has the rest of --timeout. Before the first answer, each server has a share of it."""
        if self._answered:
            self.client.limit(self.connection.remaining_s)

    def ask(self, request: Message, kind: type[M]) -> M:
        """The answer of any broker."""
        self.limit()
        answer = self.client.ask_any_broker(request, kind)
        self._answered = True
        return answer

    def brokers(self) -> list[BrokerId]:
        self.limit()
        brokers = self.client.broker_ids()
        self._answered = True
        return brokers

    def ask_broker(self, broker: BrokerId, request: Message, kind: type[M]) -> M:
        """The answer of this broker."""

        def attempt() -> M:
            self.limit()
            connection = self.client.broker(broker)
            return self.client.using(connection, lambda: connection.ask(request, kind))

        return self.client.retry(attempt, timeout_s=self.connection.remaining_s)

    def ask_controller(self, request: Message, kind: type[M], codes: Callable[[M], list[int]]) -> M:
        """The answer of the controller. It is looked up again while a broker answers that it is not the one."""

        def attempt() -> M:
            self.limit()
            controller = self.client.controller()
            answer = self.client.using(controller, lambda: controller.ask(request, kind))
            if NotController.code in codes(answer):
                raise RequestFailed("the controller", NotController.code)
            return answer

        return self.client.retry(attempt, timeout_s=self.connection.remaining_s)


@contextmanager
def security_admin(options: argparse.Namespace) -> Iterator[SecurityAdmin]:
    connection = ClusterConnection(options)
    servers = max(len(connection.servers.split(",")), 1)
    limits = {
        "default.api.timeout.ms": str(int(min(connection.timeout_s, REFUSED_S) * 1000)),
        "request.timeout.ms": str(max(int(connection.timeout_s * 1000 / servers), 1)),
    }
    try:
        with connection.diagnosing(), ClusterClient({**connection.configured_properties, **limits}) as client:
            yield SecurityAdmin(client, connection)
    except Unreachable as error:
        raise connection.unreachable(_without_address(error)) from None
    except JobFailed as error:
        raise Failure(str(error)) from None


def _without_address(error: JobFailed) -> str:
    """And without the time limit of one request: the time limit of the command is what a user can change."""
    return _REQUEST_LIMIT.sub("no answer", _ADDRESS.sub("", str(error)))


def check(code: int, message: str | None, what: str = "") -> None:
    """A Failure if a broker answered with an error."""
    if code:
        raise Failure(f"{what}: {error_text(code, message)}" if what else error_text(code, message))


def error_text(code: int, message: str | None) -> str:
    """An error of a broker, with its name in parentheses."""
    name = ERROR_NAMES.get(code, f"error {code}")
    text = (message or _TEXT_BY_CODE.get(code) or "the broker refuses it").rstrip(".")
    return f"{text} ({name})"
