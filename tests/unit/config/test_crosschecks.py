"""Checks over several settings: each names the setting and what it conflicts with."""

import pytest

from leadline.config.broker import broker_settings
from leadline.config.crosschecks import connections_per_ip
from leadline.config.values import InvalidSetting


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"group.consumer.session.timeout.ms": "99999"},
            "group.consumer.session.timeout.ms=99999: must not exceed group.consumer.max.session.timeout.ms=60000",
        ),
        ({"broker.id": "1", "node.id": "2"}, "node.id=2: must be the same as broker.id=1"),
        ({"broker.id": "1001"}, "broker.id=1001: must be between -1 and reserved.broker.max.id=1000"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0: must be at least 1, unless"),
        ({"control.plane.listener.name": "X"}, "control.plane.listener.name=X: must be an advertised listener"),
        (
            {"control.plane.listener.name": "PLAINTEXT"},
            "control.plane.listener.name=PLAINTEXT: must differ from the inter-broker listener",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{message}"):
        broker_settings(settings)


def test_an_id_is_generated_only_if_that_is_enabled() -> None:
    broker_settings({"broker.id": "-1"})
    with pytest.raises(InvalidSetting, match=r"must be at least 0 with broker\.id\.generation\.enable=false"):
        broker_settings({"broker.id": "-1", "broker.id.generation.enable": "false"})


def test_overrides_allow_no_connection_from_elsewhere() -> None:
    broker_settings({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"})
    assert connections_per_ip("127.0.0.1:5,localhost:7") == {"127.0.0.1": 5, "localhost": 7}
    with pytest.raises(InvalidSetting, match="must be host:number"):
        connections_per_ip("127.0.0.1:many")
