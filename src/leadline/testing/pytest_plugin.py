"""The fixtures `kafka` and `kafka_cluster` for pytest. What the brokers saw is in the report of a test that fails.

    kafka            a cluster of one broker that all tests of a run share; its `topic` gives names of the test's own
    kafka_cluster    a cluster of three brokers for this test alone

`@pytest.mark.kafka(isolated=..., brokers=..., settings=..., seed=..., snapshot=...)` changes that for a test, and the
options --kafka-isolated and --kafka-cluster-shared for a run. Each process of pytest-xdist has clusters of its own, on
ports of its own.

Nothing of a broker is imported before a test asks for one.
"""

import re
import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leadline.testing.cluster import LocalCluster

MARK = "kafka"
ARGUMENTS = {"isolated", "brokers", "settings", "seed", "snapshot"}
BROKERS = 3  # of kafka_cluster
USED = pytest.StashKey["list[LocalCluster]"]()  # the clusters of a test
SHARED = pytest.StashKey["SharedClusters"]()  # of a run
MOST_NAME_LETTERS = 100  # of a test, in a topic


class SharedClusters:
    """The clusters that tests of a run share, by their number of brokers. Each starts when it is first needed."""

    def __init__(self) -> None:
        self._clusters: dict[int, LocalCluster] = {}

    def get(self, brokers: int) -> "LocalCluster":
        if brokers not in self._clusters:
            cluster = self._clusters[brokers] = _new_cluster(brokers, {})
            cluster.start()
        return self._clusters[brokers]

    def close(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka clusters inside tests (leadline)")
    group.addoption("--kafka-isolated", action="store_true", help="give each test that uses `kafka` its own cluster")
    group.addoption(
        "--kafka-cluster-shared", action="store_true", help="let all tests that use `kafka_cluster` share one cluster"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SHARED] = SharedClusters()
    config.addinivalue_line(
        "markers", "kafka(isolated, brokers, settings, seed, snapshot): the cluster that the fixture gives to this test"
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    if (shared := config.stash.get(SHARED, None)) is not None:
        shared.close()


def _arguments(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the nearest mark."""
    mark = request.node.get_closest_marker(MARK)
    if mark is None:
        return {}
    if mark.args or (unknown := mark.kwargs.keys() - ARGUMENTS):
        wrong = ", ".join(map(repr, mark.args)) if mark.args else ", ".join(sorted(unknown))
        raise pytest.UsageError(f"@pytest.mark.kafka has no argument {wrong}: it has {', '.join(sorted(ARGUMENTS))}")
    return dict(mark.kwargs)


def _new_cluster(brokers: int | None, arguments: dict[str, Any]) -> "LocalCluster":
    from leadline.testing.cluster import LocalCluster

    return LocalCluster(
        brokers, arguments.get("settings"), seed=arguments.get("seed"), snapshot=arguments.get("snapshot")
    )


def _clusters(request: pytest.FixtureRequest, brokers: int, *, is_shared: bool) -> "Iterator[LocalCluster]":
    """The cluster of one test. A shared one is put in order afterwards, and loses the topics of the test."""
    arguments = _arguments(request)
    is_special = bool(arguments.keys() - {"isolated"})
    if arguments.get("isolated", not is_shared) or is_special:
        default = None if "snapshot" in arguments else brokers
        with _new_cluster(arguments.get("brokers", default), arguments) as cluster:
            _use(request, cluster)
            yield cluster
        return
    cluster = request.config.stash[SHARED].get(brokers)
    before = set(cluster.topics)
    _use(request, cluster)
    yield cluster
    cluster.recover()
    if made := set(cluster.topics) - before:
        cluster.delete_topics(*sorted(made))


def _use(request: pytest.FixtureRequest, cluster: "LocalCluster") -> None:
    cluster.topic_suffix = _suffix(request)
    request.node.stash.setdefault(USED, []).append(cluster)


def _suffix(request: pytest.FixtureRequest) -> str:
    """Unique, and the name of the test to a reader."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:MOST_NAME_LETTERS].strip("-.")
    return f"{name}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> "Iterator[LocalCluster]":
    """A Kafka of one broker. Use `kafka.topic("orders")` for a topic that no other test uses."""
    yield from _clusters(request, 1, is_shared=not request.config.getoption("--kafka-isolated"))


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[LocalCluster]":
    """A Kafka of three brokers, for this test alone unless --kafka-cluster-shared is given."""
    yield from _clusters(request, BROKERS, is_shared=request.config.getoption("--kafka-cluster-shared"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and report.when == "call":
        for cluster in item.stash.get(USED, []):
            report.sections.append(("what the Kafka brokers saw", cluster.story()))
    return report
