"""Requests about ACLs, users, quotas and tokens, by our own client of the wire protocol.

librdkafka and kafka-python lack some of them: quotas, tokens, ACLs of users and tokens. Our own client has them all,
and can log in with a delegation token.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from leadline.cli.connection import ClusterConnection
from leadline.cli.errors import Failure
from leadline.errors import BY_CODE, NotController
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import Unreachable
from leadline.spark.client.failures import RequestFailed
from leadline.spark.errors import JobFailed
from leadline.wire.classes import Message

M = TypeVar("M", bound=Message)

_ADDRESS = re.compile(r"^(?:cannot reach )?\S+:\d+:? ")
REFUSED_S = 1.0  # refused connections are retried for so long

# What a broker answers without a message of its own, in Kafka's words.
TEXTS = {
    31: "Cluster authorization failed",
    41: "This is not the correct controller for this cluster",
    54: "No authorizer is configured on the broker",
    61: "Delegation tokens are off: the brokers have no delegation.token.secret.key",
    62: "The brokers have no such delegation token",
    63: "You are neither the owner nor a renewer of this token",
    64: "Tokens are only given over TLS with a certificate or a SASL login, and not to those who came with a token",
    65: "Not allowed to create a token for another user",
    66: "The token has expired",
    67: "A renewer is a principal of the type User",
}


class SecurityAdmin:
    """Sends requests to any broker, or to the controller. Errors become a Failure."""

    def __init__(self, client: ClusterClient, connection: ClusterConnection) -> None:
        self.client, self.connection = client, connection

    def ask(self, request: Message, kind: type[M]) -> M:
        """The answer of any broker."""
        return self.client.ask_any_broker(request, kind)

    def ask_controller(self, request: Message, kind: type[M], codes: Callable[[M], list[int]]) -> M:
        """The answer of the controller. It is looked up again while a broker answers that it is not the one."""

        def attempt() -> M:
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
        with ClusterClient({**connection.configured_properties, **limits}) as client:
            yield SecurityAdmin(client, connection)
    except Unreachable as error:
        raise connection.unreachable(_without_address(error)) from None
    except JobFailed as error:
        raise Failure(str(error)) from None


def _without_address(error: JobFailed) -> str:
    return _ADDRESS.sub("", str(error))


def check(code: int, message: str | None, what: str = "") -> None:
    """A Failure if a broker answered with an error."""
    if code:
        raise Failure(f"{what}: {error_text(code, message)}" if what else error_text(code, message))


def error_text(code: int, message: str | None) -> str:
    """An error of a broker, with its name in parentheses."""
    name = error_name(code)
    text = (message or TEXTS.get(code) or "the broker refuses it").rstrip(".")
    return f"{text} ({name})"


def error_name(code: int) -> str:
    """CLUSTER_AUTHORIZATION_FAILED."""
    if code not in BY_CODE:
        return f"error {code}"
    name = BY_CODE[code].__name__
    return "".join(f"_{letter}" if letter.isupper() and at else letter for at, letter in enumerate(name)).upper()
