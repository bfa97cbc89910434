"""Leadline's side of the benchmarks: the same pieces of work that java/Bench.java has Kafka do, and their times.

As a program: one JSON request per line on stdin, one JSON reply per line on stdout, until stdin ends.
"""

import asyncio
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any, TypeAlias

from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile, LogDirFailed
from leadline.log import names
from leadline.log.cleaner import Cleaner, cleanable
from leadline.log.local_log import LocalLog
from leadline.log.log import Log
from leadline.log.log_context import LogContext
from leadline.log.log_dirs import LogDirs
from leadline.log.recovery import Opening, open_log
from leadline.records.batch import walk
from leadline.runtime.ports import OsFiles, SystemChance, SystemTime
from tests.support.inline_background import InlineBackground
from tests.support.settings import live_settings

Json: TypeAlias = dict[str, Any]

_OFFSET = Struct(">q")


class Stopwatch:
    """Wall time, and the CPU time of the process with those it started."""

    def __init__(self) -> None:
        self._cpu, self._wall = self._cpu_seconds(), time.perf_counter()

    def stop(self, **done: object) -> Json:
        """The times up to now, and what was done in them."""
        wall, cpu = time.perf_counter(), self._cpu_seconds()
        return {"seconds": wall - self._wall, "cpu_seconds": cpu - self._cpu, **done}

    @staticmethod
    def _cpu_seconds() -> float:
        children = os.times()
        return time.process_time() + children.children_user + children.children_system


def fail(failure: LogDirFailed) -> None:
    raise failure


def log_failed(_: LocalLog, doing: str, error: OSError | CorruptFile) -> None:
    raise AssertionError(doing) from error


def open_one(request: Json, *, clean: bool) -> Log:
    directory = request["dir"]
    tp, _ = names.parse_dir_name(os.path.basename(directory))
    background = InlineBackground(os.path.dirname(directory), fail)
    context = LogContext(SystemTime(), SystemChance(), OsFiles(), background, log_failed)
    return open_log(Opening(tp, directory, LogConfig.parse(request["config"]), clean), context)


def ping(request: Json) -> None:
    """It runs."""


def recover(request: Json) -> Json:
    watch = Stopwatch()
    log = open_one(request, clean=False)
    return watch.stop(log_end=log.log_end, bytes=log.size, segments=len(log.segments))


# Appending

_loaded: dict[str, list[memoryview]] = {}


def append(request: Json) -> Json:
    """To a new log. The first append, which creates the epoch file, is not timed."""
    chunk_bytes = request["chunk_bytes"]
    chunks = _load(request["batches"], chunk_bytes)
    total = len(chunks) * request["passes"]
    log = open_one(request, clean=True)
    run = _append_as_leader if chunk_bytes == 0 else _append_as_follower
    run(log, chunks[:1])
    turns = (chunks * request["passes"])[1:]
    before = log.size
    watch = Stopwatch()
    run(log, turns)
    return watch.stop(count=total - 1, bytes=log.size - before, log_end=log.log_end)


def _append_as_leader(log: Log, chunks: list[memoryview]) -> None:
    for chunk in chunks:
        _OFFSET.pack_into(chunk, 0, 0)
        log.append_as_leader(chunk, 0)


def _append_as_follower(log: Log, chunks: list[memoryview]) -> None:
    for chunk in chunks:
        log.append_as_follower(chunk)


def _load(path: str, chunk_bytes: int) -> list[memoryview]:
    if path not in _loaded:
        _loaded.clear()
        _loaded[path] = split(bytearray(Path(path).read_bytes()), chunk_bytes)
    return _loaded[path]


def split(data: bytearray, chunk_bytes: int) -> list[memoryview]:
    """Whole batches, as many as fit into so many bytes; at least one."""
    view, chunks, start = memoryview(data), list[memoryview](), 0
    for position, header in walk(data):
        if position + header.size - start > chunk_bytes and position > start:
            chunks.append(view[start:position])
            start = position
    return [*chunks, view[start:]]


# Reading

_read_from: list[Log] = []


def read_open(request: Json) -> int:
    log = open_one(request, clean=True)
    log.set_high_watermark(log.log_end)
    _read_from.append(log)
    return log.log_end


def read_close(request: Json) -> None:
    _read_from.clear()


def read(request: Json) -> Any:
    log, offsets, max_bytes = _read_from[0], request["offsets"], request["max_bytes"]
    if request["verify"]:
        return _slices(log, offsets, max_bytes)
    return _send(log, offsets, max_bytes, request["port"]) if request["port"] else _locate(log, offsets, max_bytes)


def _slices(log: Log, offsets: list[int], max_bytes: int) -> list[tuple[int, int, int]]:
    slices: list[tuple[int, int, int]] = []
    for offset in offsets:
        part = log.read(offset, max_bytes).slice
        segment = log.segments.floor(offset)
        assert part is not None
        assert segment is not None
        slices.append((segment.base_offset, part.position, part.length))
    return slices


def _locate(log: Log, offsets: list[int], max_bytes: int) -> Json:
    read, count = log.read, 0
    watch = Stopwatch()
    for offset in offsets:
        part = read(offset, max_bytes).slice
        if part is not None:
            count += part.length
    return watch.stop(count=len(offsets), bytes=count)


def _send(log: Log, offsets: list[int], max_bytes: int, port: int) -> Json:
    read, sendfile, count = log.read, os.sendfile, 0
    with socket.create_connection(("127.0.0.1", port)) as target:
        target.settimeout(None)
        out = target.fileno()
        watch = Stopwatch()
        for offset in offsets:
            part = read(offset, max_bytes).slice
            if part is None:
                continue
            fd, position, left = part.file.fd, part.position, part.length
            count += left
            while left:
                sent = sendfile(out, fd, position, left)
                position += sent
                left -= sent
        return watch.stop(count=len(offsets), bytes=count)


# Whole directories

_loop = asyncio.new_event_loop()
_opened: list[LogDirs] = []


def directory_open(request: Json) -> Json:
    return _loop.run_until_complete(_open_directory(request["dir"], LogConfig()))


async def _open_directory(path: str, config: LogConfig) -> Json:
    watch = Stopwatch()
    dirs = LogDirs(live_settings({"log.dirs": path}), SystemTime(), SystemChance(), OsFiles(), lambda _: config)
    await dirs.open()
    measured = watch.stop()
    _opened.append(dirs)
    return measured | {"logs": len(dirs.logs), "log_end": sum(log.log_end for log in dirs.logs.values())}


def directory_close(request: Json) -> None:
    _loop.run_until_complete(_opened.pop().close())


def clean(request: Json) -> Json:
    return _loop.run_until_complete(_clean(request))


async def _clean(request: Json) -> Json:
    """As the broker does it: the pass in a process of its own, what it hands back swapped in."""
    parent, config = os.path.dirname(request["dir"]), LogConfig.parse(request["config"])
    await _open_directory(parent, config)
    dirs = _opened.pop()
    cleaner = Cleaner(dirs)
    (log,) = dirs.logs.values()
    log.set_high_watermark(log.log_end)
    size, before = log.size, log.segments.bases
    target = cleanable(log, None, dirs.clock.now_ms())
    assert target is not None
    watch = Stopwatch()
    await cleaner.clean(target)
    measured = watch.stop()
    assert not cleaner.uncleanable, cleaner.uncleanable
    assert log.segments.bases != before or log.size < size, "nothing was cleaned"
    cleaned_to = (await dirs.checkpoints.cleaned_offsets())[log.tp]
    await dirs.close()
    return measured | {"bytes": size, "end_offset": cleaned_to, "log_end": log.log_end}


WORK: dict[str, Callable[[Json], Any]] = {
    "ping": ping,
    "recover": recover,
    "append": append,
    "read_open": read_open,
    "read": read,
    "read_close": read_close,
    "clean": clean,
    "directory_open": directory_open,
    "directory_close": directory_close,
}


def answer(line: str) -> Json:
    request = json.loads(line)
    try:
        return {"ok": WORK[request["op"]](request)}
    except Exception:  # noqa: BLE001 - whatever goes wrong is told to who asked
        return {"error": traceback.format_exc()}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
