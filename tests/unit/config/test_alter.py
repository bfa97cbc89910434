"""Changes of settings: worked out, and allowed or not."""

import pytest

from leadline.config.alter import (
    AlterConfigOp,
    ConfigChange,
    NotAList,
    altered_broker,
    altered_topic,
    check_broker,
    check_topic,
)
from leadline.config.describe import ConfigLayers
from leadline.config.values import InvalidSetting

LAYERS = ConfigLayers(static={"broker.id": "1", "log.cleaner.max.compaction.lag.ms": "100"})


@pytest.mark.parametrize(
    ("current", "op", "value", "after"),
    [
        ({}, AlterConfigOp.SET, "compact", {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, AlterConfigOp.DELETE, None, {}),
        ({}, AlterConfigOp.APPEND, "compact", {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, AlterConfigOp.APPEND, "compact,delete", {"cleanup.policy": "compact,delete"}),
        ({"cleanup.policy": "compact,delete"}, AlterConfigOp.SUBTRACT, "delete", {"cleanup.policy": "compact"}),
        ({}, AlterConfigOp.SUBTRACT, "delete", {"cleanup.policy": ""}),
    ],
)
def test_a_change_is_made_to_what_is_set_or_to_the_default(
    current: dict[str, str], op: AlterConfigOp, value: str | None, after: dict[str, str]
) -> None:
    assert altered_topic(LAYERS, current, [ConfigChange("cleanup.policy", op, value)]) == after


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            [ConfigChange("retention.ms", AlterConfigOp.SET, "soon")],
            r"Invalid value soon for configuration retention\.ms: Not a number of type LONG",
        ),
        (
            [ConfigChange("retention.m", AlterConfigOp.SET, "1")],
            r"Unknown topic config name: retention\.m \(did you mean retention\.ms\?\)",
        ),
        ([ConfigChange("retention.ms", AlterConfigOp.SET, None)], r"retention\.ms: must have a value"),
        ([ConfigChange("retention.ms", AlterConfigOp.SET, "1")] * 2, r"retention\.ms: must occur only once"),
        ([ConfigChange("cleanup.policy", AlterConfigOp.APPEND, "shred")], "Invalid value shred .* compact, delete"),
        (
            [ConfigChange("min.compaction.lag.ms", AlterConfigOp.SET, "101")],
            r"must not exceed max\.compaction\.lag\.ms=100",
        ),
        (
            [ConfigChange("remote.storage.enable", AlterConfigOp.SET, "true")],
            "not supported: there is no remote storage",
        ),
        ([ConfigChange("nothing", AlterConfigOp.APPEND, "x")], "unknown setting nothing"),
    ],
)
def test_a_change_that_does_not_fit_a_topic_is_refused(changes: list[ConfigChange], error: str) -> None:
    with pytest.raises(InvalidSetting, match=error):
        altered_topic(LAYERS, {}, changes)


@pytest.mark.parametrize("op", [AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT])
def test_only_lists_can_be_added_to_and_taken_from(op: AlterConfigOp) -> None:
    with pytest.raises(NotAList, match=r"retention\.ms=1: nothing can be (added to|removed from) it"):
        altered_topic(LAYERS, {}, [ConfigChange("retention.ms", op, "1")])


def test_a_topic_has_its_own_settings_over_those_of_its_broker() -> None:
    config = check_topic(LAYERS, {"retention.ms": "5", "leader.replication.throttled.replicas": "0:1, 2:3"})
    assert (config.retention_ms, config.max_compaction_lag_ms) == (5, 100)
    assert config.leader_replication_throttled_replicas == "0:1,2:3"


def test_a_setting_without_effect_and_one_of_a_plugin_may_change() -> None:
    changes = [
        ConfigChange("num.io.threads", AlterConfigOp.SET, "9"),
        ConfigChange("my.own", AlterConfigOp.SET, "x"),
    ]
    assert altered_broker(LAYERS, changes) == {"num.io.threads": "9", "my.own": "x"}


@pytest.mark.parametrize(
    ("proposed", "error"),
    [
        ({"num.partitions": "2"}, r"num\.partitions=2: cannot change while the broker runs"),
        ({"log.retention.ms": "0"}, "must be -1 or at least 1"),
        ({"ssl.keystore.location": "/x"}, r"can change only as listener\.name\.<listener>\.ssl\.keystore\.location"),
        ({"ssl.key.password": "x"}, r"ssl\.key\.password=\[hidden\]: can change only as listener\.name"),
        ({"password.encoder.secret": "x"}, r"=\[hidden\]: cannot change while the broker runs"),
        ({"num.replica.fetchers": "3"}, "must be between 1 and 2, half and double of the current value"),
        ({"follower.replication.throttled.rate": "-1"}, "Value must be at least 0"),
        ({"listeners": "SSL://:9092"}, "must be the name of an advertised listener"),
        ({"listener.name.plaintext.max.connection.creation.rate": "fast"}, "Not a number of type INT"),
        ({"metric.reporters": "my.Own"}, "Java classes cannot be loaded"),
    ],
)
def test_a_change_that_does_not_fit_a_running_broker_is_refused(proposed: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidSetting, match=error):
        check_broker(LAYERS, proposed)


def test_what_belongs_to_one_broker_cannot_be_set_for_all() -> None:
    with pytest.raises(InvalidSetting, match="must be set for each broker separately"):
        check_broker(LAYERS, {"listeners": "PLAINTEXT://:9093"}, for_all=True)
    check_broker(LAYERS, {"max.connections": "5"}, for_all=True)
