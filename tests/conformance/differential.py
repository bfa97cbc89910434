"""The same request to Kafka and to Leadline, and everything in which their answers differ, messages included.

An answer is compared as `Plain` shows it, but with its messages as they are. A message may contain what each broker has
of its own: its address, its directories, ids that were drawn by chance.

What may differ stands in differences.toml, with the reason, and so do the requests that are not sent.
"""

import base64
import re
import time
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from leadline.api import TABLE
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from leadline.wire.frames import parse_response
from tests.conformance.both import Both, Closed, Connection, Plain, Side, differences
from tests.conformance.request_bases import BASES, Target
from tests.conformance.request_variants import DUPLICATE, Variant, build, encoded, variants, vary

LIST = Path(__file__).with_name("differences.toml")
CLOSED, SILENT = "closes the connection", "no answer"
PREFIX = "limits"  # of all that the cases make
OF_ALL_TESTS = ("ListGroups",)  # what other tests left is listed, too, and may still change
SETTLES_S, POLL_S = 60, 0.5
OLDER_SHARE = 4  # one in so many cases of older versions is played on CI
_MEMBER = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INDEX = re.compile(r"\[\d+\]")


class Case(NamedTuple):
    """One request in one version, as it should be or with one field at a limit."""

    request: str
    base: int  # which of its bases
    version: int
    variant: Variant

    def __str__(self) -> str:
        base = f"#{self.base + 1}" if self.base else ""
        return f"{self.request}{base} v{self.version} {self.variant}"

    @property
    def is_silent(self) -> bool:
        return self.request == "Produce" and self.variant.field == "acks" and self.variant.value == 0

    @property
    def is_chosen(self) -> bool:
        """Played on CI even though it is not of the newest version."""
        return crc32(str(self).encode()) % OLDER_SHARE == 0


class ListEntry(NamedTuple):
    """One of the list. Everything that is left out matches anything."""

    reason: str
    request: str
    variants: tuple[str, ...]  # patterns
    versions: range
    answers: tuple[str, ...]  # patterns of the fields of the answer, without indexes
    kafka: tuple[str, ...]  # what Kafka's answer may have there
    example: str  # the request whose cases need it, for an entry of all requests

    @classmethod
    def of(cls, row: dict[str, Any]) -> "ListEntry":
        assert row.keys() <= {*cls._fields}, f"unknown in {LIST.name}: {row}"
        low, _, high = row.get("versions", "0-99").partition("-")
        patterns = {name: tuple(row.get(name, default)) for name, default in _PATTERNS.items()}
        versions, example = range(int(low), int(high or low) + 1), row.get("example", row["request"])
        return cls(
            row["reason"],
            row["request"],
            patterns["variants"],
            versions,
            patterns["answers"],
            patterns["kafka"],
            example,
        )

    def is_about(self, case: Case) -> bool:
        return (
            self.request in ("*", case.request)
            and case.version in self.versions
            and any(fnmatchcase(str(case.variant), pattern) for pattern in self.variants)
        )

    def covers(self, case: Case, difference: str) -> bool:
        if not self.is_about(case):
            return False
        path, _, values = _INDEX.sub("", difference).strip().partition(": ")
        if not any(fnmatchcase(path, pattern) for pattern in self.answers):
            return False
        return not self.kafka or any(values.startswith(f"Kafka {value}, ") for value in self.kafka)


_PATTERNS: dict[str, tuple[str, ...]] = {"variants": ("*",), "answers": ("*",), "kafka": ()}


class DifferenceList(NamedTuple):
    differences: list[ListEntry]
    left_out: list[ListEntry]


@cache
def difference_list() -> DifferenceList:
    tables = tomllib.loads(LIST.read_text())
    return DifferenceList(*([ListEntry.of(row) for row in tables[name]] for name in DifferenceList._fields))


def cases(both: Both, request: str, *, all_versions: bool) -> Iterator[Case]:
    """Newest version first. Of the older ones some, unless all are wanted: chosen by their names, and the listed."""
    kind, listed = getattr(m, f"{request}Request"), difference_list()
    newest = TABLE[kind.API_KEY].versions[-1]
    for version in reversed(TABLE[kind.API_KEY].versions):
        for number, base in enumerate(BASES[request]):
            targets = [Target(side, version, f"{PREFIX}-shape-{request}-{version}-{number}") for side in both.sides]
            _, values = [base(target) for target in targets]
            for variant in variants(build(kind, version, values), version):
                case = Case(request, number, version, variant)
                is_played = all_versions or version == newest or case.is_chosen or _is_listed(case)
                if is_played and not any(entry.is_about(case) for entry in listed.left_out):
                    yield case


def _is_listed(case: Case) -> bool:
    return any(entry.request != "*" and entry.is_about(case) for entry in difference_list().differences)


class Verbatim(Plain):
    """Messages as they are, but for what is the broker's own."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.side, target.version)
        self.target = target

    def _value(self, name: str, value: object, failed: bool, part: Part) -> object:
        if name in self.MESSAGES:
            return value if value is None else self._text(str(value))
        if name == "producer_id" and isinstance(value, int) and value >= 0:
            return self._producer(value)
        return super()._value(name, value, failed, part)

    def _producer(self, value: int) -> str:
        producer = self.target.__dict__.get("producer")
        return "its producer" if producer is not None and value == producer.producer_id else "another producer"

    def _text(self, text: str) -> str:
        for number, directory in enumerate(self.side.dirs):
            text = text.replace(directory, f"directory {number}")
        if (producer := self.target.__dict__.get("producer")) is not None:
            text = re.sub(rf"\b{producer.producer_id}\b", "its producer", text)
        for topic_id, name in self.side.ids.items():
            text = text.replace(_kafkas_text(topic_id), f"id of {name}")
        return _MEMBER.sub("-*", text.replace(self.side.bootstrap, "its address"))


def _kafkas_text(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


class Player:
    """Plays cases on both brokers, over connections of its own."""

    def __init__(self, both: Both, prefix: str = PREFIX) -> None:
        self.both, self._prefix, self._count = both, prefix, 0
        self._connections: dict[str, Connection] = {}

    def differences(self, case: Case) -> list[str]:
        self._count += 1
        name = f"{self._prefix}-{case.request}-{case.version}-{self._count}"
        partition = 2 if case.variant.name == DUPLICATE else 0  # there the two brokers may differ from then on
        targets = [Target(side, case.version, name, partition) for side in self.both.sides]
        deadline_s = time.monotonic() + (SETTLES_S if case.request in OF_ALL_TESTS else 0)
        while True:
            for target in targets:
                self._send(case, target)
            theirs, ours = (self._answer(case, target) for target in targets)
            unlike = list(differences(theirs, ours))
            if not unlike or time.monotonic() > deadline_s:
                return unlike
            time.sleep(POLL_S)

    def _connection(self, side: Side) -> Connection:
        if side.name not in self._connections:
            self._connections[side.name] = side.connect()
        return self._connections[side.name]

    def _send(self, case: Case, target: Target) -> None:
        kind = getattr(m, f"{case.request}Request")
        message = build(kind, case.version, BASES[case.request][case.base](target))
        vary(message, case.variant, target.name)
        connection = self._connection(target.side)
        connection.correlation += 1
        frame = encoded(message, case.version, case.variant, connection.correlation, "both")
        connection.socket.sendall(frame)
        if case.is_silent:
            connection.send(m.ApiVersionsRequest(), 0)

    def _answer(self, case: Case, target: Target) -> object:
        connection = self._connection(target.side)
        try:
            frame = connection.receive()
        except TimeoutError:
            raise AssertionError(f"{target.side} does not answer {case}") from None
        if frame is Closed:
            connection.close()
            del self._connections[target.side.name]
            return CLOSED
        if case.is_silent and int.from_bytes(frame[:4]) == connection.correlation:
            return SILENT
        kind: type[Message] = getattr(m, f"{case.request}Response")
        correlation, answer = parse_response(kind, frame, case.version)
        assert correlation == connection.correlation
        return Verbatim(target).of(answer)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
