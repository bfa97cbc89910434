"""The last requests that the brokers of a cluster got, for rules and for the report of a test that fails.

A frame is kept as bytes, up to a size, and decoded on demand.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from leadline.model import TopicId
from leadline.testing.clock import moment_text
from leadline.testing.message_parts import NamedPart, parts_of
from leadline.wire.classes import Message, Struct
from leadline.wire.codec import decode_from
from leadline.wire.frames import RequestHead, parse_response, rest_of_head
from leadline.wire.primitives import MalformedRequest

MOST_KEPT_BYTES = 256 * 1024  # of one request
SHOWN_PARTS = 4


@dataclass(eq=False)
class SeenRequest:
    """A request of a client or a broker, and its outcome."""

    broker: int  # that got it
    at_ms: int
    head: RequestHead
    host: str  # of the client
    size: int
    frame: bytes
    topic_names: Mapping[TopicId, str]
    is_of_broker: bool
    outcome: str = ""  # what a rule did
    took_s: float | None = None  # None: no response yet
    response: bytes | None = None  # None: there is none, or it is large

    @property
    def api(self) -> str:
        return self.head.api.name if self.head.api is not None else f"api {self.head.api_key}"

    @property
    def client_id(self) -> str | None:
        return self.head.client_id

    @cached_property
    def message(self) -> Message | None:
        """The request itself; None if it cannot be decoded."""
        head = self.head
        if head.api is None or not head.is_supported or len(self.frame) < self.size:
            return None
        with suppress(MalformedRequest):
            return decode_from(head.api.request, self.frame, head.version, head.body_at)[0]
        return None

    @cached_property
    def parts(self) -> list[NamedPart]:
        """The topics and partitions that it names."""
        return [] if self.message is None else parts_of(self.message, self.topic_names)

    def error_codes(self) -> set[int]:
        """The errors in its response."""
        head = self.head
        if self.response is None or head.api is None or not head.is_supported:
            return set()
        with suppress(MalformedRequest):
            return set(_codes(parse_response(head.api.response, self.response[4:], head.version)[1])) - {0}
        return set()

    def repeats(self, other: "SeenRequest") -> bool:
        """Whether both look the same to a person."""
        return self._shown == other._shown

    @property
    def _shown(self) -> tuple[object, ...]:
        return self.broker, self.api, self.client_id, self.parts, self.error_codes(), self.outcome

    def line(self, name_of_error: Callable[[int], str]) -> str:
        """A line for the report of a test that fails."""
        at = moment_text(self.at_ms)
        names = [part.topic if part.partition is None else f"{part.topic}-{part.partition}" for part in self.parts]
        more = f" and {len(names) - SHOWN_PARTS} more" if len(names) > SHOWN_PARTS else ""
        errors = ", ".join(sorted(map(name_of_error, self.error_codes())))
        result = "no response yet" if self.took_s is None else f"{self.took_s * 1000:.0f} ms"
        shown = [
            f"{at}  broker {self.broker}  {self.api} v{self.head.version} from {self.client_id or '(no client id)'}"
        ]
        shown += [" ".join(names[:SHOWN_PARTS]) + more] if names else []
        shown += [result, *filter(None, (errors, self.outcome))]
        return "  ".join(shown)


def seen_request(
    broker: int, at_ms: int, frame: memoryview, front: tuple[int, int, int], host: str,
    topic_names: Mapping[TopicId, str], broker_ids: "set[str]",
) -> SeenRequest:  # fmt: skip
    head = rest_of_head(frame, *front)
    kept = bytes(frame) if len(frame) <= MOST_KEPT_BYTES else bytes(frame[:64])
    return SeenRequest(broker, at_ms, head, host, len(frame), kept, topic_names, head.client_id in broker_ids)


def _codes(struct: Struct) -> "list[int]":
    codes: list[int] = []
    for field in struct.SPEC.fields:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            codes.append(value)
        elif field.is_array and field.struct is not None:
            for element in value or ():
                codes += _codes(element)
    return codes
