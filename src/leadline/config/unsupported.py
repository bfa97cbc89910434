"""The settings of a Kafka broker that this broker does not obey, each with the reason.

The rule, which docs/decisions/0013-settings-as-tables.md explains:

    REFUSED     it enables a feature that this broker lacks: only its default may be set
    ACCEPTED    it tunes something that this broker does not have, such as a thread pool; or it has an effect in
                Kafka only together with a setting that is refused here

Pure: a table.
"""

from collections.abc import Iterator

from leadline.config import kraft, remote_storage
from leadline.config.checks import ValueCheck, any_case_of, at_least
from leadline.config.security import CALLBACK_HANDLER, CALLBACK_HANDLERS, JAAS, LOGIN_HANDLER, LOGIN_HANDLERS
from leadline.config.settings import Importance, Mode, SettingRow, accepted, refused
from leadline.config.values import INT_MAX, ConfigType

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BOOLEAN, STRING, INT, SHORT, LONG = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
)
DOUBLE, LIST, CLASS, PASSWORD = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD
PER_BROKER, CLUSTER_WIDE = Mode.PER_BROKER, Mode.CLUSTER_WIDE


def _class_in(names: tuple[str, ...]) -> ValueCheck:
    text = f"not supported: Java classes cannot be loaded; must be one of {', '.join(names)}"
    return ValueCheck(lambda name: name in names, text, "")


def rows() -> Iterator[SettingRow]:
    groups = (
        _threads,
        _metrics,
        _plugins,
        _zookeeper,
        kraft.rows,
        _groups,
        _sasl,
        _kerberos,
        _java_tls,
    )
    for group in (*groups, remote_storage.rows):
        yield from group()


def _threads() -> Iterator[SettingRow]:
    row = accepted("one thread serves all requests")
    yield row(
        "num.network.threads", INT, 3, "threads that serve sockets", at_least(1), importance=HIGH, mode=CLUSTER_WIDE
    )
    yield row("num.io.threads", INT, 8, "threads that serve requests", at_least(1), importance=HIGH, mode=CLUSTER_WIDE)
    yield row(
        "background.threads", INT, 10, "threads for periodic work", at_least(1), importance=HIGH, mode=CLUSTER_WIDE
    )
    yield row(
        "num.replica.alter.log.dirs.threads", INT, None, "threads that move logs between directories", importance=HIGH
    )
    yield row("queued.max.requests", INT, 500, "requests that may wait for a thread", at_least(1), importance=HIGH)
    row = accepted("one fetcher fetches from each leader")
    yield row(
        "num.replica.fetchers", INT, 1, "fetches that run at a time from one leader", importance=HIGH, mode=CLUSTER_WIDE
    )
    row = accepted("the system chooses the size of this buffer")
    yield row(
        "replica.socket.receive.buffer.bytes", INT, 65_536, "the receive buffer of a follower's socket", importance=HIGH
    )
    row = accepted("waiting requests are completed by the event that they wait for")
    yield row("fetch.purgatory.purge.interval.requests", INT, 1000, "completed fetches between two purges")
    yield row("producer.purgatory.purge.interval.requests", INT, 1000, "completed produce requests between two purges")
    yield row("delete.records.purgatory.purge.interval.requests", INT, 1, "completed deletions between two purges")


def _metrics() -> Iterator[SettingRow]:
    row = refused("Java classes cannot be loaded; leave it out")
    yield row("metric.reporters", LIST, (), "classes that receive metrics", importance=LOW, mode=CLUSTER_WIDE)
    yield row("kafka.metrics.reporters", LIST, (), "classes that receive the older metrics", importance=LOW)
    row = accepted("there are no Java metrics")
    yield row(
        "kafka.metrics.polling.interval.secs",
        INT,
        10,
        "interval of those reports, in seconds",
        at_least(1),
        importance=LOW,
    )
    yield row("auto.include.jmx.reporter", BOOLEAN, True, "whether metrics are exported through JMX", importance=LOW)
    yield row("metrics.num.samples", INT, 2, "windows over which a metric is measured", at_least(1), importance=LOW)
    yield row("metrics.sample.window.ms", LONG, 30_000, "length of a window", at_least(1), importance=LOW)
    yield row("metrics.recording.level", STRING, "INFO", "how much is measured", importance=LOW)
    row = accepted("clients push their metrics in KRaft mode only")
    yield row(
        "telemetry.max.bytes", INT, 1_048_576, "the largest push of a client's metrics", at_least(1), importance=LOW
    )


def _plugins() -> Iterator[SettingRow]:
    row = refused("Java classes cannot be loaded; leave it out")
    yield row("create.topic.policy.class.name", CLASS, None, "class that may refuse new topics", importance=LOW)
    yield row(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "class that may refuse changed settings",
        importance=LOW,
    )
    yield row("client.quota.callback.class", CLASS, None, "a class that sets the quotas of clients", importance=LOW)
    yield row("ssl.engine.factory.class", CLASS, None, "a class that does TLS", importance=LOW, mode=PER_BROKER)
    yield row("sasl.client.callback.handler.class", CLASS, None, "a class that logs in to other brokers")
    yield row("sasl.login.class", CLASS, None, "a class that keeps the broker's own login")
    yield row("security.providers", STRING, None, "classes that provide security algorithms", importance=LOW)
    yield row(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "a class that determines the principal of a connection",
        mode=PER_BROKER,
    )


def _zookeeper() -> Iterator[SettingRow]:
    row = refused("revoked certificates of ZooKeeper are not looked up; leave it false")
    yield row(
        "zookeeper.ssl.crl.enable",
        BOOLEAN,
        False,
        "whether ZooKeeper's certificate is checked against revocation lists",
        importance=LOW,
    )
    yield row(
        "zookeeper.ssl.ocsp.enable",
        BOOLEAN,
        False,
        "whether ZooKeeper's certificate is checked by OCSP",
        importance=LOW,
    )


def _groups() -> Iterator[SettingRow]:
    row = refused("commits wait for all in-sync replicas; leave it at -1")
    yield row(
        "offsets.commit.required.acks", SHORT, -1, "replicas that a commit waits for; -1: all in sync", importance=HIGH
    )
    row = accepted("groups use only the classic protocol")
    yield row("group.coordinator.threads", INT, 1, "threads that coordinate groups", at_least(1))
    yield row("group.coordinator.append.linger.ms", INT, 10, "how long writes are batched", at_least(0))
    yield row("group.coordinator.new.enable", BOOLEAN, False, "whether the newer group coordinator runs", internal=True)
    yield row("group.consumer.session.timeout.ms", INT, 45_000, "how long members may be silent", at_least(1))
    yield row("group.consumer.min.session.timeout.ms", INT, 45_000, "the least that may be set", at_least(1))
    yield row("group.consumer.max.session.timeout.ms", INT, 60_000, "the most that may be set", at_least(1))
    yield row("group.consumer.heartbeat.interval.ms", INT, 5000, "interval between heartbeats", at_least(1))
    yield row("group.consumer.min.heartbeat.interval.ms", INT, 5000, "the least that may be set", at_least(1))
    yield row("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "the most that may be set", at_least(1))
    yield row("group.consumer.max.size", INT, INT_MAX, "maximum members of a group", at_least(1))
    assignors = "org.apache.kafka.coordinator.group.assignor"
    yield row(
        "group.consumer.assignors",
        LIST,
        (f"{assignors}.UniformAssignor", f"{assignors}.RangeAssignor"),
        "classes that assign partitions",
    )
    yield row(
        "group.consumer.migration.policy",
        STRING,
        "disabled",
        "whether groups may change from one rebalance protocol to the other",
        any_case_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    )


def _sasl() -> Iterator[SettingRow]:
    row = accepted("it counts with a listener and a mechanism: listener.name.<listener>.<mechanism>.sasl.jaas.config")
    login = "the login module of a listener with its options, users among them"
    yield row(JAAS, PASSWORD, None, login, mode=PER_BROKER)
    row = accepted(
        f"it counts with a listener and a mechanism: listener.name.<listener>.oauthbearer.{CALLBACK_HANDLER}"
    )
    yield row(CALLBACK_HANDLER, CLASS, None, "the class that checks OAUTHBEARER tokens", _class_in(CALLBACK_HANDLERS))
    row = accepted(f"it counts with a listener and a mechanism: listener.name.<listener>.oauthbearer.{LOGIN_HANDLER}")
    meaning = "the class that gets the token by which the broker logs in to others"
    yield row(LOGIN_HANDLER, CLASS, None, meaning, _class_in(LOGIN_HANDLERS))


def _kerberos() -> Iterator[SettingRow]:
    row = accepted("a broker logs in with its key table, and libkrb5 renews its ticket")
    yield row("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "path of kinit", mode=PER_BROKER)
    yield row(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        0.8,
        "the share of a ticket's life after which it is renewed",
        mode=PER_BROKER,
    )
    yield row("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "random part added to it", mode=PER_BROKER)
    yield row("sasl.kerberos.min.time.before.relogin", LONG, 60_000, "interval between attempts", mode=PER_BROKER)


def _java_tls() -> Iterator[SettingRow]:
    row = refused("OpenSSL does TLS here, not a provider of Java; leave it out")
    yield row("ssl.provider", STRING, None, "the security provider", mode=PER_BROKER)
    row = refused("certificates are checked as PKIX demands; leave it at PKIX")
    yield row("ssl.trustmanager.algorithm", STRING, "PKIX", "how trust is established", mode=PER_BROKER)
    row = accepted("it belongs to Java's TLS")
    yield row("ssl.protocol", STRING, "TLSv1.3", "Java's context; ssl.enabled.protocols decides", mode=PER_BROKER)
    yield row("ssl.keymanager.algorithm", STRING, "SunX509", "how keys are chosen", mode=PER_BROKER)
    yield row(
        "ssl.secure.random.implementation", STRING, None, "the source of randomness", importance=LOW, mode=PER_BROKER
    )
