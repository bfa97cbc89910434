"""Why records that were handed to a producer are not acknowledged, and when to give up on them.

The client retries for minutes and reports nothing. With its debug context `msg` it logs the error of each refused
batch; those lines are parsed here. Other reasons are found by requests to the cluster: a partition without a leader, a
leader that does not answer, a request that is larger than a broker accepts.
"""

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import client_error_name, client_error_text
from leadline.admin.formatting import ids_text, size_text
from leadline.admin.leaders import answering, leader_problem, no_leader_text
from leadline.cli.errors import print_error

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata, PartitionMetadata

REPORT_AFTER_S = 0.7  # without an acknowledgement, until the reason is printed
CHECK_S = 0.2
REQUEST_S = 2.0  # time limit of each request for the reason
BATCH_BYTES = 512  # overhead of a batch with one record at most, without record headers
_REFUSED = re.compile(r": (\S+) \[(\d+)\]: MessageSet .* encountered error: (.*?) \(actions ")


class DeliveryGivenUp(Exception):
    """Nothing was acknowledged for as long as --timeout allows."""


class RefusedBatches(logging.Handler):
    """The last error of each partition whose batches the client sends again."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[int, str] = {}
        self.logger = logging.Logger("leadline.producer", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if (match := _REFUSED.search(record.getMessage())) is not None:
            self.errors[int(match[2])] = match[3]


class DeliveryWatch:
    """`check()` prints why no record is acknowledged, and raises DeliveryGivenUp after --timeout.

    The time starts again with each acknowledgement: slow progress is not given up.
    """

    def __init__(self, connection: ClusterConnection, topic: str, properties: Mapping[str, str]) -> None:
        self.topic = topic
        self.pending = 0  # records sent and neither stored nor failed
        self.largest = 0  # bytes of the largest record
        self._connection, self._refused = connection, RefusedBatches()
        self.producer = self._producer(properties)
        self._limits: dict[str, int] = {}
        self._printed: set[str] = set()
        self._reason = ""
        self._acknowledged_s = self._checked_s = time.monotonic()

    def _producer(self, properties: Mapping[str, str]) -> "Producer":
        client_properties = self._connection.properties
        defaults: dict[str, str] = {}
        if not {"message.timeout.ms", "delivery.timeout.ms"} & client_properties.keys():
            if "transactional.id" in properties or "transactional.id" in client_properties:
                defaults["transaction.timeout.ms"] = str(max(60_000, round(self._connection.timeout_s * 2000)))
            else:
                defaults["message.timeout.ms"] = "0"  # no limit: this watch gives up instead
        if "debug" in client_properties:
            return self._connection.producer({**defaults, **properties})
        defaults |= {"debug": "msg", "log_level": "7"}
        return self._connection.producer({**defaults, **properties}, self._refused.logger)

    def handing_over(self, size: int) -> None:
        """Call before a record goes to the producer. The time limit of an idle queue starts now."""
        self.largest = max(self.largest, size)
        if not self.pending:
            self._acknowledged_s = time.monotonic()
        self.pending += 1

    def settled(self, *, stored: bool) -> None:
        """Call when a record is stored, or has failed finally."""
        self.pending -= 1
        if stored:
            self._acknowledged_s = time.monotonic()
            self._refused.errors.clear()

    def check(self) -> None:
        now = time.monotonic()
        if now - self._checked_s < CHECK_S:
            return
        self._checked_s = now
        if not self.pending:
            self._acknowledged_s = now
        elif now - self._acknowledged_s >= self._connection.timeout_s:
            raise DeliveryGivenUp
        elif now - self._acknowledged_s >= REPORT_AFTER_S:
            self._print_reason()

    def _print_reason(self) -> None:
        reason = self._find_reason()
        if reason and reason not in self._printed:
            self._printed.add(reason)
            self._reason = reason
            print_error(f"not stored yet: {reason}; trying for {self._connection.timeout_s:g} s (--timeout)")

    def give_up(self) -> str:
        """Drop all records that are not acknowledged. Returns the reason, as far as known."""
        self.producer.purge()
        self.producer.flush(REQUEST_S)
        within = f"within {self._connection.timeout_s:g} s (--timeout)"
        return self._reason or f"no broker acknowledged the records {within}"

    def reason_for(self, error: "KafkaError") -> str:
        """The reason why a record failed finally."""
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._MSG_TIMED_OUT and self._reason:
            return self._reason
        return client_error_text(error)

    def _find_reason(self) -> str:
        from confluent_kafka import KafkaException

        self._connection.restart_timeout()
        admin = self._connection.admin()
        try:
            cluster: ClusterMetadata = admin.list_topics(timeout=REQUEST_S)
        except KafkaException as error:
            return f"no broker answers: {client_error_text(error.args[0])}"
        topic = cluster.topics.get(self.topic)
        if topic is None or not topic.partitions:
            return f"there is no topic {self.topic}"
        for partition, text in sorted(self._refused.errors.items()):
            return self._refusal_text(admin, partition, topic.partitions.get(partition), text)
        self._connection.refresh(cluster)
        return leader_problem(self._connection, cluster, self.topic, topic.partitions)

    def _refusal_text(
        self, admin: "AdminClient", partition: int, metadata: "PartitionMetadata | None", text: str
    ) -> str:
        """The error that a broker returned for a batch of this partition, with its cause."""
        name, partition_name = _name_of(text), f"{self.topic}-{partition}"
        if name.startswith("NOT_ENOUGH_REPLICAS") and metadata is not None:
            needed = self.limit(admin, "min.insync.replicas")
            if len(metadata.isrs) >= needed:
                return ""  # enough replicas are in sync again
            noun = "replica" if len(metadata.isrs) == 1 else "replicas"
            in_sync = f"{partition_name} has only {noun} {ids_text(metadata.isrs)} in sync"
            return f"{in_sync}, and min.insync.replicas is {needed} ({name})"
        if name == "_TRANSPORT" and (limit := self._request_limit(admin)) and self.largest > limit:
            size = f"a record of {self.largest:,} B is larger than a request may be"
            return f"{size}: socket.request.max.bytes of the brokers is {limit:,}"
        if metadata is not None and metadata.leader < 0:
            return no_leader_text(self.topic, [partition], {partition: metadata}, answering(self._connection))
        return f"{partition_name}: {text.removeprefix('Broker: ').removeprefix('Local: ')} ({name})"

    def limit(self, admin: "AdminClient", name: str) -> int:
        """A number among the topic's settings; 0 if it is not known."""
        if name not in self._limits:
            self._limits[name] = _setting(admin, "topic", self.topic, name)
        return self._limits[name]

    def _request_limit(self, admin: "AdminClient") -> int:
        brokers = admin.list_topics(timeout=REQUEST_S).brokers
        limits = (_setting(admin, "broker", str(broker), "socket.request.max.bytes") for broker in brokers)
        return min(filter(None, limits), default=0)

    def too_large_text(self, size: int) -> str:
        """Which limits a record exceeds, and the option or command that raises each."""
        needed = size + BATCH_BYTES
        admin = self._connection.admin()
        limits = {
            "this client's": (
                int(self._connection.properties.get("message.max.bytes", "1000000")),
                f"--property message.max.bytes={needed}",
            ),
            "the topic's": (
                self.limit(admin, "max.message.bytes"),
                f"leadline configs alter --topic {self.topic} --set max.message.bytes={needed}",
            ),
        }
        exceeded = [
            f"{whose} limit is {limit:,} B: {remedy}"
            for whose, (limit, remedy) in limits.items()
            if limit and needed > limit
        ]
        limits_text = "; ".join(exceeded) or "a broker refused it as too large"
        return f"it has {size:,} B ({size_text(size)}); {limits_text} (MESSAGE_TOO_LARGE)"


def _name_of(text: str) -> str:
    """The name of an error, found by the client's text for it."""
    from confluent_kafka import KafkaError

    for code in (*range(1, 130), *range(-200, -100)):
        error = KafkaError(code)
        if error.str() == text:
            return client_error_name(error)
    return "unknown"


def _setting(admin: "AdminClient", kind: str, resource: str, name: str) -> int:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin._config import ConfigResource

    config_resource = ConfigResource(kind, resource)
    try:
        entries = admin.describe_configs([config_resource], request_timeout=REQUEST_S)[config_resource].result()
    except KafkaException:
        return 0
    return int(str(entries[name].value)) if name in entries else 0
