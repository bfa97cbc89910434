"""What holds for every row of every table."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest

from leadline.config.broker import BrokerConfig
from leadline.config.settings import SettingRow, Support, refused
from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.config.values import ConfigType, InvalidSetting, Password

ROWS = [*BrokerConfig.table().values(), *LogConfig.table().values()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_it_means_in_a_few_words(row: SettingRow) -> None:
    assert 5 <= len(row.meaning) <= 160
    assert row.meaning[-1] != "."


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_default_is_valid(row: SettingRow) -> None:
    if row.default is not None and not row.sensitive:
        assert row.read(row.default_text or "") == row.default


@pytest.mark.parametrize("row", [row for row in ROWS if row.support is not Support.OBEYED], ids=lambda row: row.name)
def test_what_is_not_obeyed_has_a_reason_and_no_field(row: SettingRow) -> None:
    assert row.why
    assert not row.field


def test_what_is_obeyed_has_a_field_but_for_the_defaults_of_topics() -> None:
    of_topics = LogConfig.server_rows()
    without = {name for name, row in BrokerConfig.table().items() if row.support is Support.OBEYED and not row.field}
    assert without <= of_topics.keys()


def test_only_a_default_of_what_is_refused_may_be_set() -> None:
    row = BrokerConfig.table()["remote.log.storage.system.enable"]
    assert row.read("false") is False
    with pytest.raises(InvalidSetting, match=r"remote\.log\.storage\.system\.enable=true: not supported: there is no"):
        row.read("true")


def test_settings_are_frozen_and_small() -> None:
    broker = BrokerConfig()
    with pytest.raises(FrozenInstanceError):
        broker.broker_id = 3  # type: ignore[misc]
    assert not hasattr(broker, "__dict__")
    assert isinstance(broker, StorageConfig)
    assert {field.name for field in fields(StorageConfig)} < {field.name for field in fields(BrokerConfig)}


def test_a_password_is_not_in_what_a_config_shows_of_itself() -> None:
    row = BrokerConfig.table()["ssl.key.password"]
    assert row.parse("secret") == Password("secret")
    assert "secret" not in repr(row.parse("secret"))


def test_a_bad_password_is_not_in_the_error() -> None:
    row = refused("there is no such feature")("the.password", ConfigType.PASSWORD, None, "a password")
    with pytest.raises(InvalidSetting, match=r"the\.password=\[hidden\]"):
        row.read("secret")


def test_the_tables_of_a_topic_are_read_without_those_of_a_broker() -> None:
    code = "import sys, leadline.config.topic; assert 'leadline.config.broker' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
