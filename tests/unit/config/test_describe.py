"""What DescribeConfigs is answered from."""

from leadline.config.describe import (
    ConfigEntry,
    ConfigLayers,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from leadline.config.values import ConfigType

LAYERS = ConfigLayers(
    static={"broker.id": "1", "log.retention.ms": "5", "ssl.key.password": "secret", "my.own": "x"},
    dynamic_default={"log.retention.ms": "6", "log.cleanup.policy": "compact, delete"},
    dynamic_broker={"log.retention.ms": "7"},
)


def of_broker(name: str, layers: ConfigLayers = LAYERS) -> ConfigEntry:
    (entry,) = describe_broker(layers, [name])
    return entry


def of_topic(name: str, **overrides: str) -> ConfigEntry:
    properties = {key.replace("_", "."): value for key, value in overrides.items()}
    (entry,) = describe_topic(LAYERS, properties, [name])
    return entry


def test_a_value_set_for_one_broker_counts_before_one_for_all_and_that_before_the_file() -> None:
    entry = of_broker("log.retention.ms")
    assert (entry.value, entry.source) == ("7", ConfigSource.DYNAMIC_BROKER)
    assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("7", ConfigSource.DYNAMIC_BROKER),
        ("6", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("5", ConfigSource.STATIC_BROKER),
        ("168", ConfigSource.DEFAULT),
    ]
    assert not entry.read_only
    assert entry.kind is ConfigType.LONG


def test_a_default_says_so() -> None:
    entry = of_broker("num.partitions")
    assert entry.is_default
    assert (entry.value, entry.read_only) == ("1", True)
    assert entry.documentation == "partitions of a topic that is created without a number"


def test_passwords_and_unknown_settings_are_not_shown() -> None:
    for name in ("ssl.key.password", "my.own"):
        entry = of_broker(name)
        assert (entry.value, entry.sensitive) == (None, True)
        assert all(synonym.value is None for synonym in entry.synonyms)


def test_what_kafka_keeps_to_itself_is_shown_only_where_it_was_set() -> None:
    assert describe_broker(LAYERS, ["log.initial.task.delay.ms"]) == []
    assert of_broker("log.initial.task.delay.ms", ConfigLayers(static={"log.initial.task.delay.ms": "5"})).value == "5"


def test_for_all_brokers_only_what_was_set_for_them_is_shown() -> None:
    assert {entry.name: entry.value for entry in describe_broker_defaults(LAYERS)} == {
        "log.retention.ms": "6",
        "log.cleanup.policy": "compact,delete",
    }


def test_a_topics_own_value_counts_before_its_brokers() -> None:
    entry = of_topic("retention.ms", retention_ms=" 9 ")
    assert (entry.value, entry.source) == ("9", ConfigSource.TOPIC)
    assert entry.synonyms[:2] == (
        ConfigSynonym("retention.ms", "9", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "7", ConfigSource.DYNAMIC_BROKER),
    )


def test_a_topic_without_a_value_has_its_brokers() -> None:
    entry = of_topic("cleanup.policy")
    assert (entry.value, entry.source) == ("compact,delete", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert len(describe_topic(LAYERS, {})) == 34


def test_hours_set_while_a_broker_runs_count_before_milliseconds_in_its_file() -> None:
    layers = ConfigLayers(static={"log.roll.ms": "5"}, dynamic_broker={"log.roll.hours": "1"})
    assert layers.merged() == {"log.roll.hours": "1"}
    assert layers.settings().topics.segment_ms == 3_600_000


def test_throttles_are_taken_from_what_is_set_while_brokers_run() -> None:
    rate = "leader.replication.throttled.rate"
    assert ConfigLayers(dynamic_default={rate: "5"}).bytes_per_second(rate) == 5
    assert ConfigLayers(dynamic_default={rate: "5"}, dynamic_broker={rate: "6"}).bytes_per_second(rate) == 6
    assert ConfigLayers().bytes_per_second(rate) == (1 << 63) - 1
