"""Records of a topic: read, searched, decoded, produced."""

import argparse
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.errors import Failure, client_error_text
from leadline.admin.session import ClusterSession
from leadline.admin.times import moment_ms
from leadline.console.page import BadRequest, Console, Form, number, optional_number
from leadline.console.record_search import RecordQuery, ShownRecord, search
from leadline.console.record_values import FORMATS, DecodedValue, bytes_of, decoded
from leadline.console.views.topics import existing_topic
from leadline.model import Offset

STARTS = {
    "newest": "the newest",
    "earliest": "the first",
    "offset": "from an offset on",
    "time": "from a time on",
}
COUNTS = (20, 50, 200)
DELIVERY_S = 10.0
ANY_PARTITION = -1  # the client chooses, by the key

Headers = list[tuple[str, str | bytes | None]]


class DecodedRecord(NamedTuple):
    record: ShownRecord
    key: DecodedValue
    value: DecodedValue
    headers: list[tuple[str, DecodedValue]]


def records(console: Console, request: Request) -> Response:
    topic = request.path_params["topic"]
    params = request.query_params
    query = _query(params)
    key_format, value_format = (_format(params.get(name, "auto")) for name in ("key_format", "value_format"))
    with console.pool.session() as session:
        metadata = existing_topic(session, topic)
        answering = {*session.client.answering}
        partitions = [id for id, partition in sorted(metadata.partitions.items()) if partition.leader in answering]
        if query.partition is not None and query.partition not in metadata.partitions:
            raise BadRequest(f"{topic} has the partitions 0 to {len(metadata.partitions) - 1}")
        result = search(session, topic, query, partitions)
    return console.page(
        request,
        "records.html",
        f"Records of {topic}",
        topic=topic,
        query=query,
        params=params,
        starts=STARTS,
        counts=COUNTS,
        formats=FORMATS,
        key_format=key_format,
        value_format=value_format,
        partition_count=len(metadata.partitions),
        unreadable=sorted(metadata.partitions.keys() - {*partitions}),
        total=sum(held.end - held.start for held in result.ranges.values()),
        records=[
            DecodedRecord(
                record,
                decoded(record.key, key_format, console.decoders),
                decoded(record.value, value_format, console.decoders),
                [(name, decoded(value, "auto", {})) for name, value in record.headers],
            )
            for record in result.records
        ],
        result=result,
        next_at=",".join(f"{n}:{offset}" for n, offset in sorted(result.next_offsets.items())),
    )


def _format(text: str) -> str:
    if text not in FORMATS:
        raise BadRequest(f"there is no format {text}: choose one of {', '.join(FORMATS)}")
    return text


def _query(params: Form) -> RecordQuery:
    start = params.get("start", "newest")
    if start not in STARTS:
        raise BadRequest(f"there is no start {start!r}: choose one of {', '.join(STARTS)}")
    text = params.get("position", "")
    position = 0
    if start == "offset" and not params.get("at"):
        position = number(text or "0", "The offset")
    elif start == "time" and not params.get("at"):
        position = moment(text)
    return RecordQuery(
        start,
        position,
        optional_number(params.get("partition", ""), "The partition"),
        params.get("key", ""),
        params.get("text", ""),
        min(number(params.get("count", "50"), "The number of records", 1), COUNTS[-1]),
        params.get("isolation") == "read_committed",
        _positions(params.get("at", "")),
    )


def moment(text: str) -> int:
    try:
        return moment_ms(text)
    except argparse.ArgumentTypeError as error:
        raise BadRequest(str(error)) from None


def _positions(text: str) -> dict[int, Offset]:
    positions = {}
    for part in filter(None, text.split(",")):
        partition, _, offset = part.partition(":")
        positions[number(partition, "A partition")] = number(offset, "An offset")
    return positions


def produce(console: Console, request: Request, form: Form) -> Response:
    topic = request.path_params["topic"]
    format = form.get("format", "text")
    try:
        value = None if form.get("tombstone") else bytes_of(form.get("value", ""), format)
        key = bytes_of(form.get("key", ""), "text") if form.get("key") else None
        headers = _headers(form.get("headers", ""))
    except ValueError as error:
        raise BadRequest(f"the record is not {format}: {error}") from None
    partition = optional_number(form.get("to_partition", ""), "The partition")
    with console.pool.session() as session:
        metadata = existing_topic(session, topic)
        if partition is not None and partition not in metadata.partitions:
            raise BadRequest(f"{topic} has the partitions 0 to {len(metadata.partitions) - 1}")
        stored = _deliver(session, topic, partition, key, value, headers)
    return console.done(
        f"/topics/{topic}/records", f"Stored in partition {stored[0]} at offset {stored[1]}.", start="newest"
    )


def _headers(text: str) -> Headers:
    headers: Headers = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not (name.strip() and colon):
            raise ValueError(f"a header is NAME: VALUE, not {line!r}")
        headers.append((name.strip(), value.strip().encode()))
    return headers


def _deliver(
    session: ClusterSession,
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> tuple[int, Offset]:
    """Partition and offset of the stored record. A Failure if no broker acknowledges it."""
    from confluent_kafka import KafkaError, Message

    outcome: list[tuple[KafkaError | None, Message]] = []
    producer = session.connection.producer(
        {"acks": "all", "enable.idempotence": "true", "message.timeout.ms": str(round(DELIVERY_S * 1000))}
    )
    producer.produce(
        topic,
        value,
        key,
        ANY_PARTITION if partition is None else partition,
        headers=headers,
        on_delivery=lambda error, message: outcome.append((error, message)),
    )
    producer.flush(DELIVERY_S + 1)
    if not outcome:
        raise Failure(f"no broker acknowledged the record within {DELIVERY_S:g} s: it may be stored")
    error, message = outcome[0]
    if error is not None:
        raise Failure(f"the record was not stored: {client_error_text(error)}")
    return message.partition() or 0, message.offset() or 0
