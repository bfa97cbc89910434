"""Each request in each version, well-formed and with each field at its limits: Leadline's answer is Kafka's.

What differs all the same is listed in differences.toml. On CI all cases of the newest versions are played and some of
the older ones; with --long all.

Requests between brokers come from a controller or a broker that is none: they are refused. Others would take the broker
apart.
"""

from collections.abc import Iterator

import pytest

from leadline.api import TABLE
from leadline.wire import messages as m
from tests.conformance.both import SETTINGS, Both, Side
from tests.conformance.differential import Player, cases, difference_list
from tests.conformance.request_bases import BASES, READ, RECORDS_MS, TOPICS, Target
from tests.support.broker import leadline
from tests.support.logs import batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

GROUP_KEY, TRANSACTION_KEY = 0, 1


BETWEEN_BROKERS = (
    "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition", "AllocateProducerIds",
)  # fmt: skip


@pytest.fixture(scope="module")
def player(both: Both) -> Iterator[Player]:
    for topic in TOPICS:
        both.create(topic, partitions=3, retention_ms=-1)
    for timestamp in (RECORDS_MS, RECORDS_MS + 1000):
        both.produce(READ, bytes(batch(2, timestamp=timestamp)))
    both.map(_has_coordinators)
    both.map(_is_in_the_first_directory)
    player = Player(both)
    yield player
    player.close()
    both.map(_restore_settings)


@pytest.fixture(scope="module")
def cluster_player(player: Player, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """Beside Kafka a Leadline that has ZooKeeper: a single node refuses what only brokers send."""
    path, kafka = tmp_path_factory.mktemp("limits"), player.both.kafka
    settings = {**SETTINGS, "zookeeper.connect": f"{player.both.zookeeper}/limits"}
    with leadline(path / "leadline", **settings) as us:
        ours = Side("Leadline", "localhost", us.port, [str(path / "leadline")])
        assert Target(ours, 12, READ).own_topic == READ  # creates it
        in_cluster = Player(Both(kafka, ours))
        yield in_cluster
        in_cluster.close()
        ours.connection.close()


def _has_coordinators(side: Side) -> None:
    for key_type in (GROUP_KEY, TRANSACTION_KEY):
        request = m.FindCoordinatorRequest(key="limits", key_type=key_type)
        until(lambda request=request: side.ask(m.FindCoordinatorResponse, request, 2).error_code == 0)  # type: ignore[misc]


def _restore_settings(side: Side) -> None:
    """The cases that do more than validate change the broker."""
    kind = m.IncrementalAlterConfigsRequest
    reset = kind.AlterableConfig(name="log.cleaner.threads", config_operation=1, value=None)
    resources = [kind.AlterConfigsResource(resource_type=4, resource_name=name, configs=[reset]) for name in ("", "1")]
    answer = side.ask(m.IncrementalAlterConfigsResponse, kind(resources=resources), 1)
    assert {response.error_code for response in answer.responses} == {0}


def _is_in_the_first_directory(side: Side) -> None:
    """The partition that DescribeLogDirs is asked for: in which directory it was created is chance."""
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=READ, partitions=[0])
    move = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=side.dirs[0], topics=[topic])
    side.ask(m.AlterReplicaLogDirsResponse, m.AlterReplicaLogDirsRequest(dirs=[move]), 2)
    described = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=READ, partitions=[0])

    def directories() -> list[str]:
        answer = side.ask(m.DescribeLogDirsResponse, m.DescribeLogDirsRequest(topics=[described]), 4)
        return [result.log_dir for result in answer.results if result.topics]

    until(lambda: directories() == [side.dirs[0]])


def test_no_request_is_left_out() -> None:
    assert {getattr(m, f"{name}Request").API_KEY for name in BASES} == TABLE.keys()


@pytest.mark.parametrize("request_name", [name for name in BASES if name not in BETWEEN_BROKERS])
def test_the_answers_to_every_variant_are_kafkas(player: Player, request_name: str, is_long: bool) -> None:
    check(player, request_name, is_long)


@pytest.mark.parametrize("request_name", BETWEEN_BROKERS)
def test_refusals_of_what_brokers_send_are_kafkas(cluster_player: Player, request_name: str, is_long: bool) -> None:
    check(cluster_player, request_name, is_long)


def check(player: Player, request_name: str, is_long: bool) -> None:
    listed, needed, unexpected = difference_list().differences, set[int](), []
    for case in cases(player.both, request_name, all_versions=is_long):
        for difference in player.differences(case):
            entries = [number for number, entry in enumerate(listed) if entry.covers(case, difference)]
            needed.update(entries)
            if not entries:
                unexpected.append(f"{case} |{difference}")
    assert not unexpected, "\n".join(unexpected)
    not_needed = [
        entry for number, entry in enumerate(listed) if entry.example == request_name and number not in needed
    ]
    assert not not_needed
