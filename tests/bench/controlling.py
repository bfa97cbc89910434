"""The controller of a large cluster, and a broker's metadata of it: CPU time, memory, and the longest turn of the loop.

The real controller runs over a tree in memory with a hundred brokers that only answer; their answers are not counted.
Each size has a process of its own. The growth is that of the CPU time for each partition from the smallest to the
largest size: 1 is linear. What the last broker was sent is then applied by a broker in memory, which answers clients.

`python -m tests.bench.controlling PARTITIONS BROKERS` measures one size, and prints it as JSON.
"""

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from leadline.broker.connection import Connection
from leadline.broker.reply_queue import PendingReply
from leadline.runtime.garbage import without_collections
from leadline.wire.codec import decode
from leadline.wire.frames import request_frame, request_head
from leadline.wire.messages import MetadataRequest, UpdateMetadataRequest
from tests.bench.results import Goal, Row
from tests.bench.run import Run
from tests.support import in_memory
from tests.support.brokers import joined
from tests.support.in_memory_broker import InMemoryClient, in_memory_broker
from tests.support.large_cluster import LargeCluster, TimedLoop

BROKERS = 100
SIZES = 10_000, 50_000, 200_000
QUICK_SIZES = 1_000, 4_000
FAILED = 7
LONGEST_TURN_S = 0.05
MOST_GROWTH = 1.5
METADATA_VERSION = 12
REPEATS = 5

TAKE_OVER, FAILURE, REASSIGNMENT = "take-over", "failure of one broker", "reassignment of all"
EVENTS = TAKE_OVER, FAILURE, REASSIGNMENT
FULL, SMALL, ONE_TOPIC, ALL_TOPICS = "a full update", "one topic updated", "Metadata, one topic", "Metadata, all topics"


def measure(run: Run) -> list[Row]:
    rows: list[Row] = []
    measured: dict[int, Any] = {}
    for partitions in QUICK_SIZES if run.quick else SIZES:
        run.say(f"controller: {partitions:,} partitions")
        measured[partitions] = size = _measured_apart(partitions)
        for event in EVENTS:
            at = size[event]
            rows.append(_row(f"{event}, {partitions:,} partitions", "s", at["cpu_s"]))
            rows.append(_row("  longest turn", "s", at["turn_s"], Goal(below=LONGEST_TURN_S)))
            rows.append(_row("  more memory, at most", "MB", at["peak_mb"]))
        rows.append(_row(f"resident with {partitions:,} partitions", "MB", size["resident_mb"]))
        rows += [
            _row(f"{what}, {partitions:,} partitions", "s", size[what]) for what in (FULL, SMALL, ONE_TOPIC, ALL_TOPICS)
        ]
        rows.append(_row("  longest turn of a full update", "s", size["update_turn_s"], Goal(below=LONGEST_TURN_S)))
    smallest, largest = min(measured), max(measured)
    for event in EVENTS:
        few, many = measured[smallest][event]["cpu_s"] / smallest, measured[largest][event]["cpu_s"] / largest
        rows.append(_row(f"growth of {event}", "x", many / few, Goal(below=MOST_GROWTH)))
    return rows


def _row(what: str, unit: Any, value: float, goal: Goal | None = None) -> Row:
    return Row(what, unit, goal, [value])


def _measured_apart(partitions: int) -> Any:
    command = [sys.executable, "-m", __spec__.name, str(partitions), str(BROKERS)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


# In the process of one size


class Measurement:
    """Of one event after the other."""

    def __init__(self, cluster: LargeCluster, loop: TimedLoop) -> None:
        self._cluster, self._loop = cluster, loop
        self._base_mb = _resident_mb()
        self.results: dict[str, Any] = {}

    async def of(self, name: str, event: Coroutine[Any, Any, None]) -> None:
        self._cluster.forget_counts()
        _forget_peak()
        await asyncio.sleep(0)
        self._loop.longest_turn_s = 0.0
        began = time.thread_time()
        await event
        counts = self._cluster.tree.counts
        self.results[name] = {
            "cpu_s": time.thread_time() - began - self._cluster.answering_s,
            "turn_s": self._loop.longest_turn_s,
            "peak_mb": _status_mb("VmHWM") - self._base_mb,
            "requests": dict(self._cluster.requests),
            "request_bytes": self._cluster.request_bytes,
            "writes": counts["writes"],
            "transactions": counts["multi"],
        }
        self.results["resident_mb"] = _resident_mb() - self._base_mb


def _forget_peak() -> None:
    """The peak of resident memory starts again."""
    Path("/proc/self/clear_refs").write_text("5")


def _status_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{name}:"))


def _resident_mb() -> float:
    return _status_mb("VmRSS")


async def _measure_size(partitions: int, brokers: int) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimedLoop)
    cluster = LargeCluster(partitions, brokers)
    gc.freeze()  # the tree is not part of the broker
    measurement = Measurement(cluster, loop)
    await measurement.of(TAKE_OVER, cluster.take_over())
    updates = list(cluster.updates)
    await measurement.of(FAILURE, cluster.fail(FAILED))
    targets = {tp: cluster.replicas(tp, shift=1) for tp in cluster.all_partitions()}
    alive = {tp: to for tp, to in targets.items() if FAILED not in to}
    await measurement.of(REASSIGNMENT, cluster.reassign(alive))
    await cluster.controller.stop()
    with contextmanager(in_memory.directory)() as path:
        async with in_memory_broker(path) as client:
            return measurement.results | await _measure_cache(client, updates)


async def _measure_cache(client: InMemoryClient, updates: list[bytes]) -> dict[str, float]:
    """The broker applies what a broker of the cluster was sent. Each request takes one turn."""
    metadata, turns = client.broker.services.metadata, list[float]()
    for frame in updates:
        turns.append(_cpu_s(lambda frame=frame: metadata.update(_decoded(frame))))  # type: ignore[misc]
    small = _decoded(updates[-1])
    small.topic_states = small.topic_states[-1:]
    topic = MetadataRequest.MetadataRequestTopic(name=small.topic_states[0].topic_name)
    one, every = MetadataRequest(topics=[topic]), MetadataRequest(topics=None)
    return {
        FULL: sum(turns),
        "update_turn_s": max(turns),
        SMALL: min(_cpu_s(lambda: metadata.update(small)) for _ in range(REPEATS)),
        ONE_TOPIC: min([await _answer_s(client, one) for _ in range(REPEATS)]),
        ALL_TOPICS: min([await _answer_s(client, every) for _ in range(REPEATS)]),
    }


def _decoded(frame: bytes) -> UpdateMetadataRequest:
    head = request_head(frame)
    with without_collections():
        request = decode(UpdateMetadataRequest, frame, head.version, head.body_at)
    request.broker_epoch = -1
    return request


async def _answer_s(client: InMemoryClient, request: MetadataRequest) -> float:
    frame = memoryview(joined(request_frame(request, METADATA_VERSION, 1, "bench")))[4:]
    began = time.thread_time()
    reply = client.broker.requests.serve(cast(Connection, client), frame)
    assert not isinstance(reply, PendingReply)
    if isinstance(reply, Coroutine):
        await reply
    return time.thread_time() - began


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        print(json.dumps(runner.run(_measure_size(int(sys.argv[1]), int(sys.argv[2])))))
