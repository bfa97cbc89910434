"""The settings of KRaft mode, which this broker does not have.

Pure: a table.
"""

from collections.abc import Iterator

from leadline.config.checks import ValueCheck, at_least, each_of
from leadline.config.settings import Importance, SettingRow, UnsupportedRow, accepted, refused
from leadline.config.values import DAY_MS, LONG_MAX, ConfigType

BOOLEAN, INT, LIST, LONG, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.LONG,
    ConfigType.STRING,
)
HIGH, LOW = Importance.HIGH, Importance.LOW


def rows() -> Iterator[SettingRow]:
    row = refused("there is no KRaft; set zookeeper.connect, or leave both out for a single node")
    yield row(
        "process.roles",
        LIST,
        (),
        "the roles of the process in KRaft mode",
        each_of("broker", "controller"),
        importance=HIGH,
    )
    yield row("controller.listener.names", STRING, None, "the listeners of KRaft's controllers", importance=HIGH)
    yield row(
        "zookeeper.metadata.migration.enable",
        BOOLEAN,
        False,
        "whether metadata moves from ZooKeeper to KRaft",
        importance=HIGH,
    )
    row = accepted("no version of a request is unstable in Kafka 3.8")
    yield row(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "whether unstable versions of requests are served",
        importance=HIGH,
        internal=True,
    )
    row = accepted("it has an effect in KRaft mode only")
    yield row(
        "unstable.feature.versions.enable",
        BOOLEAN,
        False,
        "whether unstable features are allowed",
        importance=HIGH,
        internal=True,
    )
    yield row(
        "zookeeper.metadata.migration.min.batch.size", INT, 200, "records moved at a time", at_least(1), internal=True
    )
    yield row(
        "eligible.leader.replicas.enable",
        BOOLEAN,
        False,
        "whether replicas that can lead without data loss are tracked",
        importance=HIGH,
    )
    yield row("early.start.listeners", STRING, None, "listeners that open before the broker is ready", importance=HIGH)
    yield row("initial.broker.registration.timeout.ms", INT, 60_000, "how long a first registration may take")
    yield row("broker.heartbeat.interval.ms", INT, 2000, "interval between heartbeats")
    yield row("broker.session.timeout.ms", INT, 9000, "how long a broker may stay silent")
    yield row(
        "sasl.mechanism.controller.protocol", STRING, "GSSAPI", "the mechanism towards controllers", importance=HIGH
    )
    yield row(
        "log.dir.failure.timeout.ms",
        LONG,
        30_000,
        "how long a failure may stay unreported",
        at_least(1),
        importance=LOW,
    )
    yield row("server.max.startup.time.ms", LONG, LONG_MAX, "how long starting may take", at_least(0), internal=True)
    yield row("max.request.partition.size.limit", INT, 2000, "partitions described in one answer", at_least(1))
    yield from _log(row)
    yield from _quorum(row)


def _log(row: UnsupportedRow) -> Iterator[SettingRow]:
    yield row("metadata.log.dir", STRING, None, "directory of the metadata log", importance=HIGH)
    yield row("metadata.log.segment.bytes", INT, 1 << 30, "maximum size of its segments", at_least(12), importance=HIGH)
    yield row(
        "metadata.log.segment.min.bytes",
        INT,
        8 << 20,
        "minimum size of its segments",
        at_least(12),
        importance=HIGH,
        internal=True,
    )
    yield row(
        "metadata.log.segment.ms", LONG, 7 * DAY_MS, "the longest time one of them is written to", importance=HIGH
    )
    yield row(
        "metadata.max.retention.bytes",
        LONG,
        100 << 20,
        "maximum size of the metadata log and its snapshots",
        importance=HIGH,
    )
    yield row("metadata.max.retention.ms", LONG, 7 * DAY_MS, "how long it is kept", importance=HIGH)
    yield row("metadata.max.idle.interval.ms", INT, 500, "how often an idle quorum writes", at_least(0), importance=LOW)
    yield row(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20 << 20,
        "bytes of metadata between two snapshots",
        at_least(1),
        importance=HIGH,
    )
    yield row(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        3_600_000,
        "time between two snapshots",
        at_least(0),
        importance=HIGH,
    )


def _quorum(row: UnsupportedRow) -> Iterator[SettingRow]:
    voters = ValueCheck(lambda value: True, "", "non-empty list")
    yield row("controller.quorum.voters", LIST, (), "the controllers, as id@host:port", voters, importance=HIGH)
    yield row(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        "servers that return the list of controllers",
        voters,
        importance=HIGH,
        internal=True,
    )
    yield row(
        "controller.quorum.election.timeout.ms", INT, 1000, "how long an election waits for votes", importance=HIGH
    )
    yield row("controller.quorum.fetch.timeout.ms", INT, 2000, "how long a voter waits for its leader", importance=HIGH)
    yield row("controller.quorum.election.backoff.max.ms", INT, 1000, "maximum wait between elections", importance=HIGH)
    yield row("controller.quorum.append.linger.ms", INT, 25, "how long writes are batched")
    yield row("controller.quorum.request.timeout.ms", INT, 2000, "how long a controller's answer may take")
    yield row("controller.quorum.retry.backoff.ms", INT, 20, "interval between attempts", importance=LOW)
