"""The settings of a running broker: one object that every part reads at the time of use.

A dynamic change replaces all settings at once, so a part that holds this object sees every change.

Pure: values in, values out.
"""

from collections.abc import Mapping

from leadline.config.broker import BrokerConfig, BrokerSettings
from leadline.config.describe import ConfigLayers
from leadline.config.listeners import Listeners
from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig


class LiveSettings:
    """`static`: the properties of the start. Dynamic changes override them."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.static: Mapping[str, str] = dict(settings.properties)
        self.replace(settings)

    def replace(self, settings: BrokerSettings) -> None:
        """The parts are plain attributes, since requests read them."""
        self.current = settings
        self.broker: BrokerConfig = settings.broker
        self.storage: StorageConfig = settings.storage
        self.topics: LogConfig = settings.topics  # the defaults of all topics
        self.listeners: Listeners = settings.listeners

    @property
    def request_timeout_s(self) -> float:
        return self.broker.request_timeout_ms / 1000

    def layers(self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]) -> ConfigLayers:
        """All properties by their source."""
        return ConfigLayers(static=self.static, dynamic_default=dynamic_default, dynamic_broker=dynamic_broker)
