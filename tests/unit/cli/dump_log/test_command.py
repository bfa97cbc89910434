"""Dumps of files that the log itself wrote; and of such files broken, where everything before the break is shown."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.cli import main
from leadline.log.checkpoints import write_clean_shutdown, write_meta_properties, write_offsets
from leadline.log.producer_state import AppendOrigin
from leadline.model import TopicPartition
from leadline.records.compression import Codec
from leadline.runtime.ports import OsFiles
from tests.support.logs import START_MS, LogBench, batch, marker

Shown = Callable[..., "Dumped"]
SETTINGS = {"segment.bytes": "2000", "index.interval.bytes": "200"}
BASE = "00000000000000000000"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAKg"


class Dumped:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out.splitlines(), err.splitlines()


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Shown:
    def run(*arguments: str | Path) -> Dumped:
        code = main(["dump-log", *map(str, arguments)])
        return Dumped(code, *capsys.readouterr())

    return run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition with plain, compressed and transactional records, one transaction aborted, over some segments."""
    bench = LogBench(tmp_path, SETTINGS)
    log = bench.open()
    log.append_as_leader(batch(2), 0)
    log.append_as_leader(batch(3, codec=Codec.GZIP, timestamp=START_MS + 100), 0)
    log.append_as_leader(batch(2, producer_id=7, transactional=True, timestamp=START_MS + 200), 0)
    log.append_as_leader(marker(7, commit=False), 0, AppendOrigin.COORDINATOR)
    for n in range(30):
        log.append_as_leader(batch(2, timestamp=START_MS + 300 + n * 10, size=50), 1)
    (bench.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    log.close()
    return bench.directory


def first_segment(directory: Path, kind: str) -> Path:
    return directory / f"{BASE}{kind}"


def corrupt(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_batches_are_the_lines_of_kafkas_tool(directory: Path, dump: Shown) -> None:
    shown = dump(first_segment(directory, ".log"))
    assert shown.code == 0
    assert shown.err == []
    assert shown.out[0] == f"Dumping {first_segment(directory, '.log')}"
    assert shown.out[1] == "Log starting offset: 0"
    assert shown.out[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {START_MS + 1} size: "
    )
    assert shown.out[2].endswith(" isvalid: true")
    assert "compresscodec: gzip" in shown.out[3]


def test_records_come_with_deep_and_their_content_with_data(directory: Path, dump: Shown) -> None:
    deep, data = (dump(option, first_segment(directory, ".log")).out for option in ("--deep", "--data"))
    line = f"| offset: 0 CreateTime: {START_MS} keySize: 2 valueSize: 10 sequence: -1 headerKeys: []"
    assert deep[3] == line
    assert data[3] == f"{line} key: k0 payload: vvvvvvvvvv"
    (end,) = [row for row in deep if "endTxnMarker" in row]
    assert end.endswith("endTxnMarker: ABORT coordinatorEpoch: 0")


def test_json_is_an_object_a_line(directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".log")
    rows = [json.loads(line) for line in dump("--json", "--data", path).out]
    assert {row["file"] for row in rows} == {str(path)}
    assert [row["type"] for row in rows[:4]] == ["segment", "batch", "record", "record"]
    assert (rows[1]["count"], rows[1]["is_valid"], rows[1]["delete_horizon_ms"]) == (2, True, None)
    assert (rows[2]["key"], rows[2]["value"]) == ("k0", "v" * 10)


def test_every_index_agrees_with_its_log(directory: Path, dump: Shown) -> None:
    shown = dump("--check", *sorted(directory.glob("*index")))
    assert (shown.code, shown.err) == (0, [])
    assert any(line.startswith("offset: ") and " position: " in line for line in shown.out)
    assert any(line.startswith("timestamp: ") for line in shown.out)
    assert "version: 0 producerId: 7 firstOffset: 5 lastOffset: 7 lastStableOffset: 8" in shown.out


def test_what_a_running_broker_reserves_in_an_index_is_not_shown(directory: Path, dump: Shown) -> None:
    for kind in (".index", ".timeindex"):
        path = first_segment(directory, kind)
        before = dump(path).out
        with path.open("ab") as file:
            file.write(bytes(24 * 10))
        shown = dump("--check", path)
        assert (shown.code, shown.out) == (0, before)


def test_a_directory_is_dumped_file_by_file(directory: Path, dump: Shown) -> None:
    shown = dump("--check", "--deep", directory)
    assert (shown.code, shown.err) == (0, [])
    names = [os.path.basename(line.split()[1]) for line in shown.out if line.startswith("Dumping")]
    assert names[:4] == ["leader-epoch-checkpoint", "partition.metadata", f"{BASE}.log", f"{BASE}.index"]
    assert any(name.endswith(".snapshot") for name in names)
    assert "epoch: 1 startOffset: 8" in shown.out
    assert f"topic_id: {TOPIC_ID}" in shown.out


def test_a_log_directory_is_dumped_with_its_checkpoints(directory: Path, dump: Shown) -> None:
    files, parent = OsFiles(), directory.parent
    write_offsets(files, str(parent / "replication-offset-checkpoint"), {TopicPartition("orders", 0): 68})
    write_meta_properties(files, str(parent), {"version": "0", "broker.id": "3", "cluster.id": "a=b"}, START_MS)
    write_clean_shutdown(files, str(parent), 99)
    (parent / ".lock").touch()
    (parent / "lost+found").mkdir()
    shown = dump(parent)
    assert (shown.code, shown.err) == (0, [])
    for line in (
        "topic: orders partition: 0 offset: 68",
        "broker.id: 3",
        "cluster.id: a=b",
        "version: 0 brokerEpoch: 99",
        "Log starting offset: 0",
    ):
        assert line in shown.out
    one = json.loads(dump("--json", parent / "meta.properties").out[0])
    assert (one["type"], one["broker.id"], one["cluster.id"]) == ("meta_properties", "3", "a=b")


def test_dumping_changes_nothing_and_creates_nothing(directory: Path, dump: Shown) -> None:
    def state() -> dict[str, tuple[int, int, bytes]]:
        return {p.name: (p.stat().st_mtime_ns, p.stat().st_mode, p.read_bytes()) for p in directory.iterdir()}

    for path in directory.glob("*.txnindex"):
        path.chmod(0o400)
    before = state()
    dump("--check", "--data", directory)
    assert state() == before


# What is broken


def test_a_batch_whose_crc_is_wrong_is_shown_so_and_the_next_ones_too(directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".log")
    whole = dump(path)
    second = int(whole.out[3].split(" position: ")[1].split()[0])
    corrupt(path, second + 70, b"\xff\xff")
    shown = dump(path)
    assert shown.code == 1
    assert len(shown.out) == len(whole.out)
    assert shown.out[3] == whole.out[3].replace("isvalid: true", "isvalid: false")
    assert shown.err[0].startswith(f"leadline: {path}: at byte {second}: the CRC of the batch is ")
    deep = dump("--deep", path)
    assert any(f"{path}: at byte {second}: the records of the batch cannot be read" in line for line in deep.err)


@pytest.mark.parametrize(
    ("cut", "message"),
    [(30, "a batch is incomplete: 30 bytes of its header are left"), (65, "bytes is incomplete: 65 are left")],
)
def test_a_log_that_is_cut_off_is_shown_up_to_there(cut: int, message: str, directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".log")
    whole = dump(path)
    second = int(whole.out[3].split(" position: ")[1].split()[0])
    os.truncate(path, second + cut)
    shown = dump(path)
    assert (shown.code, shown.out) == (1, whole.out[:3])
    (line,) = shown.err
    assert line.startswith(f"leadline: {path}: at byte {second}: ")
    assert message in line


@pytest.mark.parametrize(
    ("position", "data", "message"),
    [
        (16, b"\x01", "message format 1 (from before Kafka 0.11) is not supported"),
        (16, b"\x09", "not a record batch: magic 9"),
        (8, b"\x00\x00\x00\x05", "a record batch of length 5"),
        (0, b"\xff\xff\xff\xff\xff\xff\xff\xf0", "holds the offsets -16 to -15, but the next offset is 0"),
        (22, b"\x07", "unknown compression codec 7"),
    ],
)
def test_a_batch_that_makes_no_sense_is_named(
    position: int, data: bytes, message: str, directory: Path, dump: Shown
) -> None:
    path = first_segment(directory, ".log")
    corrupt(path, position, data)
    shown = dump(path)
    assert shown.code == 1
    assert any(line.startswith(f"leadline: {path}: at byte 0: ") and message in line for line in shown.err)


def test_zeros_behind_the_last_batch_are_shown_as_zeros(directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".log")
    size = path.stat().st_size
    os.truncate(path, size + 5000)
    assert dump(path).err == [f"leadline: {path}: at byte {size}: 5000 zero bytes up to the end"]


def test_an_index_that_points_elsewhere_is_found_by_check_alone(directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".index")
    corrupt(path, 7, b"\x01")
    assert dump(path).code == 0
    shown = dump("--check", path)
    assert shown.code == 1
    assert f"{path}: at byte 0: the entry points to byte 1, where no batch of" in shown.err[0]


def test_a_time_index_that_disagrees_with_its_log_is_found_by_check(directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".timeindex")
    corrupt(path, 11, b"\x7f")
    shown = dump("--check", path)
    assert shown.code == 1
    assert f"{path}: at byte 0: " in shown.err[0]


def test_entries_that_do_not_increase_are_named_without_check(directory: Path, dump: Shown) -> None:
    path = first_segment(directory, ".index")
    data = path.read_bytes()
    path.write_bytes(data[:8] + data[:8])
    shown = dump(path)
    assert shown.code == 1
    assert f"{path}: at byte 8: " in shown.err[0]


@pytest.mark.parametrize(("kind", "entry"), [(".index", 8), (".timeindex", 12), (".txnindex", 34)])
def test_an_index_that_is_cut_off_is_shown_up_to_there(kind: str, entry: int, directory: Path, dump: Shown) -> None:
    path = first_segment(directory, kind)
    whole = dump(path).out
    last = path.stat().st_size - entry
    os.truncate(path, last + 5)
    shown = dump(path)
    assert (shown.code, shown.out) == (1, whole[:-1])
    assert shown.err == [f"leadline: {path}: at byte {last}: an entry is incomplete: 5 of {entry} bytes"]


def test_an_index_without_its_log_cannot_be_checked(directory: Path, dump: Shown) -> None:
    first_segment(directory, ".log").unlink()
    shown = dump("--check", first_segment(directory, ".index"))
    assert shown.code == 1
    assert "cannot be checked without" in shown.err[0]


def test_a_snapshot_whose_crc_is_wrong_is_refused(directory: Path, dump: Shown) -> None:
    path = sorted(directory.glob("*.snapshot"))[0]
    assert dump(path).out[1].startswith("producerId: 7 producerEpoch: 0 coordinatorEpoch: 0 currentTxnFirstOffset: ")
    corrupt(path, 12, b"\xff")
    assert dump(path).err == [f"leadline: {path}: at byte 2: a producer snapshot whose CRC does not match"]


@pytest.mark.parametrize(
    ("name", "text", "shown", "message"),
    [
        ("leader-epoch-checkpoint", "0\n2\n0 0\n1 x\n", ["epoch: 0 startOffset: 0"], "at byte 8: expected epoch start"),
        ("leader-epoch-checkpoint", "1\n0\n", [], "at byte 0: version '1', expected 0"),
        (
            "leader-epoch-checkpoint",
            "0\n5\n0 0\n",
            ["epoch: 0 startOffset: 0"],
            "at byte 2: the count is '5'",
        ),
        ("cleaner-offset-checkpoint", "0\n1\norders 0\n", [], "at byte 4: expected topic partition offset"),
        ("partition.metadata", "version: 0\ntopic_id: nope\n", ["version: 0"], "at byte 11: not an id"),
        (".kafka_cleanshutdown", '{"version": ', [], "at byte 12: not JSON"),
    ],
)
def test_a_text_file_is_shown_up_to_the_line_that_makes_no_sense(
    name: str, text: str, shown: list[str], message: str, tmp_path: Path, dump: Shown
) -> None:
    path = tmp_path / name
    path.write_text(text)
    output = dump(path)
    assert (output.code, output.out) == (1, [f"Dumping {path}", *shown])
    (line,) = output.err
    assert line.startswith(f"leadline: {path}: {message}")


def test_a_foreign_file_or_none_is_refused_and_the_next_is_shown(directory: Path, tmp_path: Path, dump: Shown) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    missing = tmp_path / "00000000000000000009.log"
    shown = dump(tmp_path / "notes.txt", missing, tmp_path / "empty", first_segment(directory, ".index"))
    assert shown.code == 1
    assert "notes.txt: not a log file, by its name" in shown.err[0]
    assert shown.err[1] == f"leadline: {missing}: No such file or directory"
    assert "no file of a log in this directory" in shown.err[2]
    assert shown.out[-1].startswith("offset: ")


@pytest.mark.parametrize("name", ["nosuch.log", "00000000000000000000.log", "nosuch"])
def test_a_missing_file_is_reported(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", name]) == 1
    assert capsys.readouterr() == ("", f"leadline: {name}: No such file or directory\n")
