"""Findings about a running cluster: its mode and versions, the settings of brokers and topics, its partitions.

Pure: values in, values out.
"""

from collections.abc import Iterator, Mapping

from leadline.cli.migrate.cluster_report import ClusterReport, ReportedBroker, ReportedTopic
from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.cli.migrate.mechanism_findings import judge_mechanisms
from leadline.cli.migrate.settings_findings import (
    INTER_BROKER_PROTOCOL,
    KRAFT_CURE,
    judge_settings,
    old_message_format,
    unknown_setting,
)
from leadline.cluster.served_versions import not_served
from leadline.config.broker import BrokerConfig, row_of
from leadline.config.topic import LogConfig
from leadline.config.values import InvalidSetting
from leadline.model import NO_LEADER
from leadline.wire.apis import APIS

BLOCKS, WARNS, NOTES = Severity.BLOCKS, Severity.WARNS, Severity.NOTES
UPDATE_METADATA, DESCRIBE_QUORUM = 6, 55  # served with ZooKeeper only; served in KRaft mode only
OWN_IDS = ("broker.id", "node.id")  # may be generated, and greater than a file may say; meta.properties has it
MORE_REPLICAS = "accept the pause, or add replicas: leadline reassign plan TOPIC --replication-factor 3"


def judge_cluster(
    report: ClusterReport, sent: Mapping[int, int], served: Mapping[int, range]
) -> Iterator[MigrationFinding]:
    """`sent`: the versions of the requests that Leadline sends to other brokers. `served`: those that it serves."""
    for broker in report.brokers:
        yield from _judge_broker(broker, sent, served)
    if len(report.brokers) == 1:
        what = "the only broker: the cluster is down while it is replaced"
        yield MigrationFinding(
            WARNS, Area.PARTITION, what, "plan a pause, or add brokers first", (_name(report.brokers[0]),)
        )
    for topic in report.topics:
        yield from _judge_topic(topic)
    for tp in report.reassigning:
        yield MigrationFinding(
            WARNS, Area.PARTITION, "is being reassigned", "wait for it: leadline reassign list", (str(tp),)
        )
    for problem in report.problems:
        yield MigrationFinding(
            WARNS, Area.PARTITION, f"not checked: {problem}", "use a principal that may describe it", ()
        )


def _name(broker: ReportedBroker) -> str:
    return f"broker {broker.id}"


# Brokers


def _judge_broker(
    broker: ReportedBroker, sent: Mapping[int, int], served: Mapping[int, range]
) -> Iterator[MigrationFinding]:
    where = _name(broker)
    if broker.problem:
        cure = "repair the broker, or the address that it advertises, and check again"
        yield MigrationFinding(BLOCKS, Area.VERSION, f"could not be checked: {broker.problem}", cure, (where,))
        return
    if UPDATE_METADATA not in broker.versions and DESCRIBE_QUORUM in broker.versions:
        levels = "".join(f", {name} {level}" for name, level in broker.features.items())
        yield MigrationFinding(BLOCKS, Area.MODE, f"runs in KRaft mode{levels}", KRAFT_CURE, (where,))
        return
    for name, level in broker.features.items():
        cure = "Leadline has no finalized features; clients and brokers that rely on it lose it"
        yield MigrationFinding(
            BLOCKS, Area.VERSION, f"the feature {name} is finalized at level {level}", cure, (where,)
        )
    yield from _judge_versions(broker, sent, served)
    yield from _judge_reported(broker)


def _judge_versions(
    broker: ReportedBroker, sent: Mapping[int, int], served: Mapping[int, range]
) -> Iterator[MigrationFinding]:
    for what in not_served(sent, broker.versions):
        yield MigrationFinding(
            BLOCKS, Area.VERSION, what, "bring all brokers to Apache Kafka 3.8 first", (_name(broker),)
        )
    for key in sorted(broker.versions.keys() - served.keys()):
        request = APIS[key].name if key in APIS else f"the request with key {key}"
        what = f"serves {request}, which Leadline does not"
        yield MigrationFinding(WARNS, Area.VERSION, what, "clients that use it must do without", (_name(broker),))


def _judge_reported(broker: ReportedBroker) -> Iterator[MigrationFinding]:
    """Brokers do not report secret values. Only a server.properties shows settings that depend on them."""
    where = _name(broker)
    if not broker.settings:
        cure = "use a principal that may describe the configs of the cluster, or check each server.properties"
        yield MigrationFinding(
            WARNS, Area.SETTING, "does not report its settings: they were not checked", cure, (where,)
        )
        return
    is_set = {setting.name: setting.value for setting in broker.settings if not setting.is_default}
    values = {name: value for name, value in is_set.items() if value is not None and name not in OWN_IDS}
    for setting in broker.settings:
        if setting.name == INTER_BROKER_PROTOCOL and setting.value is not None:
            values[setting.name] = setting.value  # the default of another release counts
    verdict = judge_settings(values, where)
    yield from verdict.findings
    if verdict.settings is not None:
        yield from judge_mechanisms(verdict.settings, where)
    for name, value in is_set.items():
        if value is None and row_of(name) is None and name not in BrokerConfig.table():
            yield unknown_setting(name, where)


# Topics


def _judge_topic(topic: ReportedTopic) -> Iterator[MigrationFinding]:
    for name, text in topic.settings.items():
        row = LogConfig.table().get(name)
        if row is None:
            what = f"{name} is not a setting of topics in Kafka 3.8"
            yield MigrationFinding(NOTES, Area.SETTING, what, "it has no effect in Leadline", (topic.name,))
            continue
        try:
            row.read(text)
        except InvalidSetting as error:
            area = Area.STORAGE if name.startswith("remote.") else Area.SETTING
            what, _, cure = str(error).partition(": not supported: ")
            yield MigrationFinding(BLOCKS, area, what, cure or "correct the value", (topic.name,))
    yield from old_message_format("message.format.version", topic.settings, topic.name)
    yield from _judge_partitions(topic)


def _judge_partitions(topic: ReportedTopic) -> Iterator[MigrationFinding]:
    for part in topic.partitions:
        absent = [replica for replica in part.replicas if replica not in part.isr]
        if part.leader == NO_LEADER:
            cure = "start the brokers of its replicas, and check again"
            yield MigrationFinding(BLOCKS, Area.PARTITION, "has no leader", cure, (str(part.tp),))
        elif absent:
            what = "is under-replicated: not all replicas are in sync"
            yield MigrationFinding(
                BLOCKS, Area.PARTITION, what, "wait until they are, and check again", (str(part.tp),)
            )
    fewest = min((len(part.replicas) for part in topic.partitions), default=0)
    if fewest == 1:
        what = "has one replica: it is away while its broker is replaced"
        yield MigrationFinding(WARNS, Area.PARTITION, what, MORE_REPLICAS, (topic.name,))
    elif 0 < fewest <= topic.min_insync_replicas:
        what = "has no more replicas than min.insync.replicas: acks=all waits while a broker is replaced"
        yield MigrationFinding(WARNS, Area.PARTITION, what, MORE_REPLICAS, (topic.name,))
