"""What a checkpoint holds, and what became of it since."""

import json

import pytest

from leadline.model import TopicPartition
from leadline.spark.positions import BadCheckpoint, ClusterOffsets, Positions, data_loss, losses, resume_offsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_it_comes_back_as_it_was_written() -> None:
    before = Positions({A1: 4, A0: 17, B0: 0}, "group", {"a": "id-a"})
    text = json.dumps(before.to_json())
    assert Positions.from_json(json.loads(text)) == before
    assert json.dumps(Positions.from_json(json.loads(text)).to_json()) == text


def test_a_checkpoint_of_sparks_own_connector_is_gone_on_with() -> None:
    assert Positions.from_json({"a": {"0": 17, "1": 4}}) == Positions({A0: 17, A1: 4})


def connector_offsets(checkpoint: dict[str, dict[str, int]]) -> dict[TopicPartition, int]:
    """As Spark's own connector reads it: Map[String, Map[Int, Long]], and one position for each entry."""
    return {
        TopicPartition(topic, int(partition)): offset + 0
        for topic, partitions in checkpoint.items()
        for partition, offset in partitions.items()
    }


@pytest.mark.parametrize("group", ["", "leadline-spark-1", "a group: of {mine}, 'ü'"])
def test_sparks_own_connector_reads_the_offsets_and_nothing_else(group: str) -> None:
    positions = Positions({A1: 4, A0: 17, B0: 0}, group, {"a": "tQ-_x1", "b": "id-b"})
    checkpoint = json.loads(json.dumps(positions.to_json()))
    assert connector_offsets(checkpoint) == positions.offsets
    assert Positions.from_json(checkpoint) == positions


def test_an_older_checkpoint_is_gone_on_with() -> None:
    older = {"a": {"0": 17}, "@leadline": {"group": "g", "ids": {"a": "id-a"}}}
    assert Positions.from_json(older) == Positions({A0: 17}, "g", {"a": "id-a"})


@pytest.mark.parametrize(
    "checkpoint",
    [{"a": 5}, {"a": {"x": 1}}, {"a": {"0": "y"}}, {"@leadline": 3}, {"@leadline": {}}, {"@leadline id a": {}}],
)
def test_what_is_no_checkpoint_is_refused(checkpoint: dict[str, object]) -> None:
    with pytest.raises(BadCheckpoint, match="not offsets of topics"):
        Positions.from_json(checkpoint)


NOW = ClusterOffsets({A0: 10, A1: 0}, {A0: 20, A1: 5}, {"a": "new"})


@pytest.mark.parametrize(
    ("before", "message", "next_offset"),
    [
        (Positions({A0: 15}), "", 15),
        (Positions({A0: 20}), "", 20),
        (Positions({A0: 7}), "a-0: offsets 7 to 9 are gone: the log starts at 10 (retention", 10),
        (Positions({A0: 25}), "a-0: offsets 20 to 24 are gone: the log ends at 20 (truncated", 20),
        (Positions({A0: 15}, "", {"a": "old"}), "a-0: all from offset 15 on are gone: the topic was deleted, and", 10),
    ],
)
def test_losses_are_reported_in_numbers(before: Positions, message: str, next_offset: int) -> None:
    assert "; ".join(map(str, losses(before, NOW))).startswith(message)
    assert bool(losses(before, NOW)) == bool(message)
    assert resume_offsets(before, NOW)[A0] == next_offset


def test_new_partitions_are_read_from_their_begin_and_lost_ones_not_at_all() -> None:
    before = Positions({A0: 15, B0: 3})
    assert resume_offsets(before, NOW) == {A0: 15, A1: 0}
    assert "b-0: all from offset 3 on are gone: the topic or the partition no longer exists" in str(
        data_loss(losses(before, NOW))
    )
