"""The batch of a repeated commit is the one that is built of its records, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_records import offset_key, offset_value
from leadline.coordinator.offset_commit_template import OffsetCommitTemplate
from leadline.model import TopicPartition
from leadline.records.build import BatchFields, build_at
from leadline.wire.templates import INT

FIELDS = BatchFields(base_sequence=0)
LONGS, INTS = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["t", "a topic", "x" * 200]), st.integers(0, 300))
ROWS = st.dictionaries(PARTITIONS, st.tuples(st.text(max_size=70), LONGS, INTS), min_size=1, max_size=80)


@given(st.text(max_size=70), ROWS, st.integers(0, 1 << 50))
def test_a_form_that_is_filled_in_is_the_batch_of_its_commits(
    group: str, rows: dict[TopicPartition, tuple[str, int, int]], now_ms: int
) -> None:
    texts, offsets, epochs = zip(*rows.values(), strict=True)
    form = OffsetCommitTemplate(group, dict(zip(rows, texts, strict=True)), FIELDS)
    commits = form.commits(offsets, epochs, now_ms, 17)
    assert commits == {
        tp: OffsetAndMetadata(offset, text, now_ms, epoch, None, 17) for tp, (text, offset, epoch) in rows.items()
    }
    entries = [(offset_key(group, tp), offset_value(commit)) for tp, commit in commits.items()]
    assert form.batch(offsets, epochs, now_ms) == build_at(now_ms, entries, FIELDS)


@pytest.mark.parametrize(("group", "partition"), [("g" * 32_768, 0), ("g", INT)])
def test_what_does_not_fit_a_record_or_looks_like_a_blank_has_no_form(group: str, partition: int) -> None:
    with pytest.raises(ValueError, match=r"32768|6 blanks"):
        OffsetCommitTemplate(group, {TopicPartition("t", partition): ""}, FIELDS)
