"""The options of a data source as Spark passes them: their names, looked up in any case, and their errors.

    every property of Kafka's producers and consumers is used, is ignored because it tunes what this client does by
    itself, or is refused with a reason
    one error names all options that are refused

Pure: text in, values out.
"""

import re
from collections.abc import Iterator, Mapping

from leadline.config.settings import nearest
from leadline.config.values import InvalidSetting
from leadline.security.client_properties import (
    IGNORED,
    JAVA_CLASSES,
    LIBRDKAFKA,
    NAMES,
    SecurityProperties,
    without_words,
)
from leadline.security.token_login import LOGIN_TIMES
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

ACCESS = [*NAMES, *LOGIN_TIMES, "bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms"]
READING = "group.id isolation.level max.partition.fetch.bytes".split()
WRITING = """
    transactional.id transaction.timeout.ms compression.type batch.size delivery.timeout.ms max.request.size acks
    enable.idempotence
""".split()
# Settings of the polling, batching, waiting and metrics of other clients. They are accepted and ignored.
TUNING = [
    *IGNORED,
    *"""
    auto.commit.interval.ms auto.include.jmx.reporter buffer.memory check.crcs client.dns.lookup client.rack
    compression.gzip.level compression.lz4.level compression.zstd.level connections.max.idle.ms enable.metrics.push
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes heartbeat.interval.ms linger.ms
    max.block.ms max.in.flight.requests.per.connection max.poll.interval.ms max.poll.records metadata.max.age.ms
    metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retries
    retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """.split(),
]
_NO_MEMBER = "a query is not a member of its group: Spark assigns the partitions"
_NO_JAVA = "there is no Java client to put them into"
REFUSED = {
    **dict.fromkeys(JAVA_CLASSES, "classes and providers of Java cannot be used here"),
    **dict.fromkeys(LIBRDKAFKA, "it is a property of librdkafka, which is not used here"),
    **{name: "Kerberos is not available here" for name in LIBRDKAFKA if name.startswith("sasl.kerberos.")},
    "allow.auto.create.topics": "a read creates no topics",
    "auto.offset.reset": "startingOffsets sets where to start",
    "config.providers": "values are taken as they are: resolve references before",
    "enable.auto.commit": "commitProgress sets whether progress is committed",
    "group.instance.id": _NO_MEMBER,
    "group.protocol": _NO_MEMBER,
    "group.remote.assignor": _NO_MEMBER,
    "key.deserializer": "keys are bytes: cast them",
    "value.deserializer": "values are bytes: cast them",
    "key.serializer": "keys are bytes or strings",
    "value.serializer": "values are bytes or strings",
    "interceptor.classes": _NO_JAVA,
    "metric.reporters": _NO_JAVA,
    "partition.assignment.strategy": _NO_MEMBER,
    "partitioner.class": "the column partition sets the partition of a record",
    "partitioner.ignore.keys": "the column partition sets the partition of a record",
    "transaction.two.phase.commit.enable": "a batch is one transaction, which this writer ends",
}


class SourceOptions:
    """The options of a user, looked up case-insensitively. Errors show the documented name.

    `elsewhere`: options that exist, though not for this use, with the reason. Names of Kafka's properties have the
    prefix `kafka.`.
    """

    def __init__(
        self, options: Mapping[str, str], names: list[str], kafka: list[str], elsewhere: Mapping[str, str] | None = None
    ) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._names, self._kafka = names, {*kafka, *TUNING}
        self._elsewhere = {name.lower(): (name, reason) for name, reason in (elsewhere or {}).items()}
        kafkas = {name: name.removeprefix("kafka.") for name in self._options if name.startswith("kafka.")}
        self.client = {kafkas[name]: self._options[name] for name in kafkas if kafkas[name] in self._kafka}
        if problems := [*self._refused_names(), *_security_problems(self.client)]:
            raise BadOption("; ".join(problems))

    def _refused_names(self) -> Iterator[str]:
        own = {name.lower() for name in self._names}
        for name in self._options:
            short = name.removeprefix("kafka.")
            if name in own or (name != short and short in self._kafka):
                continue
            if name in self._elsewhere:
                yield "{} is for {}".format(*self._elsewhere[name])
            elif name != short and short in REFUSED:
                yield f"{name} cannot be used: {REFUSED[short]}"
            elif name != short:
                yield f"there is no option {name}{nearest(short, self._kafka).replace('mean ', 'mean kafka.')}"
            else:
                yield f"there is no option {name}{nearest(name, own) or nearest(name, self._names)}"

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


def _security_problems(client: Mapping[str, str]) -> Iterator[str]:
    try:
        SecurityProperties.of(client).check_own()
    except InvalidSetting as error:
        yield f"of kafka.*: {without_words(error)}"
