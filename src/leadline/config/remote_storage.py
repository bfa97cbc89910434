"""The settings of remote storage, which this broker does not have.

Pure: a table.
"""

from collections.abc import Iterator

from leadline.config.checks import at_least, between, not_empty
from leadline.config.settings import Importance, Mode, SettingRow, UnsupportedRow, accepted, refused
from leadline.config.values import LONG_MAX, ConfigType

BOOLEAN, DOUBLE, INT, LONG, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.DOUBLE,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.STRING,
)
LOW, MEDIUM = Importance.LOW, Importance.MEDIUM
CLUSTER_WIDE = Mode.CLUSTER_WIDE


def rows() -> Iterator[SettingRow]:
    row = refused("there is no remote storage; leave it false")
    yield row("remote.log.storage.system.enable", BOOLEAN, False, "whether old segments are moved to remote storage")
    row = accepted("there is no remote storage")
    yield row("remote.fetch.max.wait.ms", INT, 500, "how long a remote read may take", at_least(1), mode=CLUSTER_WIDE)
    for name, kind, default, importance, check, meaning in (
        ("storage.manager.impl.prefix", STRING, "rsm.config.", MEDIUM, not_empty, "prefix of the storage's settings"),
        (
            "metadata.manager.impl.prefix",
            STRING,
            "rlmm.config.",
            MEDIUM,
            not_empty,
            "prefix of the metadata's settings",
        ),
        ("storage.manager.class.name", STRING, None, MEDIUM, not_empty, "the class of the storage"),
        ("storage.manager.class.path", STRING, None, MEDIUM, None, "class path of the storage"),
        (
            "metadata.manager.class.name",
            STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            MEDIUM,
            not_empty,
            "the class of the metadata of remote segments",
        ),
        ("metadata.manager.class.path", STRING, None, MEDIUM, None, "class path of the metadata"),
        ("metadata.manager.listener.name", STRING, None, MEDIUM, not_empty, "the listener that it uses"),
        (
            "metadata.custom.metadata.max.bytes",
            INT,
            128,
            LOW,
            at_least(0),
            "maximum size of custom metadata of a segment",
        ),
        ("manager.thread.pool.size", INT, 10, MEDIUM, at_least(1), "threads that copy and delete"),
        ("manager.task.interval.ms", LONG, 30_000, LOW, at_least(1), "interval between checks for work"),
        ("reader.threads", INT, 10, MEDIUM, at_least(1), "threads that read"),
        ("reader.max.pending.tasks", INT, 100, MEDIUM, at_least(1), "reads that may wait for them"),
        ("manager.copy.quota.window.num", INT, 11, MEDIUM, at_least(1), "windows over which copying is measured"),
        ("manager.copy.quota.window.size.seconds", INT, 1, MEDIUM, at_least(1), "length of a window"),
        ("manager.fetch.quota.window.num", INT, 11, MEDIUM, at_least(1), "windows over which reading is measured"),
        ("manager.fetch.quota.window.size.seconds", INT, 1, MEDIUM, at_least(1), "length of a window"),
    ):
        yield row(f"remote.log.{name}", kind, default, meaning, check, importance=importance)
    for name, default, importance, meaning in (
        ("index.file.cache.total.size.bytes", 1 << 30, LOW, "local disk space for indexes of remote segments"),
        ("manager.copy.max.bytes.per.second", LONG_MAX, MEDIUM, "bytes per second that segments are copied with"),
        ("manager.fetch.max.bytes.per.second", LONG_MAX, MEDIUM, "bytes per second that remote segments are read with"),
    ):
        yield row(f"remote.log.{name}", LONG, default, meaning, at_least(1), importance=importance, mode=CLUSTER_WIDE)
    yield from _threads(row)


def _threads(row: UnsupportedRow) -> Iterator[SettingRow]:
    for name, kind, default, importance, check, meaning in (
        ("copier.thread.pool.size", INT, 10, MEDIUM, at_least(1), "threads that copy"),
        ("expiration.thread.pool.size", INT, 10, MEDIUM, at_least(1), "threads that delete"),
        ("task.retry.backoff.ms", LONG, 500, LOW, at_least(1), "wait after a first failure"),
        ("task.retry.backoff.max.ms", LONG, 30_000, LOW, at_least(1), "maximum wait"),
        ("task.retry.jitter", DOUBLE, 0.2, LOW, between(0, 0.5), "random part added to it"),
    ):
        yield row(f"remote.log.manager.{name}", kind, default, meaning, check, importance=importance, internal=True)
