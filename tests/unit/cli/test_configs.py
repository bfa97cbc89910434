"""How settings are shown, with all of their sources that the client library hands over."""

import io

from confluent_kafka.admin._config import ConfigEntry, ConfigSource

from leadline.admin.settings import ShownSetting, ShownSynonym, _setting
from leadline.cli.configs import as_json, line_of
from leadline.cli.terminal import TextStyles

STATIC, DEFAULT = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG


def entry(name: str, value: str | None, source: ConfigSource, *synonyms: ConfigEntry) -> ConfigEntry:
    return ConfigEntry(name, value, source=source, synonyms={synonym.name: synonym for synonym in synonyms})


def test_a_line_is_that_of_kafka_configs() -> None:
    described = entry("segment.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG, entry("log.roll.ms", "9", DEFAULT))
    described.synonyms = {
        "segment.ms": entry("segment.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    } | described.synonyms
    assert line_of(_setting(described), TextStyles(io.StringIO())) == (
        "  segment.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=5, DEFAULT_CONFIG:log.roll.ms=9}"
    )


def test_the_value_in_force_is_named_though_the_client_library_keeps_one_synonym_of_a_name() -> None:
    setting = _setting(entry("broker.id", "1", STATIC, entry("broker.id", "-1", DEFAULT)))
    assert setting.synonyms == (
        ShownSynonym("STATIC_BROKER_CONFIG", "broker.id", "1"),
        ShownSynonym("DEFAULT_CONFIG", "broker.id", "-1"),
    )


def test_a_secret_has_no_value() -> None:
    secret = ShownSetting("ssl.key.password", None, "STATIC_BROKER_CONFIG", True, True, ())
    assert line_of(secret, TextStyles(io.StringIO())) == "  ssl.key.password=null sensitive=true synonyms={}"
    shown = as_json(secret)
    assert isinstance(shown, dict)
    assert (shown["value"], shown["sensitive"], shown["default"]) == (None, True, False)
