"""What a Fetch asks for: the version decides who fetches, and who fetches decides what may be read."""

import pytest

from leadline.api.fetch_params import FetchParams, forgotten_partitions, named_positions
from leadline.config.broker import BrokerConfig
from leadline.config.replication import RACK_AWARE
from leadline.log.log import Isolation
from leadline.model import NO_ID
from leadline.wire.messages import FetchRequest


def params(version: int = 11, *, config: BrokerConfig | None = None, **fields: object) -> FetchParams:
    request = FetchRequest(max_bytes=1000)
    for name, value in fields.items():
        setattr(request, name, value)
    return FetchParams(request, version, config or BrokerConfig())


@pytest.mark.parametrize(
    ("replica", "level", "isolation"),
    [(-1, 0, Isolation.HIGH_WATERMARK), (-1, 1, Isolation.COMMITTED), (3, 0, Isolation.LOG_END)],
)
def test_a_follower_reads_up_to_the_end_and_a_consumer_what_is_committed(
    replica: int, level: int, isolation: Isolation
) -> None:
    fetch = params(replica_id=replica, isolation_level=level)
    assert (fetch.isolation, fetch.is_follower) == (isolation, replica >= 0)


@pytest.mark.parametrize(("version", "replica"), [(14, 5), (15, 7)])
def test_the_replica_state_names_the_follower_from_version_15_on(version: int, replica: int) -> None:
    state = FetchRequest.ReplicaState(replica_id=7, replica_epoch=9)
    assert params(version, replica_id=5, replica_state=state).replica == replica


@pytest.mark.parametrize(("version", "replica", "only_leader"), [(10, -1, True), (11, -1, False), (11, 3, True)])
def test_consumers_read_from_followers_from_version_11_on(version: int, replica: int, only_leader: bool) -> None:
    assert params(version, replica_id=replica).only_leader is only_leader


def test_the_broker_limits_the_bytes_of_a_consumer_and_not_those_of_a_follower() -> None:
    config = BrokerConfig(fetch_max_bytes=10)
    assert params(config=config, replica_id=-1).max_bytes == 10
    assert params(config=config, replica_id=3).max_bytes == 1000


@pytest.mark.parametrize(
    ("selector", "replica", "rack"), [(RACK_AWARE, -1, "here"), (RACK_AWARE, 3, ""), (None, -1, "")]
)
def test_the_rack_counts_for_a_consumer_where_replicas_are_selected_by_rack(
    selector: str | None, replica: int, rack: str
) -> None:
    config = BrokerConfig(replica_selector_class=selector)
    assert params(config=config, replica_id=replica, rack_id="here").rack == rack


def test_named_and_forgotten_partitions_go_by_topic_and_number() -> None:
    topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition(partition=4, fetch_offset=9)])
    request = FetchRequest(
        topics=[topic], forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="u", partitions=[1, 2])]
    )
    assert [(*key, position.fetch_offset) for key, position in named_positions(request).items()] == [
        ("t", NO_ID.bytes, 4, 9)
    ]
    assert list(forgotten_partitions(request)) == [("u", NO_ID.bytes, 1), ("u", NO_ID.bytes, 2)]
