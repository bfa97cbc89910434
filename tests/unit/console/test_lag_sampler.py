"""The lag of groups: in their list, and over time before a page is opened."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from leadline.admin.errors import Failure
from leadline.cli.options import connection_options
from leadline.console.app import application
from leadline.console.lag_sampler import LagSampler, sample
from leadline.console.page import Console
from leadline.console.protection import AccessRules
from leadline.console.session_pool import SessionPool
from leadline.testing import LocalCluster
from tests.support.web_client import web_client

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One broker, and the group billing, which has read 2 of 5 records."""
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        cluster.produce("orders", list("abcde"))
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        yield cluster


@pytest.fixture
def console(cluster: LocalCluster) -> Iterator[Console]:
    options = connection_options().parse_args(["--bootstrap-server", cluster.bootstrap_servers, "--timeout", "60"])
    pool = SessionPool(options)
    yield Console(pool, AccessRules(), cluster.bootstrap_servers)
    pool.close()


def test_the_list_of_groups_has_their_lag(console: Console) -> None:
    with web_client(application(console)) as client:
        page = client.get("/groups")
    (row,) = [element for element in page.all("tr") if "billing" in element.text]
    assert "3" in row.text.split()


def test_lag_is_sampled_before_a_page_is_opened(console: Console) -> None:
    sample(console)
    ((_, lag), *_) = console.lag.add("billing", 0, 0)
    assert lag == 3


def test_the_sampler_goes_on_after_an_error(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Console] = []

    def failing_once(sampled: Console) -> None:
        calls.append(sampled)
        if len(calls) == 1:
            raise Failure("no broker answers")

    monkeypatch.setattr("leadline.console.lag_sampler.sample", failing_once)
    deadline = time.monotonic() + PATIENCE_S
    with LagSampler(console, interval_s=0.001):
        while len(calls) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert len(calls) >= 3
