"""A broker that is away, on the pages of the console."""

from leadline.cli.options import connection_options
from leadline.console.app import application
from leadline.console.page import Console
from leadline.console.protection import AccessRules
from leadline.console.session_pool import SessionPool
from leadline.testing import LocalCluster
from tests.support.web_client import web_client


def test_a_broker_that_is_away_is_named_and_has_a_page() -> None:
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2)
        gone = next(id for id in cluster.ids if id != cluster.controller.id)
        options = connection_options().parse_args(["--bootstrap-server", cluster.bootstrap_servers, "--timeout", "60"])
        cluster.broker(gone).stop()
        text = f"Broker {gone} is away: it is not registered, and has 2 replicas."
        console = Console(SessionPool(options), AccessRules(), cluster.bootstrap_servers)
        with web_client(application(console)) as client:
            cluster.wait_for(lambda: text in client.get("/").text, "the overview names the broker")
            brokers, page = client.get("/brokers"), client.get(f"/brokers/{gone}")
        console.pool.close()
    (row,) = [element for element in brokers.all("tr") if "away" in element.text]
    assert row.text.split()[0].startswith(str(gone))
    assert (page.status, text in page.text) == (200, True)
