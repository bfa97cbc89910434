"""The harness itself, on the real Kafka: each test shows one thing that the conformance tests lean on."""

import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from . import jars
from .answers import Codec, KafkaError, Record
from .broker import broker, wait_for_the_end_of, zookeeper
from .oracle import EARLIEST, LATEST, MAX_TIMESTAMP, START_MS, Oracle
from .tools import tool

pytestmark = pytest.mark.conformance

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAKg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def records(*values: bytes, key: bytes | None = None) -> list[Record]:
    return [Record(START_MS + i, key, value) for i, value in enumerate(values)]


def from_producer(oracle: Oracle, base_sequence: int, *values: bytes, transactional: bool = False) -> bytes:
    return oracle.build(
        "none",
        records(*values),
        producer_id=7,
        producer_epoch=0,
        base_sequence=base_sequence,
        transactional=transactional,
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_built_parses_back(oracle: Oracle, codec: Codec) -> None:
    originals = [
        Record(START_MS, b"k", None, (("h", b"1"), ("h", None)), 5),
        Record(START_MS + 9, None, b"v" * 300, (), 8),
    ]
    built = oracle.build(codec, originals, base_offset=5, last_offset=11, leader_epoch=3)
    (batch,) = oracle.parse(built)
    assert batch.records == originals
    assert (batch.base_offset, batch.last_offset, batch.count, batch.codec) == (5, 11, 2, codec)
    assert (batch.base_timestamp, batch.max_timestamp, batch.leader_epoch) == (START_MS, START_MS + 9, 3)
    assert batch.valid
    assert batch.size == len(built)


def test_a_batch_without_records_keeps_its_offsets(oracle: Oracle) -> None:
    (batch,) = oracle.parse(oracle.build("none", [], base_offset=5, last_offset=9, producer_id=7, base_sequence=0))
    assert (batch.base_offset, batch.last_offset, batch.records, batch.last_sequence) == (5, 9, [], 4)


def test_an_idempotent_producer_is_remembered_and_its_duplicate_dropped(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True, topic_id=TOPIC_ID)
    first = oracle.append_leader(from_producer(oracle, 0, b"a", b"b"), epoch=4)
    again = oracle.append_leader(from_producer(oracle, 0, b"a", b"b"), epoch=4)
    assert (first.first_offset, first.last_offset) == (again.first_offset, again.last_offset) == (0, 1)
    state = oracle.state()
    assert (state["log_end_offset"], state["epochs"], state["topic_id"]) == (2, [(4, 0)], TOPIC_ID)
    (producer,) = state["producers"]
    assert (producer["id"], producer["last_sequence"], len(producer["batches"])) == (7, 1, 1)
    assert (folder / "partition.metadata").exists()


def test_a_gap_in_the_sequence_is_refused_with_kafkas_code(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True)
    oracle.append_leader(from_producer(oracle, 0, b"a"), epoch=0)
    with pytest.raises(KafkaError) as refused:
        oracle.append_leader(from_producer(oracle, 5, b"b"), epoch=0)
    assert (refused.value.code, refused.value.name) == (45, "OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_an_invalid_record_is_named(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, {"cleanup.policy": "compact"}, clean=True)
    batch = oracle.build("none", [Record(START_MS, b"k", b"v"), Record(START_MS, None, b"v")])
    with pytest.raises(KafkaError) as refused:
        oracle.append_leader(batch, epoch=0)
    assert (refused.value.code, [index for index, _ in refused.value.record_errors]) == (87, [1])


def test_a_closed_log_can_be_dumped_and_opened_again(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True)
    oracle.append_leader(from_producer(oracle, 0, b"a", b"b"), epoch=1)
    assert oracle.roll() == 2
    oracle.append_leader(from_producer(oracle, 2, b"c"), epoch=2)
    before = oracle.state()
    oracle.close()

    log, snapshot = folder / "00000000000000000000.log", folder / "00000000000000000003.snapshot"
    in_process = oracle.dump("--files", f"{log},{snapshot}", "--print-data-log")
    assert "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 7" in in_process
    assert in_process == tool("dump-log", "--files", f"{log},{snapshot}", "--print-data-log")
    assert [producer["last_sequence"] for producer in oracle.producer_snapshot(snapshot)] == [2]

    oracle.open(folder, clean=True, recovery_point=3)
    after = oracle.state()
    assert [segment["size"] for segment in after["segments"]] == [segment["size"] for segment in before["segments"]]
    assert (after["log_end_offset"], after["epochs"]) == (3, [(1, 0), (2, 2)])


def test_asking_for_the_state_leaves_the_files_alone(oracle: Oracle, folder: Path) -> None:
    def sizes() -> dict[str, int]:
        return {path.name: path.stat().st_size for path in folder.iterdir()}

    oracle.open(folder, clean=True)
    oracle.append_leader(oracle.build("none", records(b"a", b"b")), epoch=0)
    assert oracle.roll() == 2
    before = sizes()
    newest = oracle.state()["segments"][1]
    assert (newest["base_offset"], newest["max_timestamp"], newest["max_timestamp_offset"]) == (2, -1, 2)
    assert sizes() == before
    oracle.close()
    closed = sizes()
    oracle.open(folder, clean=True, recovery_point=2)
    assert oracle.state()["segments"][0]["max_timestamp"] == START_MS + 1
    oracle.close()
    assert sizes() == closed


def test_a_torn_tail_is_cut_off_when_the_shutdown_was_not_clean(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True)
    oracle.append_leader(from_producer(oracle, 0, b"a", b"b"), epoch=0)
    oracle.append_leader(from_producer(oracle, 2, b"c"), epoch=0)
    oracle.abandon()
    log = folder / "00000000000000000000.log"
    assert (folder / "00000000000000000000.index").stat().st_size == 10 * 1024 * 1024
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])

    oracle.open(folder, clean=False)
    assert oracle.state()["log_end_offset"] == 2
    oracle.close()
    assert log.read_bytes() == whole[: oracle.parse(whole)[0].size]


def test_an_aborted_transaction_is_indexed_and_hidden(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True)
    oracle.append_leader(from_producer(oracle, 0, b"a", b"b", transactional=True), epoch=0)
    oracle.high_watermark(2)
    assert (oracle.state()["last_stable_offset"], oracle.read(0, 1000, "TXN_COMMITTED").data) == (0, b"")
    oracle.append_leader(oracle.end_transaction_marker(7, 0, commit=False), epoch=0, origin="COORDINATOR")
    oracle.high_watermark(3)

    read = oracle.read(0, 1000, "TXN_COMMITTED")
    assert (read.aborted, read.segment_base_offset, read.position) == ([(7, 0)], 0, 0)
    assert [batch.control for batch in oracle.parse(read.data)] == [False, True]
    (aborted,) = oracle.aborted(0, 3)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 2)
    oracle.close()
    assert (folder / "00000000000000000000.txnindex").stat().st_size == 34


def test_one_run_of_the_cleaner_keeps_the_last_value_of_a_key(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, {"cleanup.policy": "compact"}, clean=True)
    for value in (b"1", b"2", b"3"):
        oracle.append_leader(oracle.build("none", records(value, key=b"k")), epoch=0)
    oracle.roll()
    oracle.high_watermark(3)
    assert oracle.cleanable_offsets() == (0, 3)
    cleaned = oracle.clean(0, 3)
    assert (cleaned.end_offset, cleaned.messages_read, cleaned.messages_written) == (3, 3, 1)
    assert [record.value for batch in oracle.parse(oracle.read(0, 1000).data) for record in batch.records] == [b"3"]
    assert list(folder.glob("*.log.deleted"))
    assert "delete-file" in oracle.run_scheduled(advance_ms=60_000)
    assert not list(folder.glob("*.deleted"))


def test_offsets_are_found_by_time_and_by_epoch(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True)
    for epoch, value in enumerate([b"a", b"b"]):
        oracle.append_leader(oracle.build("none", [Record(START_MS + 10 * epoch, None, value)]), epoch=epoch)
    assert oracle.offset_for_timestamp(START_MS + 1) == (START_MS + 10, 1, 1)
    assert oracle.offset_for_timestamp(START_MS + 11) is None
    assert oracle.offset_for_timestamp(LATEST) == (-1, 2, 1)
    assert oracle.offset_for_timestamp(EARLIEST) == (-1, 0, 0)
    assert oracle.offset_for_timestamp(MAX_TIMESTAMP) == (START_MS + 10, 1, 1)
    assert oracle.end_offset_for_epoch(0) == (0, 1)
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        oracle.read(3, 1000)


def test_a_log_is_truncated_trimmed_and_retained(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, {"segment.bytes": "100", "retention.bytes": "100"}, clean=True)
    for value in (b"a", b"b", b"c"):
        oracle.append_leader(oracle.build("none", records(value * 30)), epoch=0)
    oracle.high_watermark(3)
    assert (oracle.truncate_to(2), oracle.truncate_to(2), oracle.state()["log_end_offset"]) == (True, False, 2)
    assert (oracle.delete_records(1), oracle.state()["log_start_offset"]) == (True, 1)
    assert oracle.delete_old_segments() == 1
    assert [segment["base_offset"] for segment in oracle.state()["segments"]] == [1, 2]
    oracle.truncate_fully_and_start_at(50)
    state = oracle.state()
    assert (state["log_start_offset"], state["log_end_offset"]) == (50, 50)


def test_a_follower_takes_offsets_and_epochs_as_they_come(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True)
    copied = oracle.build("lz4", records(b"a", b"b"), base_offset=10, leader_epoch=6)
    oracle.truncate_fully_and_start_at(10)
    assert oracle.append_follower(copied).last_offset == 11
    assert oracle.state()["epochs"] == [(6, 10)]
    assert oracle.read(10, 1000).data == copied


def test_producers_expire_by_the_clock_of_the_test(oracle: Oracle, folder: Path) -> None:
    oracle.open(folder, clean=True, producer_id_expiration_ms=1000)
    oracle.append_leader(from_producer(oracle, 0, b"a"), epoch=0)
    oracle.time(START_MS + 999)
    oracle.remove_expired_producers()
    assert len(oracle.state()["producers"]) == 1
    assert oracle.run_scheduled(advance_ms=600_000) == ["PeriodicProducerExpirationCheck"]
    assert oracle.state()["producers"] == []


def test_the_files_of_a_log_directory(oracle: Oracle, tmp_path: Path) -> None:
    offsets = {("b", 1): 5, ("a", 0): 7}
    oracle.checkpoint_write(tmp_path / "recovery-point-offset-checkpoint", offsets)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nb 1 5\na 0 7\n"
    assert oracle.checkpoint_read(tmp_path / "recovery-point-offset-checkpoint") == offsets
    oracle.clean_shutdown_file(tmp_path, 25)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 25}
    oracle.meta_properties(tmp_path, "cluster", 3)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == {"version=0", "broker.id=3", "cluster.id=cluster"}


def test_a_mistake_is_answered_and_not_the_end(oracle: Oracle, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="no log is open"):
        oracle.roll()
    with pytest.raises(KafkaError, match="Kafka wanted to exit"):
        oracle.dump()
    with pytest.raises(KafkaError, match="not in the form"):
        oracle.open(tmp_path / "nonsense", clean=True)
    with pytest.raises(KafkaError, match=r"segment\.butes"):
        oracle.open(tmp_path / "topic-0", {"segment.butes": "100"}, clean=True)
    assert oracle.parse(b"") == []


def test_a_broker_starts_serves_and_stops_in_order(tmp_path: Path) -> None:
    with zookeeper(tmp_path / "zk") as zk, broker(tmp_path / "kafka", zk, broker_id=3, num_partitions=2) as kafka:
        tool("topics", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "things")
        assert {path.name for path in kafka.log_dir.glob("things-*")} == {"things-0", "things-1"}
        kafka.stop()
        assert (kafka.log_dir / ".kafka_cleanshutdown").exists()
        zk.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", kafka.port))


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with (
        pytest.raises(RuntimeError, match=r"before it was ready[\s\S]*Unable to create data directory"),
        zookeeper(tmp_path),
    ):
        pass


def test_a_slow_zookeeper_is_queried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.kafka.broker.ANSWER_S", 0.1)

    def answer_the_second() -> None:
        with listener.accept()[0], listener.accept()[0] as second:
            assert second.recv(4) == b"dump"
            second.sendall(b"/brokers/ids/8")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_the_second)
        server.start()
        wait_for_the_end_of(7, f"127.0.0.1:{listener.getsockname()[1]}")
        server.join()


def test_a_jvm_takes_kafkas_classes_from_the_archive() -> None:
    command = jars.command("kafka.Kafka", options=("-Xlog:class+load",))
    if not any("SharedArchiveFile" in part for part in command):
        pytest.skip("this Java makes no archive")
    output = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "kafka.Kafka$ source: shared objects file" in output


def test_a_java_that_cannot_make_an_archive_leaves_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jars, "java", lambda: "false")
    jars._dump_archive(tmp_path)
    assert not list(tmp_path.iterdir())
