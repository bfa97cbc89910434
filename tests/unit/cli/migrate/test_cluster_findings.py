"""What is found in the report of a cluster."""

from collections.abc import Sequence

from leadline.api import TABLE
from leadline.broker.peer_versions import SENT_VERSIONS
from leadline.cli.migrate.cluster_findings import DESCRIBE_QUORUM, UPDATE_METADATA, judge_cluster
from leadline.cli.migrate.cluster_report import (
    ClusterReport,
    ReportedBroker,
    ReportedPartition,
    ReportedSetting,
    ReportedTopic,
)
from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.model import TopicPartition
from leadline.wire.apis import APIS

BLOCKS, WARNS, NOTES = Severity.BLOCKS, Severity.WARNS, Severity.NOTES
SERVED = {key: entry.versions for key, entry in TABLE.items()}
SETTINGS = (
    ReportedSetting("broker.id", "1", False),
    ReportedSetting("listeners", "PLAINTEXT://localhost:9092", False),
    ReportedSetting("zookeeper.connect", "localhost:2181", False),
    ReportedSetting("inter.broker.protocol.version", "3.8-IV0", True),
    ReportedSetting("sasl.enabled.mechanisms", "GSSAPI", True),
    ReportedSetting("super.users", None, False),
)
BROKERS = tuple(ReportedBroker(id, SERVED, {}, SETTINGS) for id in (1, 2, 3))


def topic(
    name: str = "orders",
    replicas: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] | None = None,
    leader: int = 1,
    min_isr: int = 1,
    **own: str,
) -> ReportedTopic:
    part = ReportedPartition(TopicPartition(name, 0), leader, replicas, replicas if isr is None else isr)
    return ReportedTopic(name, [part], {key.replace("_", "."): value for key, value in own.items()}, min_isr)


def judged(*topics: ReportedTopic, brokers: Sequence[ReportedBroker] = BROKERS) -> list[MigrationFinding]:
    return list(judge_cluster(ClusterReport(brokers, topics, ()), SENT_VERSIONS, SERVED))


def with_settings(*settings: ReportedSetting) -> list[ReportedBroker]:
    names = {setting.name for setting in settings}
    kept = [setting for setting in SETTINGS if setting.name not in names]
    return [broker._replace(settings=[*kept, *settings]) for broker in BROKERS]


def test_a_cluster_of_kafka_3_8_with_zookeeper_is_ready() -> None:
    assert judged(topic()) == []


def test_every_request_that_brokers_send_each_other_is_served_by_us_in_that_version() -> None:
    names = {APIS[key].name for key in SENT_VERSIONS}
    assert {"Fetch", "LeaderAndIsr", "UpdateMetadata", "StopReplica", "AlterPartition", "WriteTxnMarkers"} <= names
    assert all(version in SERVED[key] for key, version in SENT_VERSIONS.items())


def test_kraft_blocks() -> None:
    served = {key: versions for key, versions in SERVED.items() if key != UPDATE_METADATA} | {DESCRIBE_QUORUM: range(2)}
    (finding,) = judged(brokers=[ReportedBroker(1, served, {"metadata.version": 20}, SETTINGS)])[:1]
    assert (finding.severity, finding.area) == (BLOCKS, Area.MODE)
    assert finding.what == "runs in KRaft mode, metadata.version 20"


def test_a_finalized_feature_blocks() -> None:
    brokers = [broker._replace(features={"eligible.leader.replicas.version": 1}) for broker in BROKERS]
    findings = judged(brokers=brokers)
    assert {(finding.severity, finding.area) for finding in findings} == {(BLOCKS, Area.VERSION)}


def test_a_broker_that_is_too_old_for_our_requests_blocks() -> None:
    fetch = next(key for key, api in APIS.items() if api.name == "Fetch")
    old = BROKERS[0]._replace(versions={**SERVED, fetch: range(4, 14)})
    (finding,) = judged(brokers=[old, *BROKERS[1:]])
    assert (finding.severity, finding.area, finding.where) == (BLOCKS, Area.VERSION, ("broker 1",))
    assert "versions 4 to 13 of Fetch" in finding.what


def test_a_request_that_leadline_does_not_serve_warns() -> None:
    newer = BROKERS[0]._replace(versions={**SERVED, 74: range(1), 1000: range(1)})
    assert [(finding.severity, finding.area) for finding in judged(brokers=[newer, *BROKERS[1:]])] == [
        (WARNS, Area.VERSION)
    ] * 2


def test_the_default_protocol_of_an_older_release_warns() -> None:
    findings = judged(brokers=with_settings(ReportedSetting("inter.broker.protocol.version", "3.6-IV2", True)))
    assert {(finding.severity, finding.area) for finding in findings} == {(WARNS, Area.VERSION)}
    assert {finding.what.partition(":")[0] for finding in findings} == {"inter.broker.protocol.version=3.6-IV2"}


def test_defaults_and_secrets_are_no_findings_and_secret_settings_of_plugins_are() -> None:
    findings = judged(brokers=with_settings(ReportedSetting("acme.authorizer.class", None, False)))
    assert {(finding.severity, finding.area) for finding in findings} == {(WARNS, Area.PLUGIN)}


def test_a_broker_without_answers_blocks_and_one_without_settings_warns() -> None:
    silent = ReportedBroker(1, {}, {}, (), "cannot reach kafka1:9092: Connection refused")
    mute = BROKERS[1]._replace(settings=())
    findings = judged(brokers=[silent, mute, BROKERS[2]])
    assert [(finding.severity, finding.where) for finding in findings] == [
        (BLOCKS, ("broker 1",)),
        (WARNS, ("broker 2",)),
    ]


def test_partitions_in_trouble_block() -> None:
    findings = judged(topic(isr=(1, 2)), topic("users", isr=(), leader=-1))
    assert [(finding.severity, finding.where) for finding in findings] == [
        (BLOCKS, ("orders-0",)),
        (BLOCKS, ("users-0",)),
    ]


def test_partitions_that_pause_while_a_broker_is_replaced_warn() -> None:
    findings = judged(topic(replicas=(1,)), topic("users", min_isr=3), topic("safe", min_isr=2))
    assert [(finding.severity, finding.where) for finding in findings] == [(WARNS, ("orders",)), (WARNS, ("users",))]


def test_tiered_storage_of_a_topic_blocks_and_an_old_message_format_warns() -> None:
    findings = judged(topic(remote_storage_enable="true", message_format_version="0.10.2", acme_owner="x"))
    assert [(finding.severity, finding.area) for finding in findings] == [
        (BLOCKS, Area.STORAGE),
        (NOTES, Area.SETTING),
        (WARNS, Area.STORAGE),
    ]


def test_a_single_broker_and_moves_under_way_warn() -> None:
    report = ClusterReport(BROKERS[:1], (), [TopicPartition("orders", 3)], 1, ["reassignments: no"])
    findings = list(judge_cluster(report, SENT_VERSIONS, SERVED))
    assert [finding.severity for finding in findings] == [WARNS] * 3


def test_the_controller_comes_last_in_the_order() -> None:
    assert ClusterReport(BROKERS, (), (), 2).order == [1, 3, 2]


def test_a_generated_id_is_no_finding() -> None:
    assert judged(brokers=with_settings(ReportedSetting("broker.id", "1001", False))) == []
