"""Settings under Kafka's own names, as tables: name, type, default, validity, standing and meaning of each.

`LogConfig` holds those of a topic, `StorageConfig` those of a broker for its logs, `BrokerConfig` all of a broker.
The broker's tables are read when first asked for: what only opens logs, such as the process that compacts them, starts
without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from leadline.config.checks import Check, at_least, between, each_of, gzip_level, one_of
from leadline.config.properties import parse_properties
from leadline.config.settings import Importance, Mode, Row, Settings, Support, nearest, setting
from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.config.values import DAY_MS, HOUR_MS, INT_MAX, LONG_MAX, InvalidSetting, Kind, Password

if TYPE_CHECKING:
    from leadline.config.alter import (
        Change,
        NotAList,
        Op,
        altered_broker,
        altered_topic,
        changed,
        check_broker,
        check_topic,
    )
    from leadline.config.broker import BrokerConfig, BrokerSettings, broker_settings
    from leadline.config.describe import (
        Entry,
        Layers,
        Source,
        Synonym,
        describe_broker,
        describe_broker_defaults,
        describe_topic,
    )
    from leadline.config.listeners import Listener, Listeners, Protocol
else:  # out of sight of type checkers, to whom it would mean that any name is there
    _LATER = {
        "alter": "Change NotAList Op altered_broker altered_topic changed check_broker check_topic",
        "broker": "BrokerConfig BrokerSettings broker_settings",
        "describe": "Entry Layers Source Synonym describe_broker describe_broker_defaults describe_topic",
        "listeners": "Listener Listeners Protocol",
    }

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names.split():
                return getattr(import_module(f"leadline.config.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DAY_MS",
    "HOUR_MS",
    "INT_MAX",
    "LONG_MAX",
    "BrokerConfig",
    "BrokerSettings",
    "Change",
    "Check",
    "Entry",
    "Importance",
    "InvalidSetting",
    "Kind",
    "Layers",
    "Listener",
    "Listeners",
    "LogConfig",
    "Mode",
    "NotAList",
    "Op",
    "Password",
    "Protocol",
    "Row",
    "Settings",
    "Source",
    "StorageConfig",
    "Support",
    "Synonym",
    "altered_broker",
    "altered_topic",
    "at_least",
    "between",
    "broker_settings",
    "changed",
    "check_broker",
    "check_topic",
    "describe_broker",
    "describe_broker_defaults",
    "describe_topic",
    "each_of",
    "gzip_level",
    "nearest",
    "one_of",
    "parse_properties",
    "setting",
]
