"""What the clients in Python share: requests as lines of JSON on stdin, an answer to each as a line on stdout.

    {"op": "delete_topic", "topic": "t"}   is answered with   {"result": ...}   or   {"error": "what went wrong"}

What a client cannot do it has no method for: the answer then is {"error": "lacking"}. Bytes are in Base64, but what is
longer than 1000 of them is read back as "sha256:" and its digest. All clients, in all languages, follow this.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Iterable
from typing import Any

DIGEST_FROM = 1000
WAIT_S = 120

Records = list[tuple[int, str | None, str | None, list[tuple[str, str | None]], int]]
Starts = list[tuple[int, int, int]]  # partition, first offset, how many records


def serve(client: object) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        method = getattr(client, request.pop("op"), None)
        try:
            answer = {"error": "lacking"} if method is None else {"result": method(**request)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test that asked is to see it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


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
