"""What is found in the settings of a broker: each refusal of a start, what has no effect, mechanisms."""

import pytest

from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.cli.migrate.mechanism_findings import judge_mechanisms
from leadline.cli.migrate.settings_findings import judge_settings

BLOCKS, WARNS, NOTES = Severity.BLOCKS, Severity.WARNS, Severity.NOTES
PLAIN_FILE = {
    "broker.id": "1",
    "listeners": "PLAINTEXT://localhost:9092",
    "zookeeper.connect": "localhost:2181",
    "log.dirs": "/data",
}


def findings(**settings: str) -> list[MigrationFinding]:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return judge_settings(PLAIN_FILE | own, "file").findings


def test_plain_settings_of_a_broker_are_ready() -> None:
    assert findings() == []


@pytest.mark.parametrize(
    ("name", "value", "area"),
    [
        ("inter.broker.protocol.version", "3.9", Area.VERSION),
        ("process.roles", "broker", Area.MODE),
        ("zookeeper.metadata.migration.enable", "true", Area.MODE),
        ("authorizer.class.name", "com.example.RangerAuthorizer", Area.PLUGIN),
        ("principal.builder.class", "com.example.Builder", Area.PLUGIN),
        ("client.quota.callback.class", "com.example.Quotas", Area.PLUGIN),
        ("metric.reporters", "com.example.Reporter", Area.PLUGIN),
        ("replica.selector.class", "com.example.Selector", Area.PLUGIN),
        ("create.topic.policy.class.name", "com.example.Policy", Area.PLUGIN),
        ("remote.log.storage.system.enable", "true", Area.STORAGE),
        ("security.providers", "com.example.Provider", Area.SECURITY),
        ("config.providers", "vault", Area.SETTING),
        ("offsets.commit.required.acks", "1", Area.SETTING),
        ("log.retention.bytes", "many", Area.SETTING),
    ],
)
def test_what_a_start_refuses_blocks_and_has_a_cure(name: str, value: str, area: Area) -> None:
    (finding,) = judge_settings(PLAIN_FILE | {name: value}, "file").findings
    assert (finding.severity, finding.area, finding.where) == (BLOCKS, area, ("file",))
    assert name in finding.what
    assert finding.cure


@pytest.mark.parametrize(("protocol", "warns"), [("2.8", True), ("3.6-IV2", True), ("3.7", False), ("3.9-IV0", False)])
def test_a_protocol_from_before_3_7_warns_of_older_brokers(protocol: str, warns: bool) -> None:
    warnings = findings(inter_broker_protocol_version=protocol)
    assert [(finding.severity, finding.area) for finding in warnings] == [(WARNS, Area.VERSION)] * warns


def test_all_refused_settings_are_found_and_not_only_the_first() -> None:
    names = ("metric.reporters", "authorizer.class.name", "security.providers")
    refused = judge_settings(PLAIN_FILE | dict.fromkeys(names, "com.example.X"), "file").findings
    assert [finding.what.partition("=")[0] for finding in refused] == [*names]


def test_settings_that_contradict_each_other_block() -> None:
    (finding,) = findings(listeners="PLAINTEXT://localhost:9092,PLAINTEXT://localhost:9093")
    assert finding.severity is BLOCKS
    assert "must occur only once" in finding.what


def test_without_zookeeper_it_would_be_a_single_node() -> None:
    verdict = judge_settings({"listeners": "PLAINTEXT://localhost:9092"}, "file")
    assert [(finding.severity, finding.area) for finding in verdict.findings] == [(BLOCKS, Area.MODE)]


def test_settings_without_effect_are_one_note_for_each_reason() -> None:
    notes = findings(num_io_threads="16", num_network_threads="6", num_replica_fetchers="4")
    assert {(finding.severity, finding.what) for finding in notes} == {
        (NOTES, "without effect: num.io.threads, num.network.threads"),
        (NOTES, "without effect: num.replica.fetchers"),
    }


def test_settings_of_plugins_that_kafka_does_not_have_warn() -> None:
    severities = [finding.severity for finding in findings(kafka_interceptor_classes="x.Y", acme_cluster_name="a")]
    assert severities == [NOTES, WARNS]


def test_an_old_message_format_warns_of_old_segments() -> None:
    severities = [finding.severity for finding in findings(log_message_format_version="0.10.2")]
    assert severities == [WARNS, NOTES]


def test_passwords_are_not_shown() -> None:
    line = "com.example.Other required password=hush;"
    verdict = judge_settings(PLAIN_FILE | {"ssl.keystore.password": "hush", "sasl.jaas.config": line}, "file")
    assert "hush" not in str(verdict.findings)


def test_mechanisms_that_leadline_lacks_block_on_listeners_that_offer_them() -> None:
    own = {
        "listeners": "PLAINTEXT://localhost:9092,INSIDE://localhost:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "NTLM,PLAIN,GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "NTLM",
    }
    settings = judge_settings(PLAIN_FILE | own, "file").settings
    assert settings is not None
    findings = list(judge_mechanisms(settings, "file"))
    assert [(finding.severity, finding.what) for finding in findings] == [
        (Severity.BLOCKS, "listener INSIDE offers NTLM"),
        (Severity.NOTES, "listener INSIDE offers GSSAPI"),
        (Severity.BLOCKS, "brokers log in to each other by NTLM"),
    ]
    assert "pip install 'leadline[gssapi]'" in findings[1].cure


def test_kafkas_default_mechanism_does_not_matter_without_a_listener_for_logins() -> None:
    settings = judge_settings(PLAIN_FILE, "file").settings
    assert settings is not None
    assert list(judge_mechanisms(settings, "file")) == []
