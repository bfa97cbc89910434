"""DumpLogSegments, Kafka's own tool, over files that Leadline wrote: batches, indexes, transactions, snapshots."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from leadline.log.producer_state import AppendOrigin
from leadline.records.compression import Codec
from tests.conformance.kafka.oracle import Oracle
from tests.conformance.kafka.tools import tool
from tests.support.logs import LogBench, batch, marker

pytestmark = pytest.mark.conformance

SETTINGS = {"segment.bytes": "4000", "index.interval.bytes": "300"}
COMPLAINTS = ("Mismatch", "Non-consecutive", "Found", "not found", "rror", "orrupt", "isvalid: false", "out of order")


def write(bench: LogBench) -> None:
    """Rolls, all codecs, transactions committed and aborted."""
    log = bench.open()
    for n in range(12):
        now = bench.clock.ms + 100 * n
        for codec in Codec:
            log.append_as_leader(batch(7, timestamp=now, codec=codec, size=40), n // 5)
        log.append_as_leader(batch(2, timestamp=now, producer_id=8, sequence=2 * n), n // 5)
        log.append_as_leader(batch(2, timestamp=now, producer_id=9, sequence=2 * n, transactional=True), n // 5)
        log.append_as_leader(marker(9, commit=n % 2 == 0), n // 5, AppendOrigin.COORDINATOR)
    log.close()


def files(directory: Path, *suffixes: str) -> str:
    return ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)


def complaints(dump: str) -> list[str]:
    return [line for line in dump.splitlines() if any(word in line for word in COMPLAINTS)]


def batches_in(dump: str) -> Iterable[re.Match[str]]:
    return re.finditer(r"^baseOffset: (\d+) lastOffset: (\d+) .* isvalid: true$", dump, re.MULTILINE)


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    bench = LogBench(tmp_path, SETTINGS)
    write(bench)
    return bench


def test_every_record_of_every_batch(oracle: Oracle, bench: LogBench) -> None:
    dump = oracle.dump("--files", files(bench.directory, ".log"), "--deep-iteration", "--print-data-log")
    assert complaints(dump) == []
    assert len(list(batches_in(dump))) == 12 * 8
    assert dump.count("endTxnMarker: COMMIT") == dump.count("endTxnMarker: ABORT") == 6
    assert dump.count("| offset: ") == 12 * (5 * 7 + 5)


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only", "--print-data-log"])
def test_nothing_is_wrong_with_indexes(oracle: Oracle, bench: LogBench, check: str) -> None:
    dump = oracle.dump("--files", files(bench.directory, ".index", ".timeindex"), check)
    assert complaints(dump) == []
    if check == "--index-sanity-check":
        assert dump.count("passed sanity check") > 4


def test_nothing_is_wrong_with_aborted_transactions_and_producers(oracle: Oracle, bench: LogBench) -> None:
    dump = oracle.dump("--files", files(bench.directory, ".txnindex", ".snapshot"))
    assert complaints(dump) == []
    assert dump.count("version: 0 producerId: 9") == 6
    assert "producerId: 8 producerEpoch: 0" in dump


def test_nothing_is_wrong_after_a_recovery(oracle: Oracle, bench: LogBench) -> None:
    newest = sorted(bench.directory.glob("*.log"))[-1]
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size - 3)
    for kind in ("index", "timeindex", "txnindex"):
        newest.with_suffix(f".{kind}").unlink(missing_ok=True)
    bench.open(clean=False).close()
    all_files = files(bench.directory, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    assert complaints(oracle.dump("--files", all_files, "--deep-iteration", "--print-data-log")) == []
    assert complaints(oracle.dump("--files", all_files, "--verify-index-only")) == []


def test_what_is_wrong_would_be_found(oracle: Oracle, bench: LogBench) -> None:
    index = sorted(bench.directory.glob("*.index"))[0]
    data = bytearray(index.read_bytes())
    data[3] ^= 1
    index.write_bytes(data)
    assert complaints(oracle.dump("--files", index, "--verify-index-only"))


def test_as_a_person_would_run_it(bench: LogBench) -> None:
    all_files = files(bench.directory, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    dump = tool("dump-log", "--files", all_files, "--deep-iteration", "--print-data-log")
    assert complaints(dump) == []
    assert len(list(batches_in(dump))) == 12 * 8
