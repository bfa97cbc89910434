"""Message classes: how they are made, what they look like, and that the stub says the same."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from leadline.wire import classes, messages, schema, stubs
from leadline.wire.classes import message_class
from leadline.wire.messages import FetchRequest, FetchResponse, MetadataRequest
from tests.unit.wire.random_messages import MESSAGES, RandomValues


def test_a_new_message_holds_the_defaults_of_the_schema() -> None:
    request = FetchRequest()
    assert (request.cluster_id, request.replica_id, request.max_bytes, request.rack_id) == (None, -1, 0x7FFF_FFFF, "")
    assert request.replica_state == FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert FetchRequest.FetchTopic().topic_id == UUID(int=0)
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None


def test_each_message_has_lists_of_its_own() -> None:
    FetchRequest().topics.append(FetchRequest.FetchTopic())
    assert FetchRequest().topics == []


def test_the_default_of_a_struct_is_shared_and_stays_what_it_is() -> None:
    partition, other = FetchResponse.PartitionData(), FetchResponse.PartitionData()
    assert partition.current_leader is other.current_leader
    with pytest.raises(AttributeError, match=r"FetchResponse\.LeaderIdAndEpoch is the default of many"):
        partition.current_leader.leader_id = 5
    partition.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=5)
    assert other.current_leader.leader_id == -1


def test_messages_are_equal_if_all_fields_are() -> None:
    topics = [FetchRequest.FetchTopic(topic="a", partitions=[FetchRequest.FetchPartition(partition=1)])]
    assert FetchRequest(topics=topics) == FetchRequest(topics=copy.deepcopy(topics))
    assert FetchRequest(topics=topics) != FetchRequest()
    assert FetchRequest() != object()


def test_a_message_shows_what_is_not_default() -> None:
    request = FetchRequest(max_wait_ms=500, topics=[FetchRequest.FetchTopic(topic="a")])
    assert repr(request) == "FetchRequest(max_wait_ms=500, topics=[FetchRequest.FetchTopic(topic='a')])"
    assert repr(request.replica_state) == "FetchRequest.ReplicaState()"


def test_a_message_has_no_other_fields_and_takes_no_positions() -> None:
    with pytest.raises(TypeError):
        FetchRequest(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchRequest("cluster")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchRequest().nonsense = 1  # type: ignore[attr-defined]


def test_messages_can_be_copied_and_sent_to_another_process() -> None:
    message = RandomValues(1).message("FetchResponse", 16)
    assert copy.deepcopy(message) == message
    assert pickle.loads(pickle.dumps(message)) == message


def test_what_is_no_message_is_not_in_the_module() -> None:
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        _ = messages.NoSuchRequest  # type: ignore[attr-defined]
    assert "FetchRequest" in dir(messages)


@pytest.mark.parametrize("name", MESSAGES)
def test_no_field_hides_what_all_classes_have(name: str) -> None:
    taken = set(dir(classes.Message))
    for struct in schema.message(name).structs:
        assert taken.isdisjoint(field.name for field in struct.fields)
        assert struct.name == name or not hasattr(classes.Message, struct.name)
    assert schema.heads()[name].versions == message_class(name).VERSIONS


def test_the_stub_is_current() -> None:
    stub = Path(messages.__file__).with_suffix(".pyi")
    assert stub.read_text() == stubs.stubs(), "python -m leadline.wire.stubs > src/leadline/wire/messages.pyi"


def test_importing_reads_no_message() -> None:
    program = """if True:
        from leadline.wire import apis, classes, codec, frames, schema
        print(classes.message_class.cache_info().currsize, schema.message.cache_info().currsize)
    """
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "0 0\n"
