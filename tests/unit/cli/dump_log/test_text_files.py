"""Dumps of the small text files of a log directory, whole or damaged."""

from pathlib import Path

import pytest

from leadline.cli.dump_log.dump_row import DumpRow, Reader
from leadline.cli.dump_log.text_files import TEXT_FILES
from leadline.errors import CorruptFile

OFFSETS, EPOCHS = "recovery-point-offset-checkpoint", "leader-epoch-checkpoint"
METADATA, CLEAN = "partition.metadata", ".kafka_cleanshutdown"


def dump(tmp_path: Path, name: str, text: str) -> list[DumpRow | CorruptFile]:
    path = tmp_path / name
    path.write_text(text)
    reader: Reader = TEXT_FILES[name]
    return list(reader(str(path)))


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            OFFSETS,
            "0\n2\norders 0 5\nusers 1 7\n",
            ["topic: orders partition: 0 offset: 5", "topic: users partition: 1 offset: 7"],
        ),
        (EPOCHS, "0\n1\n3 40\n", ["epoch: 3 startOffset: 40"]),
        (OFFSETS, "", []),
        (METADATA, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n", ["version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ"]),
        ("meta.properties", "# comment\nbroker.id=1\n", ["broker.id: 1"]),
        (CLEAN, '{"version":0,"brokerEpoch":7}', ["version: 0 brokerEpoch: 7"]),
    ],
)
def test_a_file_that_is_whole(tmp_path: Path, name: str, text: str, lines: list[str]) -> None:
    rows = dump(tmp_path, name, text)
    assert [row.text() for row in rows if isinstance(row, DumpRow)] == lines
    assert len(rows) == len(lines)


@pytest.mark.parametrize(
    ("name", "text", "position", "reason"),
    [
        (OFFSETS, "7\n0\n", 0, "version '7', expected 0"),
        (OFFSETS, "0\n1\norders zero 5\n", 4, "expected topic partition offset, found 'orders zero 5'"),
        (METADATA, "version: 0\ncolour: red\n", 11, "expected version or topic_id, found 'colour: red'"),
        (CLEAN, "{", 1, "not JSON"),
        (CLEAN, "[]", 0, "expected a JSON object"),
    ],
)
def test_a_damaged_file_is_refused_with_the_position(
    tmp_path: Path, name: str, text: str, position: int, reason: str
) -> None:
    with pytest.raises(CorruptFile, match=reason) as raised:
        dump(tmp_path, name, text)
    assert raised.value.position == position


def test_a_wrong_count_is_reported_after_the_rows(tmp_path: Path) -> None:
    row, error = dump(tmp_path, OFFSETS, "0\n3\norders 0 5\n")
    assert isinstance(row, DumpRow)
    assert isinstance(error, CorruptFile)
    assert "the count is '3', but 1 lines follow" in str(error)
