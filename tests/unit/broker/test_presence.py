"""A broker that stops hands over what it leads: for as long as somebody could lead instead, and no longer."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from leadline.broker import presence
from leadline.broker.presence import Presence
from leadline.cluster.broker_client import PeerLost
from leadline.config.broker import BrokerConfig
from leadline.coordination.registration import RegisteredEndpoint, Registration, decode_registration
from leadline.coordination.tree import Created, Node, NodeExists, SessionExpired, SessionState
from leadline.errors import NotController
from leadline.runtime.ports import OsFiles
from leadline.wire.messages import ControlledShutdownRequest, ControlledShutdownResponse
from tests.support.waiting import eventually

ME, EPOCH = 1, 7
DONE = ControlledShutdownResponse()
LEFT = ControlledShutdownResponse(
    remaining_partitions=[ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=0)]
)


class FakeTree:
    session = 5

    async def create(self, path: str, *_: object, **__: object) -> Created:
        return Created(path, EPOCH)

    def watch_session(self, call: Callable[[SessionState], None]) -> Any:
        self.tell = call
        return self

    def cancel(self) -> None:
        pass


class RegistrationTree(FakeTree):
    """Has the node of a registration. The first writes to it fail."""

    def __init__(self, failures: int) -> None:
        self.failures, self.node = failures, Node(b"", 0, EPOCH, 0, self.session)

    async def create(self, path: str, *_: object, **__: object) -> Created:
        raise NodeExists(path, "it is there")

    async def get(self, path: str) -> Node:
        return self.node

    async def set(self, path: str, data: bytes, version: int) -> int:
        if self.failures:
            self.failures -= 1
            raise SessionExpired(path, "it cannot be written for now")
        self.node = self.node._replace(data=data, version=version + 1)
        return self.node.version


class ScriptedController:
    """The controller: its answers one after the other, the last for ever. None: it never answers."""

    def __init__(self, *answers: ControlledShutdownResponse | PeerLost | None) -> None:
        self.answers, self.count = list(answers), 0

    async def __call__(self, request: ControlledShutdownRequest, version: int) -> ControlledShutdownResponse:
        assert (request.broker_id, request.broker_epoch) == (ME, EPOCH)
        self.count += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, PeerLost):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer


def handed_over(
    path: Path,
    controller: ScriptedController,
    then: SessionState | None = None,
    before: SessionState | None = None,
    retries: int = 3,
) -> bool:
    """`before`, `then`: how the session is when it begins, and what becomes of it."""
    settings = {"controlled.shutdown.max.retries": str(retries), "controlled.shutdown.retry.backoff.ms": "100"}
    config = BrokerConfig.parse({"log.dirs": str(path), "zookeeper.connect": "h", **settings})

    async def main() -> bool:
        tree = FakeTree()
        presence = Presence(cast(Any, tree), ME, Registration((), 0), OsFiles(), str(path), lambda _: None)
        await presence.begin()
        if before is not None:
            tree.tell(before)
        handing = asyncio.create_task(presence.hand_over(EPOCH, config, controller))
        if then is not None:
            asyncio.get_running_loop().call_later(0.01, tree.tell, then)
        done = await asyncio.wait_for(handing, 30)
        await presence.stop()
        return done

    return asyncio.run(main())


def test_controlled_shutdown_is_requested_again_until_others_lead(tmp_path: Path) -> None:
    controller = ScriptedController(LEFT, DONE)
    assert handed_over(tmp_path, controller)
    assert controller.count == 2


def test_it_gives_up_in_the_end(tmp_path: Path) -> None:
    assert not handed_over(tmp_path, controller := ScriptedController(LEFT))
    assert 1 < controller.count <= 3


def test_controlled_shutdown_is_requested_from_the_next_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "NEXT_CONTROLLER_SECONDS", 0.001)
    away = ControlledShutdownResponse(error_code=NotController.code)
    assert handed_over(tmp_path, ScriptedController(PeerLost("it has ended"), away, away, away, away, DONE), retries=1)


@pytest.mark.parametrize("then", [SessionState.SUSPENDED, SessionState.EXPIRED])
def test_controlled_shutdown_ends_when_the_session_is_lost(tmp_path: Path, then: SessionState) -> None:
    assert not handed_over(tmp_path, ScriptedController(None), then, retries=1000)
    assert not handed_over(tmp_path, ScriptedController(None), before=then, retries=1000)


@pytest.mark.parametrize("failures", [0, 2])
def test_other_endpoints_are_written_although_the_tree_fails_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(presence, "RETRY_SECONDS", 0.001)
    epochs: list[int] = []

    async def main() -> None:
        tree = RegistrationTree(0)
        broker = Presence(cast(Any, tree), ME, Registration((), 0), OsFiles(), str(tmp_path), epochs.append)
        await broker.begin()
        tree.failures = failures
        moved = Registration((RegisteredEndpoint("EXTRA", "there", 7, "SSL"),), 1)
        broker.update(moved)
        await eventually(lambda: decode_registration(ME, tree.node.data) == moved)
        await eventually(lambda: epochs == [EPOCH, EPOCH])
        await broker.stop()

    asyncio.run(main())
