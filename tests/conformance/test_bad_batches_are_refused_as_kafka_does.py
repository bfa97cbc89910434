"""Each kind of bad batch, sent to Kafka and to Leadline: the same code, the same message where Kafka has one, and the
same log afterwards.

`DIFFERENT` lists what is meant to differ. Kafka does not compare the lengths of compressed records with their content,
and does not look at the offsets of records that are not compressed: it stores what its readers then fail on, or lose
records by. Leadline refuses that.
"""

import re
from collections.abc import Iterator, Mapping

import pytest

from leadline.records.batch import HEADER_BYTES, header_at
from leadline.records.record import records_of
from leadline.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from tests.conformance.both import Both, Side, produced
from tests.support.bad_batches import bad_batches

pytestmark = pytest.mark.conformance

UNKNOWN, NONE, INVALID_RECORD = -1, 0, 87
BATCHES = dict(bad_batches())
TOPICS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "timed": {"message_timestamp_before_max_ms": 10**15, "message_timestamp_after_max_ms": 1000},
    "lz4": {"compression_type": "lz4"},
    "none": {"compression_type": "uncompressed"},
}
PACKED = "(gzip|snappy|lz4|zstd)"

# What Kafka answers, and what Leadline answers.
DIFFERENT = {
    rf"{PACKED}: a length (of -1, and a record|beyond the batch|one too (long|short)), .*": (NONE, INVALID_RECORD),
    rf"{PACKED}: bytes behind the headers, not last": (UNKNOWN, INVALID_RECORD),
    r"none: offsets .*": (NONE, INVALID_RECORD),
    r"none: a length of six bytes, .*": (UNKNOWN, INVALID_RECORD),
    r"payload: gzip: byte 18 is wrong": (INVALID_RECORD, UNKNOWN),  # Kafka reads the records before gzip's checksum
}
_RANGE = re.compile(r"\[-?\d+, -?\d+\]")


class Answers:
    """What one broker says to batches, and what it then has."""

    def __init__(self, side: Side, topic: str) -> None:
        self.side, self.topic, self.end = side, topic, 0

    def to(self, batch: bytes, *, is_rebuilt: bool) -> tuple[int, object]:
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(self.topic, batch)])
        answer = self.side.ask(ProduceResponse, request, 9).responses[0].partition_responses[0]
        if answer.error_code:
            errors = [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]
            message = answer.error_message if errors else None  # Kafka has none but for single records
            return answer.error_code, _RANGE.sub("[then, now]", f"{message} {errors} {answer.log_start_offset}")
        assert answer.base_offset == self.end  # what was refused left nothing behind
        self.end += header_at(batch).last_offset_delta + 1
        return NONE, self.stored(answer.base_offset, is_rebuilt=is_rebuilt)

    def stored(self, offset: int, *, is_rebuilt: bool) -> object:
        """The batch at an offset. What the broker itself encoded is compared by its records."""
        part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        fetch = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[part])])
        data = self.side.ask(FetchResponse, fetch, 11).responses[0].partitions[0].records
        assert isinstance(data, memoryview)
        header = header_at(data)._replace(base_offset=0, crc=0, leader_epoch=0)
        if header.is_log_append_time:
            header = header._replace(max_timestamp=0)
        if is_rebuilt:
            return header.codec, header.attributes, header.max_timestamp, list(records_of(data, 0, header))
        return header, bytes(data[HEADER_BYTES : header.size])


@pytest.mark.parametrize("topic", TOPICS)
def test_bad_batches_are_refused_or_corrected_as_kafka_does(both: Both, topic: str) -> None:
    name = both.create(f"bad-batches-{topic}", 1, **TOPICS[topic])
    kafka, ours = (Answers(side, name) for side in both.sides)
    different = list(differences(kafka, ours, topic))
    assert not different, "\n".join(different)


def differences(kafka: Answers, ours: Answers, topic: str) -> Iterator[str]:
    for what, batch in BATCHES.items():
        codec = what.removeprefix("payload: ").partition(":")[0]
        is_rebuilt = topic in ("lz4", "none") and codec != topic
        theirs, mine = (side.to(batch, is_rebuilt=is_rebuilt) for side in (kafka, ours))
        meant = (pattern for pattern, codes in DIFFERENT.items() if codes == (theirs[0], mine[0]))
        if theirs != mine and not any(re.fullmatch(pattern, what) for pattern in meant):
            yield f"{topic}, {what}: Kafka {theirs}, Leadline {mine}"
