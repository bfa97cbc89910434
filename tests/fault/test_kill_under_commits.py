"""The broker is killed with SIGKILL, again and again, under consumers that never stop committing.

a commit that was acknowledged is there when the broker is back
a member goes on in its generation, without a rebalance
"""

import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from leadline.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conformance.both import Connection
from tests.conformance.mirrored_group import committed_topic
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic
from tests.support.waiting import until

KILLS = 3
ALIVE_S = 0.5
PATIENCE_S = 120
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR = 14, 16
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.segment.bytes": 20_000,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "group.initial.rebalance.delay.ms": 0,
}


class Committer:
    """The only member of a group: it commits one offset after the other, over and over, whatever happens."""

    def __init__(self, broker: RunningBroker, group: str) -> None:
        self.broker, self.group = broker, group
        self.acked = 0
        self.refused: list[int] = []
        self._join()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group)
        self._thread.start()

    def _join(self) -> None:
        with closing(Connection("localhost", self.broker.port)) as connection:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
            join = JoinGroupRequest(
                group_id=self.group, session_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
            )
            self.member_id = connection.ask(JoinGroupResponse, join, 0).member_id
            sync = SyncGroupRequest(group_id=self.group, generation_id=1, member_id=self.member_id)
            assert connection.ask(SyncGroupResponse, sync, 0).error_code == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError, AssertionError), closing(Connection("localhost", self.broker.port)) as connection:
                while not self._stop.is_set():
                    self._commit(connection, self.acked + 1)

    def _commit(self, connection: Connection, offset: int) -> None:
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=self.member_id,
            generation_id_or_member_epoch=1,
            topics=[committed_topic("t", offset, offset)],
        )
        answer = connection.ask(OffsetCommitResponse, request, 8)
        codes = {part.error_code for part in answer.topics[0].partitions}
        if codes == {0}:
            self.acked = offset
        elif not codes <= {COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR}:
            self.refused += codes

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def check(self) -> None:
        assert not self.refused
        with closing(Connection("localhost", self.broker.port)) as connection:
            request = OffsetFetchRequest(group_id=self.group, topics=None)
            until(lambda: connection.ask(OffsetFetchResponse, request, 7).error_code == 0)
            beat = HeartbeatRequest(group_id=self.group, generation_id=1, member_id=self.member_id)
            assert connection.ask(HeartbeatResponse, beat, 4).error_code == 0
            (topic,) = connection.ask(OffsetFetchResponse, request, 7).topics
            offsets = [part.committed_offset for part in topic.partitions]
            assert len(offsets) == 2
            assert all(self.acked <= offset <= self.acked + 1 for offset in offsets), (self.acked, offsets)


def test_no_acknowledged_commit_is_lost(tmp_path: Path) -> None:
    with leadline(tmp_path / "data", **SETTINGS) as broker:
        create_topic(broker.bootstrap, "t", 2)
        with closing(Connection("localhost", broker.port)) as connection:
            connection.ask(FindCoordinatorResponse, FindCoordinatorRequest(key="any"), 0)
        committers = [Committer(broker, f"group-{n}") for n in range(4)]
        try:
            for _ in range(KILLS):
                before = [committer.acked for committer in committers]
                deadline = time.monotonic() + PATIENCE_S
                while any(committer.acked <= one + 20 for committer, one in zip(committers, before, strict=True)):
                    assert time.monotonic() < deadline, [committer.acked for committer in committers]
                    time.sleep(0.02)
                time.sleep(ALIVE_S)
                broker.kill()
                broker.start()
        finally:
            for committer in committers:
                committer.stop()
        for committer in committers:
            committer.check()
