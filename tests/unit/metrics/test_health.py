"""Whether a broker is ready: each reason why it is not."""

from types import SimpleNamespace
from typing import cast

import pytest

from leadline.broker.broker import Broker
from leadline.broker.broker_lifecycle import BrokerLifecycle
from leadline.metrics.health import reasons_not_ready


def broker(
    state: BrokerLifecycle, *, registered: bool = True, online: tuple[str, ...] = ("/a",), offline: tuple[str, ...] = ()
) -> Broker:
    dirs = SimpleNamespace(
        dirs=dict.fromkeys(online),
        offline={path: f"{path} failed" for path in offline},
        recovery=SimpleNamespace(logs_done=3, logs=10),
    )
    return cast(Broker, SimpleNamespace(state=state, is_registered=registered, dirs=dirs))


def test_a_broker_that_runs_is_ready_also_with_some_directories_offline() -> None:
    assert reasons_not_ready(broker(BrokerLifecycle.RUNNING, offline=("/b",))) == []


@pytest.mark.parametrize("state", [other for other in BrokerLifecycle if other is not BrokerLifecycle.RUNNING])
def test_every_other_state_has_a_reason(state: BrokerLifecycle) -> None:
    (reason,) = reasons_not_ready(broker(state))
    assert reason


def test_recovery_says_how_far_it_is() -> None:
    assert reasons_not_ready(broker(BrokerLifecycle.RECOVERY)) == ["it loads its logs: 3 of 10 partitions"]


def test_a_broker_without_a_session_or_without_a_directory_is_not_ready() -> None:
    reasons = reasons_not_ready(broker(BrokerLifecycle.RUNNING, registered=False, online=(), offline=("/a", "/b")))
    assert reasons == [
        "it is not registered: its session with ZooKeeper has expired",
        "no log directory is online: /a failed; /b failed",
    ]
