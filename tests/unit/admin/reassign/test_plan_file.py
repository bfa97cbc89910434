"""The file of a reassignment plan."""

import pytest

from leadline.admin.reassign.plan_file import PlanError, entries, parse_plan, plan_text
from leadline.model import TopicPartition


def test_a_file_is_read_as_it_was_written() -> None:
    plan = {TopicPartition("orders", 0): [1, 2], TopicPartition("orders", 1): [3], TopicPartition("users", 0): [2]}
    assert parse_plan(plan_text(plan)) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected {"),
        ('{"partitions": []}', "expected {"),
        ('{"partitions": [7]}', "expected {"),
        ('{"partitions": [{"topic": "a"}]}', "expected a topic and a partition"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "a-0: expected a list of brokers as replicas, not null"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}', "names a broker twice"),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/x"]}]}',
            'a-0: log_dirs other than "any"',
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}, '
            '{"topic": "a", "partition": 0, "replicas": [2]}]}',
            "a-0 is named twice",
        ),
    ],
)
def test_an_invalid_plan_file_is_refused_with_its_mistake(text: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_plan(text)
    assert message in str(error.value)


def test_any_list_of_objects_can_be_read() -> None:
    assert entries('{"partitions": [{"a": 1}]}', "partitions") == [{"a": 1}]
