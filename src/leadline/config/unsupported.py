"""The settings of a broker that Kafka has and this one does not obey, each with the reason.

The rule, which docs/decisions/0013-settings-as-tables.md explains:

    REFUSED     whoever sets it relies on something that is not done here: only its default may be set
    ACCEPTED    it has nothing to act on here, such as a pool of threads; or it acts in Kafka only together with
                a setting that is refused here

Pure: a table.
"""

from collections.abc import Callable, Iterator

from leadline.config import security
from leadline.config.checks import Check, any_case_of, at_least, between, each_of, not_empty
from leadline.config.settings import Importance, Mode, Row, accepted, refused
from leadline.config.values import DAY_MS, INT_MAX, LONG_MAX, Kind

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BOOLEAN, STRING, INT, SHORT, LONG = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG
DOUBLE, LIST, CLASS, PASSWORD = Kind.DOUBLE, Kind.LIST, Kind.CLASS, Kind.PASSWORD
PER_BROKER, CLUSTER_WIDE = Mode.PER_BROKER, Mode.CLUSTER_WIDE


def rows() -> Iterator[Row]:
    groups = (
        _threads,
        _quotas,
        _metrics,
        _plugins,
        _zookeeper,
        _kraft,
        _groups,
        _kerberos,
        _tokens,
        _logins,
        _oauth,
        _java_tls,
    )
    for group in (*groups, security.rows, _remote, _remote_threads):
        yield from group()


def _threads() -> Iterator[Row]:
    row = accepted("one thread serves all requests")
    yield row("num.network.threads", INT, 3, HIGH, "threads that serve sockets", at_least(1), CLUSTER_WIDE)
    yield row("num.io.threads", INT, 8, HIGH, "threads that serve requests", at_least(1), CLUSTER_WIDE)
    yield row("background.threads", INT, 10, HIGH, "threads for periodic work", at_least(1), CLUSTER_WIDE)
    yield row("num.replica.alter.log.dirs.threads", INT, None, HIGH, "threads that move logs between directories")
    yield row("queued.max.requests", INT, 500, HIGH, "requests that may wait for a thread", at_least(1))
    row = accepted("one fetcher copies from each leader")
    yield row("num.replica.fetchers", INT, 1, HIGH, "fetches that run at a time from one leader", mode=CLUSTER_WIDE)
    row = accepted("the controller's requests come through the listener between brokers, ahead of no others")
    yield row("control.plane.listener.name", STRING, None, HIGH, "the listener for the controller's requests alone")
    row = accepted("the system finds the size of this buffer by itself")
    yield row("replica.socket.receive.buffer.bytes", INT, 65_536, HIGH, "the receive buffer of a follower's socket")
    row = accepted("what waits here is woken by what it waits for")
    yield row("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM, "answered fetches between two clearings")
    yield row("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM, "answered writes between two clearings")
    yield row(
        "delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM, "answered deletions between two clearings"
    )


def _quotas() -> Iterator[Row]:
    row = accepted("there are no quotas of clients")
    for name, what in (("quota", "a client's rate"), ("controller.quota", "the rate of changes to topics")):
        yield row(f"{name}.window.num", INT, 11, LOW, f"windows over which {what} is taken", at_least(1))
        yield row(f"{name}.window.size.seconds", INT, 1, LOW, "how long each of them is", at_least(1))


def _metrics() -> Iterator[Row]:
    row = refused("Java classes cannot be loaded; leave it out")
    yield row("metric.reporters", LIST, (), LOW, "classes that metrics are handed to", mode=CLUSTER_WIDE)
    yield row("kafka.metrics.reporters", LIST, (), LOW, "classes that the older metrics are handed to")
    row = accepted("there are no Java metrics")
    yield row("kafka.metrics.polling.interval.secs", INT, 10, LOW, "how often those are asked", at_least(1))
    yield row("auto.include.jmx.reporter", BOOLEAN, True, LOW, "show metrics through JMX")
    yield row("metrics.num.samples", INT, 2, LOW, "windows that a metric is taken over", at_least(1))
    yield row("metrics.sample.window.ms", LONG, 30_000, LOW, "how long each of them is", at_least(1))
    yield row("metrics.recording.level", STRING, "INFO", LOW, "how much is measured")
    row = accepted("clients push their metrics in KRaft mode only")
    yield row("telemetry.max.bytes", INT, 1_048_576, LOW, "the largest push of a client's metrics", at_least(1))


def _plugins() -> Iterator[Row]:
    row = refused("Java classes cannot be loaded; leave it out")
    yield row("create.topic.policy.class.name", CLASS, None, LOW, "a class that has a say when topics are created")
    yield row("alter.config.policy.class.name", CLASS, None, LOW, "a class that has a say when settings are changed")
    yield row("client.quota.callback.class", CLASS, None, LOW, "a class that sets the quotas of clients")
    yield row("ssl.engine.factory.class", CLASS, None, LOW, "a class that does TLS", mode=PER_BROKER)
    yield row("sasl.server.callback.handler.class", CLASS, None, MEDIUM, "a class that checks logins")
    yield row("sasl.client.callback.handler.class", CLASS, None, MEDIUM, "a class that logs in to other brokers")
    yield row("sasl.login.class", CLASS, None, MEDIUM, "a class that keeps the broker's own login")
    yield row("sasl.login.callback.handler.class", CLASS, None, MEDIUM, "a class that finds the broker's own login")
    yield row("security.providers", STRING, None, LOW, "classes that bring algorithms with them")
    yield row(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        MEDIUM,
        "a class that tells who a connection belongs to",
        mode=PER_BROKER,
    )


def _zookeeper() -> Iterator[Row]:
    row = refused("leave it false and keep strangers away from ZooKeeper by other means")
    yield row("zookeeper.set.acl", BOOLEAN, False, HIGH, "let none but brokers change what lies in ZooKeeper")
    row = refused("connections to ZooKeeper are plain; leave it false")
    yield row("zookeeper.ssl.client.enable", BOOLEAN, False, MEDIUM, "speak TLS with ZooKeeper")
    row = refused("connections to ZooKeeper are plain; leave it out")
    yield row("zookeeper.ssl.keystore.location", STRING, None, MEDIUM, "the file with the key for ZooKeeper")
    yield row("zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM, "the password of that file")
    yield row("zookeeper.ssl.truststore.location", STRING, None, MEDIUM, "the file that ZooKeeper is known by")
    yield row("zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM, "the password of that file")
    row = accepted("connections to ZooKeeper are plain")
    yield row("zookeeper.clientCnxnSocket", STRING, None, MEDIUM, "the class that connects to ZooKeeper")
    yield row("zookeeper.ssl.keystore.type", STRING, None, MEDIUM, "the format of the file with the key")
    yield row("zookeeper.ssl.truststore.type", STRING, None, MEDIUM, "the format of the file it is known by")
    yield row("zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW, "the newest TLS to offer ZooKeeper")
    yield row("zookeeper.ssl.enabled.protocols", LIST, None, LOW, "the versions of TLS in use with ZooKeeper")
    yield row("zookeeper.ssl.cipher.suites", LIST, None, LOW, "the cipher suites in use with ZooKeeper")
    yield row(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        LOW,
        "how ZooKeeper's name is held against its certificate",
    )
    yield row("zookeeper.ssl.crl.enable", BOOLEAN, False, LOW, "look for ZooKeeper's certificate in revocation lists")
    yield row("zookeeper.ssl.ocsp.enable", BOOLEAN, False, LOW, "ask an OCSP server about ZooKeeper's certificate")


def _kraft() -> Iterator[Row]:
    row = refused("there is no KRaft; set zookeeper.connect, or leave both out for a single node")
    yield row("process.roles", LIST, (), HIGH, "what the process is in KRaft mode", each_of("broker", "controller"))
    yield row("controller.listener.names", STRING, None, HIGH, "the listeners of KRaft's controllers")
    yield row("zookeeper.metadata.migration.enable", BOOLEAN, False, HIGH, "move from ZooKeeper to KRaft")
    row = refused("requests whose format is not settled are not served; leave it false")
    yield row("unstable.api.versions.enable", BOOLEAN, False, HIGH, "serve unsettled requests", internal=True)
    row = accepted("it means something in KRaft mode only")
    yield row("unstable.feature.versions.enable", BOOLEAN, False, HIGH, "allow unsettled features", internal=True)
    yield row(
        "zookeeper.metadata.migration.min.batch.size",
        INT,
        200,
        MEDIUM,
        "records moved at a time",
        at_least(1),
        internal=True,
    )
    yield row("eligible.leader.replicas.enable", BOOLEAN, False, HIGH, "remember replicas that could lead safely")
    yield row("early.start.listeners", STRING, None, HIGH, "listeners that open before the broker is ready")
    yield row("initial.broker.registration.timeout.ms", INT, 60_000, MEDIUM, "how long a first registration may take")
    yield row("broker.heartbeat.interval.ms", INT, 2000, MEDIUM, "time between two signs of life")
    yield row("broker.session.timeout.ms", INT, 9000, MEDIUM, "how long a broker may stay silent")
    yield row("sasl.mechanism.controller.protocol", STRING, "GSSAPI", HIGH, "the mechanism towards controllers")
    yield row("log.dir.failure.timeout.ms", LONG, 30_000, LOW, "how long a failure may stay unreported", at_least(1))
    yield row(
        "server.max.startup.time.ms", LONG, LONG_MAX, MEDIUM, "how long starting may take", at_least(0), internal=True
    )
    yield row("max.request.partition.size.limit", INT, 2000, MEDIUM, "partitions described in one answer", at_least(1))
    yield from _kraft_log(row)
    yield from _kraft_quorum(row)


def _kraft_log(row: Callable[..., Row]) -> Iterator[Row]:
    yield row("metadata.log.dir", STRING, None, HIGH, "where the log of metadata lies")
    yield row("metadata.log.segment.bytes", INT, 1 << 30, HIGH, "its largest segment", at_least(12))
    yield row("metadata.log.segment.min.bytes", INT, 8 << 20, HIGH, "its smallest segment", at_least(12), internal=True)
    yield row("metadata.log.segment.ms", LONG, 7 * DAY_MS, HIGH, "the longest time one of them is written to")
    yield row("metadata.max.retention.bytes", LONG, 100 << 20, HIGH, "the size it is cut back to")
    yield row("metadata.max.retention.ms", LONG, 7 * DAY_MS, HIGH, "how long it is kept")
    yield row("metadata.max.idle.interval.ms", INT, 500, LOW, "how often an idle quorum writes", at_least(0))
    yield row(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20 << 20,
        HIGH,
        "bytes of metadata between two snapshots",
        at_least(1),
    )
    yield row("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, HIGH, "time between two snapshots", at_least(0))


def _kraft_quorum(row: Callable[..., Row]) -> Iterator[Row]:
    voters = Check(lambda value: True, "", "non-empty list")
    yield row("controller.quorum.voters", LIST, (), HIGH, "the controllers, as id@host:port", voters)
    yield row("controller.quorum.bootstrap.servers", LIST, (), HIGH, "where to ask for them", voters, internal=True)
    yield row("controller.quorum.election.timeout.ms", INT, 1000, HIGH, "how long an election waits for votes")
    yield row("controller.quorum.fetch.timeout.ms", INT, 2000, HIGH, "how long a voter waits for its leader")
    yield row("controller.quorum.election.backoff.max.ms", INT, 1000, HIGH, "the longest rest between elections")
    yield row("controller.quorum.append.linger.ms", INT, 25, MEDIUM, "how long writes are gathered")
    yield row("controller.quorum.request.timeout.ms", INT, 2000, MEDIUM, "how long a controller's answer may take")
    yield row("controller.quorum.retry.backoff.ms", INT, 20, LOW, "time between two attempts")


def _groups() -> Iterator[Row]:
    row = refused("commits wait for all in-sync replicas; leave it at -1")
    yield row("offsets.commit.required.acks", SHORT, -1, HIGH, "replicas that a commit waits for; -1: all in sync")
    row = accepted("groups rebalance in the classic way alone")
    yield row("group.coordinator.threads", INT, 1, MEDIUM, "threads that coordinate groups", at_least(1))
    yield row("group.coordinator.append.linger.ms", INT, 10, MEDIUM, "how long writes are gathered", at_least(0))
    yield row("group.coordinator.new.enable", BOOLEAN, False, MEDIUM, "run the newer coordinator", internal=True)
    yield row("group.consumer.session.timeout.ms", INT, 45_000, MEDIUM, "how long members may be silent", at_least(1))
    yield row("group.consumer.min.session.timeout.ms", INT, 45_000, MEDIUM, "the least that may be set", at_least(1))
    yield row("group.consumer.max.session.timeout.ms", INT, 60_000, MEDIUM, "the most that may be set", at_least(1))
    yield row("group.consumer.heartbeat.interval.ms", INT, 5000, MEDIUM, "time between signs of life", at_least(1))
    yield row("group.consumer.min.heartbeat.interval.ms", INT, 5000, MEDIUM, "the least that may be set", at_least(1))
    yield row("group.consumer.max.heartbeat.interval.ms", INT, 15_000, MEDIUM, "the most that may be set", at_least(1))
    yield row("group.consumer.max.size", INT, INT_MAX, MEDIUM, "members of a group", at_least(1))
    assignors = "org.apache.kafka.coordinator.group.assignor"
    yield row(
        "group.consumer.assignors",
        LIST,
        (f"{assignors}.UniformAssignor", f"{assignors}.RangeAssignor"),
        MEDIUM,
        "classes that share partitions out",
    )
    yield row(
        "group.consumer.migration.policy",
        STRING,
        "disabled",
        MEDIUM,
        "may groups change from one way of rebalancing to the other",
        any_case_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    )


def _kerberos() -> Iterator[Row]:
    row = accepted("there is no GSSAPI")
    yield row("sasl.kerberos.service.name", STRING, None, MEDIUM, "the broker's name to Kerberos", mode=PER_BROKER)
    yield row("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", MEDIUM, "where kinit lies", mode=PER_BROKER)
    yield row(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        0.8,
        MEDIUM,
        "the share of a ticket's life after which it is renewed",
        mode=PER_BROKER,
    )
    yield row("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, MEDIUM, "what chance adds to it", mode=PER_BROKER)
    yield row(
        "sasl.kerberos.min.time.before.relogin", LONG, 60_000, MEDIUM, "time between two attempts", mode=PER_BROKER
    )
    yield row(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        ("DEFAULT",),
        MEDIUM,
        "rules that turn a Kerberos name into a user's",
        mode=PER_BROKER,
    )


def _tokens() -> Iterator[Row]:
    row = refused("there are no delegation tokens; leave it out")
    yield row("delegation.token.secret.key", PASSWORD, None, MEDIUM, "the secret that tokens are signed with")
    yield row("delegation.token.master.key", PASSWORD, None, MEDIUM, "the older name of that secret")
    row = accepted("there are no delegation tokens")
    yield row(
        "delegation.token.max.lifetime.ms", LONG, 7 * DAY_MS, MEDIUM, "how long a token may be renewed", at_least(1)
    )
    yield row("delegation.token.expiry.time.ms", LONG, DAY_MS, MEDIUM, "how long it lives at a time", at_least(1))
    yield row(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        LOW,
        "time between two looks for old ones",
        at_least(1),
    )


def _logins() -> Iterator[Row]:
    row = accepted("there is no OAUTHBEARER")
    for name, kind, default, meaning in (
        ("refresh.window.factor", DOUBLE, 0.8, "the share of a login's life after which it is renewed"),
        ("refresh.window.jitter", DOUBLE, 0.05, "what chance adds to it"),
        ("refresh.min.period.seconds", SHORT, 60, "how long a login lasts at least"),
        ("refresh.buffer.seconds", SHORT, 300, "how long before its end a login is renewed at the latest"),
    ):
        yield row(f"sasl.login.{name}", kind, default, MEDIUM, meaning, mode=PER_BROKER)
    yield row("sasl.login.connect.timeout.ms", INT, None, LOW, "how long connecting for a token may take")
    yield row("sasl.login.read.timeout.ms", INT, None, LOW, "how long the answer with a token may take")
    yield row("sasl.login.retry.backoff.max.ms", LONG, 10_000, LOW, "the longest rest between two attempts")
    yield row("sasl.login.retry.backoff.ms", LONG, 100, LOW, "the rest after the first attempt")


def _oauth() -> Iterator[Row]:
    row = accepted("there is no OAUTHBEARER")
    for name, kind, default, importance, meaning in (
        ("scope.claim.name", STRING, "scope", LOW, "the claim of a token that holds its scope"),
        ("sub.claim.name", STRING, "sub", LOW, "the claim of a token that holds its user"),
        ("token.endpoint.url", STRING, None, MEDIUM, "where tokens come from"),
        ("jwks.endpoint.url", STRING, None, MEDIUM, "where the keys that sign them come from"),
        ("jwks.endpoint.refresh.ms", LONG, 3_600_000, LOW, "how long those keys are kept"),
        ("jwks.endpoint.retry.backoff.ms", LONG, 100, LOW, "the rest after a first failed attempt to get them"),
        ("jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, LOW, "the longest rest between two attempts"),
        ("clock.skew.seconds", INT, 30, LOW, "how far two clocks may be apart"),
        ("expected.audience", LIST, None, LOW, "whom a token must be meant for"),
        ("expected.issuer", STRING, None, LOW, "whom a token must come from"),
    ):
        yield row(f"sasl.oauthbearer.{name}", kind, default, importance, meaning)


def _java_tls() -> Iterator[Row]:
    row = accepted("it belongs to Java's TLS")
    yield row("ssl.provider", STRING, None, MEDIUM, "the security provider", mode=PER_BROKER)
    yield row("ssl.keymanager.algorithm", STRING, "SunX509", MEDIUM, "how keys are chosen", mode=PER_BROKER)
    yield row("ssl.trustmanager.algorithm", STRING, "PKIX", MEDIUM, "how trust is established", mode=PER_BROKER)
    yield row("ssl.secure.random.implementation", STRING, None, LOW, "the source of randomness", mode=PER_BROKER)
    row = accepted("passwords do not change while the broker runs")
    yield row("password.encoder.secret", PASSWORD, None, MEDIUM, "the secret that hides passwords in ZooKeeper")
    yield row("password.encoder.old.secret", PASSWORD, None, MEDIUM, "the one before")
    yield row("password.encoder.keyfactory.algorithm", STRING, None, LOW, "how a key is made of it")
    yield row("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", LOW, "the cipher")
    yield row("password.encoder.key.length", INT, 128, LOW, "bits of its key", at_least(8))
    yield row("password.encoder.iterations", INT, 4096, LOW, "rounds to make it", at_least(1024))


def _remote() -> Iterator[Row]:
    row = refused("there is no remote storage; leave it false")
    yield row("remote.log.storage.system.enable", BOOLEAN, False, MEDIUM, "move old segments to remote storage")
    row = accepted("there is no remote storage")
    yield row(
        "remote.fetch.max.wait.ms", INT, 500, MEDIUM, "how long a remote read may take", at_least(1), CLUSTER_WIDE
    )
    for name, kind, default, importance, check, meaning in (
        ("storage.manager.impl.prefix", STRING, "rsm.config.", MEDIUM, not_empty, "how the storage's settings begin"),
        (
            "metadata.manager.impl.prefix",
            STRING,
            "rlmm.config.",
            MEDIUM,
            not_empty,
            "how its metadata's settings begin",
        ),
        ("storage.manager.class.name", STRING, None, MEDIUM, not_empty, "the class of the storage"),
        ("storage.manager.class.path", STRING, None, MEDIUM, None, "where that class lies"),
        (
            "metadata.manager.class.name",
            STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            MEDIUM,
            not_empty,
            "the class that knows what lies where",
        ),
        ("metadata.manager.class.path", STRING, None, MEDIUM, None, "where that class lies"),
        ("metadata.manager.listener.name", STRING, None, MEDIUM, not_empty, "the listener that it uses"),
        ("metadata.custom.metadata.max.bytes", INT, 128, LOW, at_least(0), "the longest note kept with a segment"),
        ("manager.thread.pool.size", INT, 10, MEDIUM, at_least(1), "threads that copy and delete"),
        ("manager.task.interval.ms", LONG, 30_000, LOW, at_least(1), "time between two looks for work"),
        ("reader.threads", INT, 10, MEDIUM, at_least(1), "threads that read"),
        ("reader.max.pending.tasks", INT, 100, MEDIUM, at_least(1), "reads that may wait for them"),
        ("manager.copy.quota.window.num", INT, 11, MEDIUM, at_least(1), "windows over which copying is measured"),
        ("manager.copy.quota.window.size.seconds", INT, 1, MEDIUM, at_least(1), "how long each of them is"),
        ("manager.fetch.quota.window.num", INT, 11, MEDIUM, at_least(1), "windows over which reading is measured"),
        ("manager.fetch.quota.window.size.seconds", INT, 1, MEDIUM, at_least(1), "how long each of them is"),
    ):
        yield row(f"remote.log.{name}", kind, default, importance, meaning, check)
    for name, default, importance, meaning in (
        ("index.file.cache.total.size.bytes", 1 << 30, LOW, "local room for indexes of remote segments"),
        ("manager.copy.max.bytes.per.second", LONG_MAX, MEDIUM, "how fast segments are copied"),
        ("manager.fetch.max.bytes.per.second", LONG_MAX, MEDIUM, "how fast they are read"),
    ):
        yield row(f"remote.log.{name}", LONG, default, importance, meaning, at_least(1), CLUSTER_WIDE)


def _remote_threads() -> Iterator[Row]:
    row = accepted("there is no remote storage")
    for name, kind, default, importance, check, meaning in (
        ("copier.thread.pool.size", INT, 10, MEDIUM, at_least(1), "threads that copy"),
        ("expiration.thread.pool.size", INT, 10, MEDIUM, at_least(1), "threads that delete"),
        ("task.retry.backoff.ms", LONG, 500, LOW, at_least(1), "the rest after a first failure"),
        ("task.retry.backoff.max.ms", LONG, 30_000, LOW, at_least(1), "the longest rest"),
        ("task.retry.jitter", DOUBLE, 0.2, LOW, between(0, 0.5), "what chance adds to it"),
    ):
        yield row(f"remote.log.manager.{name}", kind, default, importance, meaning, check, internal=True)
