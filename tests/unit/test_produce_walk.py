"""The way of a produce request with acks=all through the leader's code, as docs/ARCHITECTURE.md describes it.

A request should be easy to follow: few files, each entered once or twice, and upward only through the queue of deferred
completions. The way has two halves. In the first one the records are appended, and the reply waits. The second one
begins when a follower's fetch has moved the high watermark, and ends when the reply has left.
"""

import asyncio
import re
import struct
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import leadline
from leadline.broker.connection import Connection
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.selector import TimedSelector
from leadline.wire.frames import request_frame
from leadline.wire.messages import ProduceRequest
from tests.support.brokers import TP, brokers, joined
from tests.support.logs import batch
from tests.support.waiting import eventually

SOURCE = f"{Path(leadline.__file__).parent}/"
ARCHITECTURE = Path(leadline.__file__).parents[2] / "docs" / "ARCHITECTURE.md"
QUEUE = "runtime/deferred_completions.py"
WITHOUT_COMPILER = "records/python_walker.py"  # stands for the compiled walker where there is none
VERSION, CORRELATION_ID = 9, 4711
FLOORS = ("broker", "api", "replication", "cluster", "log", "records", "config", "wire", "runtime")


class Walk:
    """Notes each call from one file of the product into another, while the connection of one client is served."""

    def __init__(self, client_port: int) -> None:
        self._client_port = client_port
        self.halves: list[list[tuple[str, str]]] = []  # calls: from, to
        self._root: FrameType | None = None

    def trace(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "return" and frame is self._root:
            self._root = None
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        if self._root is None:
            if not self._begins_half(frame):
                return
            self._root = frame
            self.halves.append([])
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        to, origin = _file(frame), "runtime/event_loop.py" if caller is None else _file(caller)
        if to != origin:
            self.halves[-1].append((origin, to))

    def _begins_half(self, frame: FrameType) -> bool:
        """The bytes of the client arrive; its wait is acknowledged; its connection is notified."""
        file, name, connection = _file(frame), frame.f_code.co_name, frame.f_locals.get("self")
        if file == "broker/connection.py" and name in ("_readable", "_answered"):
            return isinstance(connection, Connection) and connection.port == self._client_port
        return file == "api/fast/produce.py" and name == "on_safe"


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(SOURCE)


async def _walk(path: Path) -> Walk:
    data = batch()
    async with brokers(path, sockets=True) as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.leader.port)

        async def produce() -> None:
            partition = ProduceRequest.PartitionProduceData(index=TP.partition, records=data)
            topic = ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[partition])
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
            writer.write(joined(request_frame(request, VERSION, CORRELATION_ID, "walker")))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)

        for _ in range(20):  # until the followers wait at the end of the log
            await produce()
        sessions = cluster.leader.services.sessions.by_id
        await eventually(lambda: len(sessions) == 2 and all(session.waiting for session in sessions.values()))
        walk = Walk(writer.get_extra_info("sockname")[1])
        sys.setprofile(walk.trace)
        try:
            await produce()
        finally:
            sys.setprofile(None)
        writer.close()
    return walk


def test_a_produce_is_easy_to_follow(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=lambda: EventLoop(TimedSelector())) as runner:
        walk = runner.run(_walk(tmp_path))
    calls = [call for half in walk.halves for call in half]
    entries = Counter(to for _, to in calls if to != WITHOUT_COMPILER)
    files = {"runtime/event_loop.py", *entries}
    assert "broker/sender.py" in files, "the reply did not leave"
    assert "replication/acknowledgements.py" in files, "the request did not wait for its followers"
    assert len(files) <= 18, "\n".join(sorted(files))
    assert not {to: count for to, count in entries.items() if count > 2}
    assert not [(origin, to) for origin, to in calls if _is_upward(origin, to) and origin != QUEUE], calls
    section = ARCHITECTURE.read_text().split("## The life of a produce request", 1)[1].split("\n## ", 1)[0]
    assert files <= set(re.findall(r"`([a-z_/]+\.py)`", section)), sorted(files)


def _is_upward(origin: str, to: str) -> bool:
    return FLOORS.index(origin.split("/")[0]) > FLOORS.index(to.split("/")[0]) and origin != "runtime/event_loop.py"
