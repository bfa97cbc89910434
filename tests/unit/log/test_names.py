"""Names that carry meaning: base offsets, suffixes, marks of directories."""

from uuid import UUID

import pytest

from leadline.log import names
from leadline.log.names import DirMark
from leadline.model import TopicPartition


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("00000000000000000042.timeindex.cleaned", (42, ".timeindex", ".cleaned")),
        ("00000000000000000000.log.swap", (0, ".log", ".swap")),
        ("09223372036854775807.snapshot.deleted", (2**63 - 1, ".snapshot", ".deleted")),
    ],
)
def test_the_name_of_a_segment_file_holds_offset_kind_and_suffix(name: str, parts: tuple[int, str, str]) -> None:
    assert names.parse_file_name(name) == parts
    assert names.file_name(*parts) == name


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "partition.metadata", "x1.log", "12", "1.log.tmp", ".lock"]
)
def test_other_files_are_no_files_of_a_segment(name: str) -> None:
    assert names.parse_file_name(name) is None


@pytest.mark.parametrize("tp", [TopicPartition("orders", 0), TopicPartition("with-dash.and_dot-7", 12)])
@pytest.mark.parametrize("mark", [None, *DirMark])
def test_the_name_of_a_directory_holds_partition_and_mark(tp: TopicPartition, mark: DirMark | None) -> None:
    name = names.dir_name(tp) if mark is None else names.marked_dir_name(tp, mark, UUID(int=1))
    assert names.parse_dir_name(name) == (tp, mark)


@pytest.mark.parametrize(
    "name",
    [
        *("lost+found", "orders", "orders-", "-0", "orders-x", "orders-1.x-gone", "orders-²", "my backup-7"),
        *("backup-20260101", "orders-99999999999999999999", f"{'x' * 250}-0"),
    ],
)
def test_a_directory_that_is_none_of_ours_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="is not the directory of a partition"):
        names.parse_dir_name(name)


def test_a_marked_name_fits_into_what_file_systems_allow() -> None:
    tp = TopicPartition("t" * 249, 99)
    name = names.marked_dir_name(tp, DirMark.DELETE, UUID(int=1))
    assert len(name) <= names.MAX_NAME_BYTES
    assert names.parse_dir_name(name)[0].partition == 99
    assert names.marked_dir_name(tp, DirMark.DELETE, UUID(int=2)) != name, (
        "two deletions of one partition must not meet"
    )


def test_the_name_of_removed_data_holds_segment_and_time() -> None:
    for position in (None, 1234):
        name = names.removed_name(42, 1_700_000_000_000, position)
        assert (names.removed_base(name), names.removed_at(name)) == (42, 1_700_000_000_000)
        assert names.parse_file_name(name) is None, "it is no file of the log any more"
    assert (names.removed_base("notes.removed"), names.removed_at("notes.removed")) == (None, 0)
