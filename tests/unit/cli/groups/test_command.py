"""How groups are shown: members, progress, totals."""

import io

import pytest

from leadline.admin.diagnosis import ServerAddress
from leadline.admin.group import GroupDescription, MemberDescription
from leadline.admin.group_progress import GroupProgress
from leadline.admin.partitions import PartitionOffset
from leadline.admin.rebalances import NO_HISTORY
from leadline.cli.groups.describe import description_json, member_row, print_description, progress_rows
from leadline.cli.terminal import TextStyles
from leadline.model import TopicPartition as Partition

PLAIN = TextStyles(io.StringIO())


def member(n: int, *partitions: int, instance: str | None = None) -> MemberDescription:
    assigned = [Partition("orders", partition) for partition in partitions]
    return MemberDescription(f"reader-{n}-id", f"reader-{n}", "/127.0.0.1", instance, assigned, b"")


def group(*members: MemberDescription, state: str = "Stable", kind: str = "consumer") -> GroupDescription:
    return GroupDescription("billing", state, kind, "range", 1, list(members))


BROKERS = {1: ServerAddress("here", 9092)}
READER = member(0, 0, 1)
PROGRESS = [
    GroupProgress(Partition("orders", 0), PartitionOffset(40, 0, "m"), 60, READER),
    GroupProgress(Partition("orders", 1), None, 60, READER),
    GroupProgress(Partition("users", 3), PartitionOffset(7), None, None),
    GroupProgress(Partition("users", 4), PartitionOffset(9), 8, None),
]


def test_progress_is_shown_with_lag_owner_and_total() -> None:
    assert progress_rows(PROGRESS) == [
        ["orders", "0", "40", "60", "20", "reader-0-id"],
        ["orders", "1", "-", "60", "-", "reader-0-id"],
        ["users", "3", "7", "-", "-", "-"],
        ["users", "4", "9", "8", "0", "-"],
        ["total", "", "", "", "20", ""],
    ]


def test_a_member_is_shown_with_its_partitions() -> None:
    row = ["reader-0-id", "reader-0", "/127.0.0.1", "desk", "orders:0-1,4"]
    assert member_row(member(0, 0, 1, 4, instance="desk")) == row
    assert member_row(member(0))[3:] == ["", "none"]


def test_a_description_says_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_description(group(state="Empty"), BROKERS, [], NO_HISTORY, PLAIN)
    assert capsys.readouterr().out.splitlines() == [
        "billing: Empty, range, coordinator here:9092 (1)",
        "",
        "No members.",
        "",
        "Nothing committed.",
        "",
        "This cluster keeps no history of rebalances.",
    ]


def test_a_program_gets_all_of_a_group() -> None:
    description = description_json(group(READER), BROKERS, PROGRESS[:1], [])
    assert description == {
        "group": "billing",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "coordinator": {"id": 1, "host": "here", "port": 9092},
        "members": [
            {
                "member_id": "reader-0-id",
                "client_id": "reader-0",
                "host": "/127.0.0.1",
                "instance_id": None,
                "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
            }
        ],
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "committed": 40,
                "metadata": "m",
                "log_end": 60,
                "lag": 20,
                "owner": "reader-0-id",
            }
        ],
        "total_lag": 20,
        "rebalances": [],
    }


@pytest.mark.parametrize(
    ("assignment", "text"),
    [(b'{"url": "http://a"}', '{"url": "http://a"}'), (b"\x00\x01\x00", "3 B of its protocol"), (b"", "none")],
)
def test_members_of_other_protocols_are_shown_with_their_assignment(
    assignment: bytes, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = MemberDescription("w-1", "connect-1", "/10.0.0.1", None, [], assignment)
    print_description(group(worker, kind="connect"), BROKERS, [], NO_HISTORY, PLAIN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "billing: Stable, protocol type connect, range, coordinator here:9092 (1)"
    assert lines[2].split() == ["MEMBER", "CLIENT", "ID", "HOST", "INSTANCE", "ID", "ASSIGNMENT"]
    assert lines[3].endswith(text)
