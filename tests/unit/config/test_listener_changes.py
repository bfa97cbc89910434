"""Which listeners may change while a broker runs, and what a change opens, closes and advertises."""

import pytest

from leadline.config.broker import BrokerSettings, broker_settings
from leadline.config.listener_changes import check_listener_changes, listener_changes
from leadline.config.values import InvalidSetting

MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROL:PLAINTEXT,EXTRA:PLAINTEXT"
BEFORE = {
    "listeners": "PLAINTEXT://here:9092,CONTROL://here:9093,EXTRA://here:9094",
    "listener.security.protocol.map": MAP,
    "control.plane.listener.name": "CONTROL",
    "listener.name.extra.max.connections": "5",
}
TWO = "PLAINTEXT://here:9092,CONTROL://here:9093"


def settings(changes: dict[str, str]) -> BrokerSettings:
    return broker_settings(BEFORE | changes)


@pytest.mark.parametrize(
    ("changes", "closed", "opened", "are_others_advertised"),
    [
        ({}, [], [], False),
        ({"listener.security.protocol.map": f"{MAP},MORE:SSL"}, [], [], False),
        ({"listeners": TWO}, ["EXTRA"], [], True),
        ({"listeners": f"{TWO},EXTRA://here:9094,SSL://here:9095"}, [], ["SSL"], True),
        ({"listeners": f"{TWO},SSL://here:9094"}, ["EXTRA"], ["SSL"], True),
        ({"listeners": f"EXTRA://here:9094,{TWO}"}, [], [], False),
        ({"advertised.listeners": TWO}, [], [], True),
        ({"advertised.listeners": f"{TWO},EXTRA://there:9094"}, [], [], True),
        ({"advertised.listeners": "PLAINTEXT://there:1,CONTROL://here:9093,EXTRA://here:9094"}, [], [], True),
        ({"advertised.listeners": BEFORE["listeners"]}, [], [], False),
        ({"listeners": f"{TWO},SSL://here:9095", "advertised.listeners": TWO}, ["EXTRA"], ["SSL"], True),
        ({"listeners": TWO, "listener.name.extra.sasl.enabled.mechanisms": "PLAIN"}, ["EXTRA"], [], True),
        ({"advertised.listeners": TWO, "listener.name.extra.max.connections": "7"}, [], [], True),
        ({"advertised.listeners": TWO, "listener.name.extra.ssl.keystore.type": "PEM"}, [], [], True),
        ({"listener.name.extra.sasl.enabled.mechanisms": "PLAIN"}, [], [], False),
    ],
)
def test_listeners_are_opened_closed_and_advertised(
    changes: dict[str, str], closed: list[str], opened: list[str], are_others_advertised: bool
) -> None:
    before, after = settings({}), settings(changes)
    check_listener_changes(before, after)
    change = listener_changes(before.listeners, after.listeners)
    assert [listener.name for listener in change.closed] == closed
    assert [listener.name for listener in change.opened] == opened
    assert change.are_others_advertised is are_others_advertised


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"listeners": "CONTROL://here:9093"}, r"=PLAINTEXT: must be the name of an advertised listener"),
        ({"advertised.listeners": "CONTROL://here:9093"}, r"=PLAINTEXT: must be the name of an advertised listener"),
        ({"listeners": "PLAINTEXT://here:9092"}, r"control\.plane\.listener\.name=CONTROL: must be an advertised"),
        ({"listeners": f"{TWO},MORE://here:1"}, r"MORE has no protocol in listener\.security\.protocol\.map"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "CONTROL has no protocol"),
        ({"listeners": TWO, "advertised.listeners": f"{TWO},EXTRA://here:1"}, "EXTRA must be one of listeners"),
        (
            {"listener.security.protocol.map": MAP.replace("EXTRA:PLAINTEXT", "EXTRA:SSL")},
            "the protocol of listener EXTRA cannot change from PLAINTEXT to SSL while it is open",
        ),
        (
            {"listeners": f"{TWO},EXTRA://here:9099"},
            "EXTRA://here:9094 cannot change to EXTRA://here:9099 while it is open: remove the listener first",
        ),
        ({"listeners": f"{TWO},EXTRA://there:9094"}, "cannot change to EXTRA://there:9094"),
        (
            {"advertised.listeners": TWO, "listener.name.extra.sasl.enabled.mechanisms": "PLAIN"},
            r"listener\.name\.extra\.sasl\.enabled\.mechanisms: cannot change together with listeners",
        ),
    ],
)
def test_a_change_that_an_open_listener_cannot_follow_is_refused(changes: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidSetting, match=error):
        check_listener_changes(settings({}), settings(changes))
