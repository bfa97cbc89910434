"""The console in Chromium: each view in three sizes and two schemes, each change, the keyboard, live parts.

`make browser-test` runs it. `make test` does not: it needs a browser. LEADLINE_SCREENSHOTS names a directory
for pictures of all pages.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.cli.options import connection_options
from leadline.console.app import application
from leadline.console.page import Console
from leadline.console.protection import AccessRules
from leadline.console.server import bound_socket, listen_address
from leadline.console.session_pool import SessionPool
from tests.browser.chromium import PATIENCE_S, window
from tests.support.cluster_thread import ClusterThread, cluster_thread

EVIL = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
VIEWS = {
    "overview": "/",
    "topics": "/topics?internal=1",
    "topic": "/topics/orders?settings=all",
    "records": "/topics/orders/records",
    "partition": "/topics/orders/0",
    "groups": "/groups",
    "group": "/groups/group?id=billing",
    "reset": "/groups/reset?id=billing&to=latest",
    "transactions": "/transactions",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "reassignments": "/reassignments",
    "plan": "/reassignments/plan?topic=lone&replication_factor=3",
    "pipeline": "/pipeline",
    "not-there": "/topics/nothing",
}
SCREENS = [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360), ("light", 1920)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path_factory.mktemp("browser"), 3) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 2, 3), NewTopic("lone", 1, 1)]).values():
            future.result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        for n in range(40):
            producer.produce("orders", f'{{"order": {n}, "items": ["apple", "pear"]}}', key=f"customer-{n % 5}")
        producer.produce("orders", EVIL, key=EVIL, headers=[(EVIL, EVIL)])
        assert producer.flush(PATIENCE_S) == 0
        properties = {"group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, **properties})
        consumer.subscribe(["orders"])
        consumer.commit(message=consumer.consume(1, PATIENCE_S)[0], asynchronous=False)
        consumer.close()
        shop = {"transactional.id": "shop", "transaction.timeout.ms": "800000"}
        open_transaction = Producer({**shop, "bootstrap.servers": brokers.bootstrap})
        open_transaction.init_transactions(PATIENCE_S)
        open_transaction.begin_transaction()
        open_transaction.produce("lone", "waits")
        assert open_transaction.flush(PATIENCE_S) == 0
        yield brokers
        open_transaction.abort_transaction(PATIENCE_S)


@contextmanager
def served(cluster: ClusterThread, rules: AccessRules) -> Iterator[str]:
    """The address of a console in a thread of this process."""
    options = connection_options().parse_args(["--bootstrap-server", cluster.bootstrap, "--timeout", "60"])
    console = Console(SessionPool(options), rules, cluster.bootstrap)
    sock = bound_socket(listen_address("127.0.0.1:0"))
    server = uvicorn.Server(uvicorn.Config(application(console), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        console.pool.close()
        sock.close()


@pytest.fixture(scope="module")
def console(cluster: ClusterThread) -> Iterator[str]:
    with served(cluster, AccessRules(allow_changes=True)) as address:
        yield address


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_each_view_opens_and_fits_its_window(browser: Any, console: str, scheme: str, width: int) -> None:
    with window(browser, scheme, width) as page:
        for name, address in VIEWS.items():
            page.goto(console + address)
            assert page.locator("h1").count() == 1, name
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.title().endswith(" · Leadline"), name
            if folder := os.environ.get("LEADLINE_SCREENSHOTS"):
                page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png", full_page=True)


def test_everything_can_be_read_without_scripts(browser: Any, console: str) -> None:
    with window(browser, scripts=False) as page:
        page.goto(f"{console}/topics/orders/records")
        assert page.get_by_text("customer-1").count() > 0
        assert page.locator("#live").is_hidden()


def test_a_record_is_never_markup(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/topics/orders/records?text=stolen")
        page.locator(".records summary").first.click()
        assert page.get_by_text("document.title=").first.is_visible()
        assert page.title() == "Records of orders · Leadline"
        assert page.locator("main img").count() == 0


def test_new_records_appear_while_the_page_is_open(browser: Any, console: str, cluster: ClusterThread) -> None:
    with window(browser) as page:
        page.goto(f"{console}/topics/orders/records")
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("orders", "fresh from the sea")
        assert producer.flush(PATIENCE_S) == 0
        page.get_by_text("fresh from the sea").first.wait_for()


def test_a_paused_page_stays_as_it_is_and_an_open_record_stays_open(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/topics/orders/records")
        page.locator(".records summary").first.click()
        record = page.locator(".records details[open]").first.get_attribute("id")
        page.get_by_text("as of ").wait_for()
        assert page.locator(f"#{record}[open]").count() == 1
        page.get_by_role("button", name="Live").click()
        assert page.locator("#live").get_attribute("aria-pressed") == "false"


def test_the_keyboard_reaches_content_and_fields_and_shows_where_it_is(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/topics")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == "search"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_lag_of_a_group_becomes_a_line(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/groups/group?id=billing")
        page.locator("svg.lag-chart").wait_for()


def test_a_topic_is_created_written_to_changed_and_deleted(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/topics")
        page.get_by_label("Name", exact=True).fill("fresh")
        page.get_by_label("Partitions").fill("1")
        page.get_by_role("button", name="Create").click()
        page.get_by_text("Created topic fresh.").wait_for()
        page.get_by_role("link", name="fresh", exact=True).click()
        page.get_by_role("link", name="Records").click()
        page.get_by_label("Value", exact=True).fill("first record")
        page.get_by_role("button", name="Write").click()
        page.get_by_text("Stored in partition 0 at offset 0.").wait_for()
        page.get_by_role("link", name="fresh", exact=True).click()
        page.get_by_label("Setting", exact=True).fill("retention.ms")
        page.get_by_label("New value").fill("60000")
        page.get_by_role("button", name="Set it").click()
        page.get_by_text("Set retention.ms to 60000.").wait_for()
        page.get_by_label("Setting", exact=True).fill("retention.ms")
        page.get_by_role("button", name="Use the default again").click()
        page.get_by_text("retention.ms has its default again.").wait_for()
        page.get_by_label("New number of partitions").fill("2")
        page.get_by_role("button", name="Add them").click()
        page.get_by_text("fresh now has 2 partitions, up from 1.").wait_for()
        page.get_by_label("Type “fresh”").fill("fresh")
        page.get_by_role("button", name="Delete").click()
        page.get_by_text("Deleted topic fresh.").wait_for()


def test_offsets_are_reset_and_restored_and_the_group_deleted(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/groups/group?id=billing")
        page.get_by_label("Continue at").select_option("latest")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_text("Nothing has been changed.").wait_for()
        page.get_by_role("button", name="Reset the offsets").click()
        page.get_by_text("Reset billing.").wait_for()
        page.get_by_role("link", name="Undo the last reset").click()
        page.get_by_role("button", name="Undo the reset").click()
        page.get_by_text("The reset of billing is undone.").wait_for()
        page.get_by_label("Type “billing”").fill("billing")
        page.get_by_role("button", name="Delete").click()
        page.get_by_text("Deleted group billing.").wait_for()


def test_a_partition_is_moved_and_a_broker_changed(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/reassignments")
        page.get_by_label("Topic").fill("lone")
        page.get_by_label("Replicas of each").fill("3")
        page.get_by_role("button", name="Show what would move").click()
        page.get_by_role("button", name="Move them").click()
        page.get_by_text("Started: 1 partition changes").wait_for()
        page.get_by_text("No partition is moving.").wait_for()
        page.get_by_role("button", name="Remove the throttles").click()
        page.get_by_text("Removed the throttles").wait_for()
        page.goto(f"{console}/brokers")
        page.get_by_role("button", name="Elect preferred leaders").click()
        page.get_by_text("partitions have another leader now").wait_for()
        page.goto(f"{console}/brokers/1")
        page.get_by_label("Setting", exact=True).fill("log.cleaner.threads")
        page.get_by_label("New value").fill("2")
        page.get_by_role("button", name="Set it").click()
        page.get_by_text("Set log.cleaner.threads to 2.").wait_for()


def test_an_open_transaction_is_shown_with_what_it_blocks(browser: Any, console: str) -> None:
    with window(browser) as page:
        page.goto(f"{console}/transactions")
        assert page.get_by_text("lone-0: 1 record waits").is_visible()
        assert page.get_by_text("shop, Ongoing").is_visible()


def test_a_read_only_console_offers_no_change(browser: Any, cluster: ClusterThread) -> None:
    with served(cluster, AccessRules()) as address, window(browser) as page:
        for view in ("/topics", "/topics/orders", "/topics/orders/records", "/brokers", "/reassignments"):
            page.goto(address + view)
            assert page.locator("form[method=post]").count() == 0, view


def test_a_login_opens_the_console(browser: Any, cluster: ClusterThread) -> None:
    with served(cluster, AccessRules(user="anna", password="secret")) as address:
        context = browser.new_context(http_credentials={"username": "anna", "password": "secret"})
        page = context.new_page()
        page.goto(f"{address}/topics")
        assert page.locator("h1").text_content() == "Topics"
        context.close()


def test_a_failover_is_seen_on_the_open_page(browser: Any, console: str, cluster: ClusterThread) -> None:
    """The last test: one broker less."""
    with window(browser) as page:
        page.goto(f"{console}/topics/orders/0")
        leader = int(page.locator(".replication .name").first.text_content().removeprefix("broker "))
        assert page.get_by_text(f"Broker {leader} fails. It leads").is_visible()
        cluster.stop_broker(leader)
        page.get_by_text("in epoch 2", exact=False).first.wait_for()
        assert page.locator(".timeline li").count() >= 2
