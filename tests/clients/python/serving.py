"""What the clients in Python share: requests as lines of JSON on stdin, an answer to each as a line on stdout.

    {"op": "delete_topic", "topic": "t"}   is answered with   {"result": ...}   or   {"error": "what went wrong"}

What a client cannot do it has no method for: the answer then is {"error": "lacking"}. Bytes are in Base64, but what is
longer than 1000 of them is read back as "sha256:" and its digest. All clients, in all languages, follow this.

A request with "login" is served by a client of its own, which logs in as the fields of `Login` say, and ends with the
answer. It does not try for long: whoever is refused reports that soon.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

DIGEST_FROM = 1000
WAIT_S = 120

Records = list[tuple[int, str | None, str | None, list[tuple[str, str | None]], int]]
Starts = list[tuple[int, int, int]]  # partition, first offset, how many records


@dataclass(frozen=True)
class Login:
    """Paths are those of files in PEM. The token is in a file, too, as Kafka's own client takes it."""

    bootstrap: str
    protocol: str  # SSL or SASL_SSL
    trusted: str  # path of the certificates of authorities
    identity: str | None = None  # path of the client's key and certificate
    mechanism: str | None = None  # None: the certificate says who it is
    username: str | None = None
    password: str | None = None
    token: str | None = None  # path


class Closable(Protocol):
    def close(self) -> None: ...


def serve(make: Callable[[str, Login | None], Closable]) -> None:
    """`make` makes a client from an address, and a login if there is one."""
    client = make(sys.argv[1], None)
    for line in sys.stdin:
        request = json.loads(line)
        login = request.pop("login", None)
        try:
            if login is None:
                answer = _answer(client, **request)
            else:
                with closing(make(login["bootstrap"], Login(**login))) as logged_in:
                    answer = _answer(logged_in, **request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test that asked is to see it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _answer(client: object, op: str, **request: object) -> dict[str, object]:
    method = getattr(client, op, None)
    return {"error": "lacking"} if method is None else {"result": method(**request)}


def raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def shown(data: bytes | None) -> str | None:
    if data is None:
        return None
    if len(data) > DIGEST_FROM:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return base64.b64encode(data).decode()


def raw_headers(headers: Iterable[tuple[str, str | None]]) -> list[tuple[str, Any]]:
    return [(name, raw(value)) for name, value in headers]


def shown_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> list[list[str | None]]:
    return [[name, shown(value)] for name, value in headers or ()]
