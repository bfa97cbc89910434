"""Checkpoint files: byte for byte as Kafka writes them, and clear words for what is none."""

import os
import uuid
from pathlib import Path

import pytest

from leadline.errors import CorruptFile
from leadline.log.checkpoints import (
    EpochEntry,
    encode_epochs,
    encode_partition_metadata,
    read_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from leadline.model import TopicPartition
from leadline.runtime.ports import OsFiles
from tests.support.watched_files import WatchedFiles

FILES = OsFiles()


def test_offsets_are_sorted_lines_behind_version_and_count(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 0, TopicPartition("a", 9): 2**62}
    write_offsets(FILES, str(path), offsets)
    assert path.read_text() == f"0\n3\na 9 {2**62}\na 10 0\nb 0 7\n"
    assert read_offsets(FILES, str(path)) == offsets


def test_a_missing_or_empty_checkpoint_has_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_offsets(FILES, str(path)) == {}
    assert read_epochs(FILES, str(path)) == []
    path.touch()
    assert read_offsets(FILES, str(path)) == {}


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("1\n0\n", 0, "version '1', expected 0"),
        ("0\n2\na 0 1\n", 2, "says '2' lines follow, but 1 do"),
        ("0\nx\n", 2, "says 'x'"),
        ("0\n1\na 0\n", None, "malformed line 'a 0'"),
        ("0\n1\na 0 x\n", None, "malformed line 'a 0 x'"),
    ],
)
def test_a_damaged_checkpoint_names_path_position_and_reason(
    text: str, position: int | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CorruptFile) as raised:
        read_offsets(FILES, str(path))
    assert str(path) in str(raised.value)
    assert reason in str(raised.value)
    assert f"at byte {raised.value.position}" in str(raised.value)
    assert position is None or raised.value.position == position


def test_epochs_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    entries = [EpochEntry(0, 0), EpochEntry(7, 120)]
    path.write_bytes(encode_epochs(entries))
    assert path.read_text() == "0\n2\n0 0\n7 120\n"
    assert read_epochs(FILES, str(path)) == entries


def test_a_damaged_epoch_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n1\n7\n")
    with pytest.raises(CorruptFile, match="malformed line '7'"):
        read_epochs(FILES, str(path))


def test_partition_metadata_holds_the_topic_id(tmp_path: Path) -> None:
    path, topic_id = tmp_path / "partition.metadata", uuid.uuid4()
    assert read_partition_metadata(FILES, str(path)) is None
    path.write_bytes(encode_partition_metadata(topic_id))
    assert path.read_text().startswith("version: 0\ntopic_id: ")
    assert read_partition_metadata(FILES, str(path)) == topic_id


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version: 1\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w", "version '1'"),
        ("nonsense", "version None"),
        ("version: 0\ntopic_id: xx", "not an id: 'xx'"),
        ("version: 0", "not an id"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "all zeros"),
    ],
)
def test_damaged_partition_metadata_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    with pytest.raises(CorruptFile, match=reason):
        read_partition_metadata(FILES, str(path))


@pytest.mark.parametrize("data", [b"", b"\0" * 40, b"\n"])
def test_empty_partition_metadata_is_as_good_as_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(data)
    assert read_partition_metadata(FILES, str(path)) is None


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b'{"brokerEpoch":1e999}', b"\xff\xfe", b'{"brokerEpoch":[]}'])
def test_a_clean_stop_is_believed_whatever_its_file_says(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert take_clean_shutdown(FILES, str(tmp_path)) == -1
    assert take_clean_shutdown(FILES, str(tmp_path)) is None


@pytest.mark.parametrize(
    "line", ["t 0 9223372036854775808", "t 0 -1", "t -1 0", "t 0 ²", f"t 0 {'9' * 5000}", "t 0", "t 0 0 0", ""]
)
def test_an_offset_that_no_broker_writes_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_text(f"0\n1\n{line}\n")
    with pytest.raises(CorruptFile, match="malformed line"):
        read_offsets(FILES, str(path))


@pytest.mark.parametrize("lines", ["1 0\n1 5", "2 0\n1 5", "1 5\n2 5", "1 5\n2 4"])
def test_epochs_that_do_not_increase_are_refused(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "epochs"
    path.write_text(f"0\n2\n{lines}\n")
    with pytest.raises(CorruptFile, match="does not follow"):
        read_epochs(FILES, str(path))


def test_a_checkpoint_too_large_to_be_one_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptFile, match="no such file is larger"):
        read_offsets(FILES, str(path))


def test_a_clean_stop_is_believed_once(tmp_path: Path) -> None:
    assert take_clean_shutdown(FILES, str(tmp_path)) is None
    write_clean_shutdown(FILES, str(tmp_path), 12)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":12}'
    assert take_clean_shutdown(FILES, str(tmp_path)) == 12
    assert take_clean_shutdown(FILES, str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense"])
def test_a_clean_stop_of_an_older_version_has_no_broker_epoch(text: str, tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(text)
    assert take_clean_shutdown(FILES, str(tmp_path)) == -1


def test_meta_properties_come_back_whatever_they_contain(tmp_path: Path) -> None:
    properties = {"broker.id": "0", "cluster.id": "8PHy8_T19vf4-fr7_P3-_w", "odd": "a=b:c#d"}
    assert read_meta_properties(FILES, str(tmp_path)) is None
    write_meta_properties(FILES, str(tmp_path), properties, 0)
    assert (tmp_path / "meta.properties").read_text().splitlines()[:2] == ["#", "#Thu Jan 01 00:00:00 UTC 1970"]
    assert read_meta_properties(FILES, str(tmp_path)) == properties


def test_a_checkpoint_is_synced_before_it_takes_its_name_and_the_name_afterwards(tmp_path: Path) -> None:
    done = list[str]()
    files = WatchedFiles(lambda operation, path: done.append(f"{operation} {Path(path).name}"))
    write_offsets(files, str(tmp_path / "offsets"), {})
    assert done[-4:] == ["pwrite offsets.tmp", "fsync offsets.tmp", "rename offsets.tmp", f"sync_dir {tmp_path.name}"]
