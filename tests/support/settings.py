"""The settings of parts that run without a broker."""

from collections.abc import Mapping

from leadline.config.broker import broker_settings
from leadline.config.live_settings import LiveSettings


def live_settings(properties: Mapping[str, str] | None = None) -> LiveSettings:
    return LiveSettings(broker_settings(properties or {}))
