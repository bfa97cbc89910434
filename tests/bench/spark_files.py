"""What the pipeline does with files, on one core: batches into columns, and the audit of replicas.

By the time of this process alone: what others do meanwhile does not count. The data is in the page cache. Kafka has
nothing to hold against it; the compiled decoder is built for the run.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from leadline.log import checkpoints, names
from leadline.records.batch import header_at
from leadline.records.build import recompressed
from leadline.records.compression import Codec
from leadline.runtime.ports import OsFiles
from leadline.spark.audit.audit_job import audit_unit, logs_of, units
from leadline.spark.batches import record_positions
from leadline.spark.batches.decode import RecordFilter, decode
from tests.bench.batches import Maker, fill
from tests.bench.results import Goal, Row
from tests.bench.run import Run, settle
from tests.support.compiled import built_walker
from tests.support.logs import TP

MB = 1_000_000
PIECE_BYTES = 4 * MB
BATCH_BYTES = 16_384
ALL = RecordFilter(0, 1 << 62)
REPLICAS = 3

DECODED = (
    ("100 B", 100, Codec.NONE, 2e6, 6e6),
    ("1 KB", 1000, Codec.NONE, None, None),
    ("100 B, lz4", 100, Codec.LZ4, None, None),
    ("1 KB, zstd", 1000, Codec.ZSTD, None, None),
)


def measure_decoding(run: Run) -> list[Row]:
    built = built_walker(run.folder)
    rows: list[Row] = []
    for name, record_bytes, codec, by_numpy, compiled in DECODED:
        data = _batches(record_bytes, codec, run.sized(PIECE_BYTES, PIECE_BYTES // 8))
        for way, module, goal in (("numpy", None, by_numpy), ("compiled", built, compiled)):
            row = Row(f"{name}, {way}", "/s", None if goal is None else Goal(above=goal))
            vars(record_positions)["compiled_walker"] = module
            for n in run.each_round(f"decoding {row.what}"):
                records, seconds = _timed(lambda data=data: decode(data, ALL).num_rows, 5)  # type: ignore[misc]
                if n:
                    row.leadline.append(records / seconds)
            rows.append(row)
    return rows


def _batches(record_bytes: int, codec: Codec, size: int) -> bytes:
    maker, out, offset = Maker(BATCH_BYTES // record_bytes, record_bytes - 8), bytearray(), 0
    while len(out) < size:
        batch = maker.batch(base_offset=offset)
        offset += maker.records
        out += batch if codec is Codec.NONE else recompressed(batch, 0, header_at(batch), codec, None)
    return bytes(out)


def _timed(work: Callable[[], int], times: int) -> tuple[int, float]:
    """What the work came to, and the best of some times that it took, in seconds of this process."""
    best, done = float("inf"), 0
    for _ in range(times):
        started = time.process_time()
        done = work()
        best = min(best, time.process_time() - started)
    return done, best


def measure_audit(run: Run) -> list[Row]:
    dirs = _replicas(run.folder, run.sized(400 * MB, 20 * MB))
    rows = []
    for name, checksums, goal in (("headers", False, Goal(above=500)), ("all bytes", True, None)):
        row = Row(f"{REPLICAS} replicas, {name}", "MB/s", goal)
        for n in run.each_round(f"auditing {name}"):
            size, seconds = _timed(lambda checksums=checksums: _audited(dirs, checksums), 1)  # type: ignore[misc]
            if n:
                row.leadline.append(size / seconds / MB)
        rows.append(row)
    return rows


def _replicas(folder: Path, size: int) -> list[str]:
    dirs = [folder / str(n) for n in range(REPLICAS)]
    log = fill(dirs[0], size // REPLICAS, Maker(16, 1000))
    checkpoints.write_offsets(OsFiles(), str(dirs[0] / names.HIGH_WATERMARKS_FILE), {TP: log.log_end})
    for copy in dirs[1:]:
        shutil.copytree(dirs[0], copy)
    settle(*dirs)
    return [str(path) for path in dirs]


def _audited(dirs: list[str], checksums: bool) -> int:
    logs, findings = logs_of(dirs)
    results = [audit_unit(unit) for unit in units(logs, checksums=checksums)]
    assert not findings
    assert not any(result.findings for result in results), results
    return sum(result.bytes for result in results)
