"""`leadline groups` of every protocol type: those of Kafka Connect and of schema registries too."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.wire.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from tests.conformance.both import Connection
from tests.support.broker import RunningBroker
from tests.support.broker import leadline as started
from tests.support.commands import leadline, lines

JOIN, SYNC = 5, 3  # versions
ASSIGNMENTS = {"connect": b"\x00\x01\x00\x00\x00\x08worker-1", "sr": b'{"error":0,"master":"sr-1"}'}


def join(broker: RunningBroker, group: str, protocol_type: str, assignment: bytes) -> Connection:
    """A member that leads its group, and has given itself this."""
    connection = Connection("localhost", broker.port, f"{protocol_type}-1")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="v0", metadata=b"")],
    )
    request.member_id = connection.ask(JoinGroupResponse, request, JOIN).member_id
    joined = connection.ask(JoinGroupResponse, request, JOIN)
    assert joined.error_code == 0
    own_assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
    sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[own_assignment]
    )
    assert connection.ask(SyncGroupResponse, sync, SYNC).error_code == 0
    return connection


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with started(folder / "data", group_initial_rebalance_delay_ms=0) as running:
        leadline(running, "topics", "create", "read")
        leadline(running, "consume", "read", "--from-beginning", "--to-end", "--group", "billing")
        members = [join(running, f"{kind}-cluster", kind, assignment) for kind, assignment in ASSIGNMENTS.items()]
        yield running
        for member in members:
            member.socket.close()


def test_groups_of_all_protocol_types_are_listed_with_their_type(broker: RunningBroker) -> None:
    rows = [line.split()[:3] for line in lines(broker, "groups", "list")[1:]]
    assert rows == [
        ["billing", "Empty", "consumer"],
        ["connect-cluster", "Stable", "connect"],
        ["sr-cluster", "Stable", "sr"],
    ]
    groups = [json.loads(line) for line in lines(broker, "groups", "list", "--state", "Stable", "--json")]
    assert [(group["group"], group["protocol_type"]) for group in groups] == [
        ("connect-cluster", "connect"),
        ("sr-cluster", "sr"),
    ]
    assert groups[0]["coordinator"] == {"id": 1001, "host": "localhost", "port": broker.port}


def test_a_group_of_another_protocol_type_is_described(broker: RunningBroker) -> None:
    head, _, heads, member, *_ = lines(broker, "groups", "describe", "connect-cluster")
    assert head.startswith("connect-cluster: Stable, protocol type connect, v0, coordinator localhost:")
    assert heads.split()[-1] == "ASSIGNMENT"
    assert "connect-1" in member
    assert member.endswith("14 B of its protocol")
    assert lines(broker, "groups", "describe", "sr-cluster")[3].endswith('{"error":0,"master":"sr-1"}')
    groups = [json.loads(line) for line in lines(broker, "groups", "describe", "--json")]
    assert [group["protocol_type"] for group in groups] == ["consumer", "connect", "sr"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("describe conect-cluster", "there is no group conect-cluster (did you mean connect-cluster?)"),
        ("delete connect-cluster", "group connect-cluster is active and cannot be deleted until its members stop"),
        ("reset-offsets sr-cluster --topic read --to-latest", "group sr-cluster is active and cannot be reset"),
    ],
)
def test_what_cannot_be_done_with_a_group_is_one_line(broker: RunningBroker, call: str, message: str) -> None:
    _, err = leadline(broker, "groups", *call.split(), code=1)
    (line,) = err.splitlines()
    assert line.startswith(f"leadline: {message}")
