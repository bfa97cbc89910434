"""The files beside the partitions: offset checkpoints, the mark of a clean stop, the ids of broker and cluster."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from leadline.log import names
from leadline.log.checkpoints import (
    read_meta_properties,
    read_offsets,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from leadline.model import TopicPartition
from leadline.runtime.ports import OsFiles
from tests.conformance.kafka.oracle import START_MS, Oracle

pytestmark = pytest.mark.conformance

FILES = OsFiles()
CHECKPOINTS = (
    names.RECOVERY_POINTS_FILE,
    names.HIGH_WATERMARKS_FILE,
    names.LOG_STARTS_FILE,
    names.CLEANED_OFFSETS_FILE,
)
MANY = {TopicPartition(f"topic.{n % 7}", n): n * 1_000_000_007 for n in range(50)}


def plain(offsets: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
    return {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("offsets", [{}, {TopicPartition("a-b_c.d", 11): (1 << 62) + 1}], ids=["none", "one"])
def test_a_checkpoint_with_at_most_one_line_is_the_same(
    oracle: Oracle, tmp_path: Path, name: str, offsets: dict[TopicPartition, int]
) -> None:
    ours, theirs = tmp_path / name, tmp_path / f"kafka-{name}"
    write_offsets(FILES, str(ours), offsets)
    oracle.checkpoint_write(theirs, plain(offsets))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_checkpoint_with_many_lines_has_the_same_in_some_order(oracle: Oracle, tmp_path: Path) -> None:
    """Kafka's order is that of its hash map."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_offsets(FILES, str(ours), MANY)
    oracle.checkpoint_write(theirs, plain(MANY))
    assert ours.read_text().splitlines()[:2] == theirs.read_text().splitlines()[:2] == ["0", "50"]
    assert sorted(ours.read_text().splitlines()) == sorted(theirs.read_text().splitlines())


def test_each_reads_the_others_checkpoint(oracle: Oracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_offsets(FILES, str(ours), MANY)
    oracle.checkpoint_write(theirs, plain(MANY))
    assert oracle.checkpoint_read(ours) == MANY
    assert read_offsets(FILES, str(theirs)) == MANY


@pytest.mark.parametrize("broker_epoch", [-1, 0, 25, 1 << 40])
def test_the_mark_of_a_clean_stop_is_the_same(oracle: Oracle, tmp_path: Path, broker_epoch: int) -> None:
    write_clean_shutdown(FILES, str(tmp_path), broker_epoch)
    ours = (tmp_path / names.CLEAN_SHUTDOWN_FILE).read_bytes()
    (tmp_path / names.CLEAN_SHUTDOWN_FILE).unlink()
    oracle.clean_shutdown_file(tmp_path, broker_epoch)
    assert (tmp_path / names.CLEAN_SHUTDOWN_FILE).read_bytes() == ours
    assert take_clean_shutdown(FILES, str(tmp_path)) == broker_epoch


@pytest.mark.parametrize("cluster_id", ["Zk8GqfkTS_aXUlFm3kTRYQ", "odd=name:with#marks!\\"])
def test_the_ids_of_broker_and_cluster_are_the_same(oracle: Oracle, tmp_path: Path, cluster_id: str) -> None:
    oracle.meta_properties(tmp_path, cluster_id, 3)
    theirs = (tmp_path / names.META_PROPERTIES_FILE).read_text().splitlines()
    properties = read_meta_properties(FILES, str(tmp_path))
    assert properties == {"cluster.id": cluster_id, "broker.id": "3", "version": "0"}

    write_meta_properties(FILES, str(tmp_path), properties, START_MS)
    ours = (tmp_path / names.META_PROPERTIES_FILE).read_text().splitlines()
    assert _without_date(ours) == _without_date(theirs)
    assert len(ours) == len(theirs)


def _without_date(lines: list[str]) -> list[str]:
    assert lines[1].startswith("#")
    return [*lines[:1], *lines[2:]]
