"""What operators get: docs/METRICS.md, the dashboard and the alerts name metrics that a real broker has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from leadline.metrics.families import Family
from leadline.metrics.metrics_server import MetricsServer
from leadline.metrics.scrape import FAMILY_SETS, BrokerMetrics
from leadline.metrics.sources import metrics_sources
from leadline.model import TopicPartition
from leadline.runtime.selector import TimedSelector
from leadline.spark.jobs import job_metrics
from leadline.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from tests.support.http_client import get
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.kafka_mbeans import exported

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD, RULES = ROOT / "ops/grafana/leadline.json", ROOT / "ops/prometheus/rules.yml"

METRIC = re.compile(r"\b(?:kafka|leadline|process)_[a-z0-9_]+\b")
RECORDED = re.compile(r"\b[a-z]+:[a-z]+\b")

# Present only where there is something to count: a follower, a session with ZooKeeper, a quota, a login that failed.
SOMETIMES = re.compile(r"kafka_server_(sessionexpirelistener|quota|fetcherlagmetrics)_|leadline_quota_")


def expressions(path: Path) -> Iterator[str]:
    if path is DASHBOARD:
        document = json.loads(path.read_text())
        yield from (target["expr"] for panel in document["panels"] for target in panel.get("targets", ()))
        yield from (variable["query"] for variable in document["templating"]["list"])
    else:
        yield from re.findall(r"expr: (?:>-\n)?((?:.|\n +(?!\w+:))+)", path.read_text())


def families() -> list[Family]:
    return [family for families in FAMILY_SETS for family in families.families]


@pytest.fixture(scope="module")
def scraped_names() -> set[str]:
    """The metrics of a broker that has served a producer and a group."""
    names: set[str] = set()

    async def scrape(client: InMemoryClient) -> None:
        tp = TopicPartition("orders", 0)
        await client.create(tp.topic)
        await client.produce(tp)
        await client.produce(TopicPartition("nowhere", 0))
        await client.create("__consumer_offsets")
        await commit(client, tp)
        sources = metrics_sources(client.broker, TimedSelector())
        server = MetricsServer(BrokerMetrics(sources), client.broker.ports.network)
        address = server.listen("127.0.0.1", 0)
        server.start()
        text = (await get(client.broker.ports.network, address, "/metrics")).body.decode()
        server.stop()
        names.update(sample.name for family in text_string_to_metric_families(text) for sample in family.samples)

    run(scrape)
    return names


async def commit(client: InMemoryClient, tp: TopicPartition) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=tp.topic, partitions=[partition])
    await client.send(OffsetCommitRequest(group_id="billing", topics=[topic]), OffsetCommitResponse, 8)


@pytest.mark.parametrize("path", [DASHBOARD, RULES], ids=["dashboard", "rules"])
def test_each_metric_of_dashboard_and_alerts_is_one_of_a_real_broker(path: Path, scraped_names: set[str]) -> None:
    named = {name for expression in expressions(path) for name in METRIC.findall(expression)}
    assert len(named) > 20
    existing = {family.name for family in families()}
    assert named <= existing
    assert {name for name in named if not SOMETIMES.match(name)} <= scraped_names


def test_recorded_metrics_are_recorded() -> None:
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text()))
    used = {name for expression in expressions(RULES) for name in RECORDED.findall(expression)}
    assert used == recorded


def test_each_alert_says_how_urgent_it_is_and_what_is_wrong() -> None:
    alerts = re.split(r"\n *- alert: ", RULES.read_text())[1:]
    assert len(alerts) > 15
    for alert in alerts:
        assert re.search(r"labels: \{severity: (critical|warning)\}", alert), alert
        assert "summary:" in alert, alert


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & own, panel["title"]
        cells |= own


def test_the_page_has_a_row_for_each_metric_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([CG]) \| (.*) \| (.*) \|$", (ROOT / "docs/METRICS.md").read_text(), re.MULTILINE
    )
    expected = [
        (family.name, family.kind.value[0].upper(), ", ".join(f"`{label}`" for label in family.labels), family.help)
        for family in [*families(), *job_metrics.FAMILIES.families]
    ]
    assert rows == expected


# Not by these rules: sums for averages, names of kafka_exporter, of older rules and of Strimzi's.
OTHER_NAMES = re.compile(
    r"\w+ms_sum|kafka_(consumergroup|topic_partition)_\w+|\w+avgidle_percent|kafka_server_socket_server_metrics_\w+"
)
WITHOUT_LABEL = {"kafka_log_logmanager_remaininglogstorecover": ("dir",)}  # one figure for all directories
WITHOUT_PERCENTILES = {"kafka_controller_controllerstats_leaderelectionrateandtimems"}


def test_names_and_labels_are_what_the_rules_of_the_jmx_exporter_make_of_kafkas() -> None:
    own = {family.name: family.labels for family in families() if family.name.startswith("kafka_")}
    by_the_rules = {metric.name: metric.labels for metric in exported() if metric.name not in WITHOUT_PERCENTILES}
    assert {name: labels for name, labels in own.items() if not OTHER_NAMES.fullmatch(name)} == {
        name: () if labels == WITHOUT_LABEL.get(name) else labels for name, labels in by_the_rules.items()
    }
