"""The options of a data source as Spark passes them: their names, looked up in any case, and their errors.

Pure: text in, values out.
"""

import re
from collections.abc import Mapping

from leadline.config.settings import nearest
from leadline.security.client_properties import NAMES
from leadline.spark.errors import JobFailed


class BadOption(JobFailed, ValueError):
    """An option is wrong. The text names the option, its value and the expected values, in one line."""


READ = """
    subscribe subscribePattern assign
    startingOffsets startingTimestamp startingOffsetsByTimestamp startingOffsetsByTimestampStrategy
    endingOffsets endingTimestamp endingOffsetsByTimestamp
    maxOffsetsPerTrigger minOffsetsPerTrigger maxBytesPerTrigger maxTriggerDelay
    minPartitions maxRecordsPerPartition failOnDataLoss includeHeaders groupIdPrefix commitProgress
    fetchOffset.numRetries fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs
""".split()
WRITE = "topic includeHeaders includeTimestamp stagingLocation checkpointLocation queryName".split()
BATCH_ONLY = "endingOffsets endingTimestamp endingOffsetsByTimestamp".split()
STREAM_ONLY = "maxOffsetsPerTrigger minOffsetsPerTrigger maxBytesPerTrigger maxTriggerDelay".split()

ACCESS = [*NAMES, "bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms"]
READING = "group.id isolation.level max.partition.fetch.bytes".split()
WRITING = """
    transactional.id transaction.timeout.ms compression.type batch.size delivery.timeout.ms max.request.size acks
    enable.idempotence
""".split()
# Settings of the polling, batching and waiting of other clients. They are accepted and ignored.
TUNING = """
    auto.commit.interval.ms buffer.memory check.crcs client.dns.lookup client.rack connections.max.idle.ms
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes heartbeat.interval.ms linger.ms max.block.ms
    max.in.flight.requests.per.connection max.poll.interval.ms max.poll.records metadata.max.age.ms
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
""".split()
REFUSED = {
    "auto.offset.reset": "startingOffsets sets where to start",
    "enable.auto.commit": "commitProgress sets whether progress is committed",
    "key.deserializer": "keys are bytes: cast them",
    "value.deserializer": "values are bytes: cast them",
    "key.serializer": "keys are bytes or strings",
    "value.serializer": "values are bytes or strings",
    "interceptor.classes": "there is no Java client to put them into",
    "partitioner.class": "the column partition sets the partition of a record",
}


class SourceOptions:
    """The options of a user, looked up case-insensitively. Errors show the documented name."""

    def __init__(self, options: Mapping[str, str], names: list[str], kafka: list[str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self.client: dict[str, str] = {}
        by_lower_case = {name.lower(): name for name in names}
        for name, value in self._options.items():
            if name.startswith("kafka."):
                self._take_property(name.removeprefix("kafka."), value, kafka)
            elif name not in by_lower_case:
                raise BadOption(f"there is no option {name}{nearest(name, by_lower_case) or nearest(name, names)}")

    def _take_property(self, name: str, value: str, names: list[str]) -> None:
        if name in REFUSED:
            raise BadOption(f"kafka.{name} cannot be used: {REFUSED[name]}")
        if name not in names and name not in TUNING:
            close = nearest(name, [*names, *TUNING]).replace("mean ", "mean kafka.")
            raise BadOption(f"there is no option kafka.{name}{close}")
        self.client[name] = value

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise BadOption(f"{name}={text}: expected true or false")
        return text.strip().lower() == "true"

    def count(self, name: str, least: int = 1) -> int | None:
        return None if (text := self.text(name)) is None else number(name, text, least)


def number(name: str, text: str, least: int = 0) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text.strip()) or int(text) < least:
        raise BadOption(f"{name}={text}: expected a number from {least} on")
    return int(text)
