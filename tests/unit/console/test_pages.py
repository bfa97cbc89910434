"""The pages of the console, for a broker in this process: each view opened, each link followed, each change made."""

import argparse
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.cli.options import connection_options
from leadline.console.app import CHANGES, VIEWS, application
from leadline.console.page import Console, TableLocation
from leadline.console.protection import AccessRules
from leadline.console.session_pool import SessionPool
from tests.support.cluster_thread import cluster_thread
from tests.support.web_client import Element, WebClient, WebPage, web_client

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PATIENCE_S = 120


def options(bootstrap: str) -> argparse.Namespace:
    return connection_options().parse_args(["--bootstrap-server", bootstrap, "--timeout", "60"])


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the topic orders, whose records try to be markup, and the group billing, which has read two."""
    with cluster_thread(tmp_path_factory.mktemp("console")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            future.result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for value in (EVIL, '{"n": 3}', "plain"):
            producer.produce("orders", value, key=EVIL, partition=0, headers=[(EVIL, EVIL)])
        assert producer.flush(PATIENCE_S) == 0
        properties = {"group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **properties})
        consumer.subscribe(["orders"])
        records = consumer.consume(1, PATIENCE_S)
        consumer.commit(message=records[0], asynchronous=False)
        consumer.close()
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def browser(bootstrap: str) -> Iterator[WebClient]:
    """It may make changes."""
    pool = SessionPool(options(bootstrap))
    console = Console(pool, AccessRules(allow_changes=True), bootstrap, tables=[TableLocation("delta", "/nowhere")])
    with web_client(application(console)) as client:
        yield client
    pool.close()


def complaints(page: WebPage) -> list[str]:
    """Rules that a page breaks: what a screen reader, a keyboard and the policy need."""
    elements, broken = page.elements, list[str]()

    def named(tag: str) -> list[Element]:
        return [element for element in elements if element.tag == tag and not element.is_in("svg")]

    broken += [f"{len(named(tag))} elements {tag}" for tag in ("h1", "main", "title") if len(named(tag)) != 1]
    if named("html")[0]["lang"] != "en":
        broken.append("no language")
    ids = Counter(element["id"] for element in elements if element["id"])
    broken += [f"{count} elements with the id {id}" for id, count in ids.items() if count > 1]
    for element in elements:
        if any(name == "style" or name.startswith("on") for name in element.attributes):
            broken.append(f"inline style or script: {element.attributes}")
        is_field = element.tag in ("input", "select", "textarea") and element["type"] != "hidden"
        if is_field and not element.is_in("label"):
            broken.append(f"no label: {element.attributes}")
        if element.tag == "svg" and not (element["aria-hidden"] or element["aria-label"] or element["aria-labelledby"]):
            broken.append("a picture without a text")
        if element.tag in ("button", "a", "summary", "label") and not element.text.strip():
            broken.append(f"{element.tag} without a text: {element.attributes}")
        if element.tag == "th" and element["scope"] not in ("col", "row"):
            broken.append("a head without a scope")
        if "scroll" in element.classes and not (element["tabindex"] == "0" and element["aria-label"]):
            broken.append("a box that scrolls, but not with the keyboard")
        if element.tag == "form" and element["method"] == "post" and element["action"] == "":
            broken.append("a form without an action")
    broken += ["a script in the page" for element in named("script") if not element["src"] or element.text]
    return broken


def test_every_link_leads_to_a_page_and_every_page_keeps_the_rules(browser: WebClient) -> None:
    waiting, opened = ["/", "/groups/reset?id=billing&to=earliest", "/reassignments/plan?topic=orders"], set[str]()
    while waiting:
        address = waiting.pop()
        if address in opened:
            continue
        opened.add(address)
        page = browser.get(address)
        is_undo = address.startswith("/groups/undo")  # nothing was reset yet, which its page says
        assert page.status == (400 if is_undo else 200), f"{address}: {page.html}"
        assert complaints(page) == [], address
        assert EVIL not in page.html
        assert "<img" not in page.html
        links = [element["href"] for element in page.all("a") if not element["href"].startswith("#")]
        assert all(link.startswith("/") for link in links), links
        waiting += links
    paths = {address.partition("?")[0] for address in opened}
    assert len(paths & VIEWS.keys()) == sum("{" not in path for path in VIEWS), VIEWS.keys() - paths
    assert {"/topics/orders", "/topics/orders/records", "/topics/orders/1", "/brokers/0"} <= paths


def test_what_is_not_there_is_said_on_a_page(browser: WebClient) -> None:
    for address, status, text in (
        ("/nothing", 404, "There is no such page"),
        ("/topics/order", 404, "did you mean orders"),
        ("/topics/orders/7", 404, "orders has the partitions 0 to 1"),
        ("/groups/group?id=biling", 404, "did you mean billing"),
        ("/brokers/9", 404, "the only broker is 0"),
        ("/topics/orders/records?start=offset&position=x", 400, "must be a number"),
        ("/topics/orders/records?start=time&position=x", 400, "is not a time"),
        ("/topics/orders/records?value_format=xml", 400, "there is no format xml"),
        ("/topics/orders/0?fail=7", 400, "broker 7 has no replica"),
        ("/groups/reset?id=billing&to=", 400, "choose where the group continues"),
        ("/reassignments/plan?brokers=8", 400, "the only broker is 0"),
    ):
        page = browser.get(address)
        assert (page.status, text.lower() in page.text.lower()) == (status, True), (address, page.text)
        assert complaints(page) == []


def test_records_are_read_from_an_offset_a_time_a_key_or_a_text_on(browser: WebClient) -> None:
    def shown(**query: str) -> list[str]:
        address = "/topics/orders/records?" + "&".join(f"{name}={value}" for name, value in query.items())
        page = browser.get(address)
        assert page.status == 200, page.text
        rows = [element["id"] for element in page.all("details") if element["id"].startswith("record-0-")]
        return [row.removeprefix("record-0-") for row in rows]

    assert sorted(shown(partition="0")) == ["0", "1", "2"]
    assert shown(start="offset", position="1", partition="0") == ["1", "2"]
    assert shown(start="time", position="-1h", partition="0") == ["0", "1", "2"]
    assert shown(start="earliest", partition="0", count="1") == ["0"]
    assert shown(start="earliest", partition="0", text="plain") == ["2"]
    assert shown(start="earliest", partition="0", key="nobody") == []
    assert shown(start="earliest", at="0:2") == ["2"]
    assert shown(partition="0", text="plain", isolation="read_committed") == ["2"]


def test_a_search_that_found_enough_continues_where_it_stopped(browser: WebClient) -> None:
    page = browser.get("/topics/orders/records?start=earliest&partition=0&count=1")
    (more,) = [element["href"] for element in page.all("a") if element.text.strip() == "Continue"]
    assert "at=0%3A1" in more


def test_a_record_is_written_with_key_and_headers(browser: WebClient) -> None:
    form = {"key": "anna", "value": '{"fresh": true}', "format": "json", "headers": "trace: 7", "to_partition": "1"}
    page = browser.change("/topics/orders/records", "/topics/orders/records", **form)
    assert "Stored in partition 1 at offset 0." in page.text
    assert '"fresh": true' in page.text
    for wrong, text in (
        ({"value": "{", "format": "json"}, "is not json"),
        ({"value": "0", "format": "hex"}, "is not hex"),
        ({"value": "x", "headers": "none"}, "a header is NAME: VALUE"),
        ({"value": "x", "to_partition": "9"}, "has the partitions 0 to 1"),
    ):
        refused = browser.change("/topics/orders/records", "/topics/orders/records", **wrong)
        assert (refused.status, text in refused.text) == (400, True), refused.text


def test_a_topic_is_created_changed_and_deleted(browser: WebClient) -> None:
    assert "Created topic fresh." in browser.change("/topics", "/topics", name="fresh", partitions="1").text
    again = browser.change("/topics", "/topics", name="fresh")
    assert (again.status, "TOPIC_ALREADY_EXISTS" in again.text) == (502, True)
    changed = browser.change(
        "/topics/fresh", "/topics/fresh/settings", setting="retention.ms", value="9000", action="set"
    )
    assert "Set retention.ms to 9000." in changed.text
    assert "set for this topic" in changed.text
    refused = browser.change("/topics/fresh", "/topics/fresh/settings", setting="retention.m", value="1")
    assert "did you mean retention.ms" in refused.text
    back = browser.change("/topics/fresh", "/topics/fresh/settings", setting="retention.ms", action="delete")
    assert "has its default again" in back.text
    grown = browser.change("/topics/fresh", "/topics/fresh/partitions", partitions="3")
    assert "now has 3 partitions, up from 1" in grown.text
    assert "can only grow" in browser.change("/topics/fresh", "/topics/fresh/partitions", partitions="2").text
    assert "type its name" in browser.change("/topics/fresh", "/topics/fresh/delete", confirm="frsh").text
    assert "Deleted topic fresh." in browser.change("/topics/fresh", "/topics/fresh/delete", confirm="fresh").text


def test_a_reset_is_shown_made_and_undone(browser: WebClient) -> None:
    plan = browser.get("/groups/reset?id=billing&to=latest")
    assert "Nothing has been changed" in plan.text
    assert "skips 2" in plan.text
    done = browser.change("/groups/reset?id=billing&to=latest", "/groups/reset", id="billing", to="latest")
    assert "Reset billing. Of the records, 2 will be skipped." in done.text
    undo = browser.get("/groups/undo?id=billing")
    assert "reads 2 again" in undo.text
    undone = browser.change("/groups/undo?id=billing", "/groups/undo", id="billing")
    assert "The reset of billing is undone." in undone.text
    assert "Nothing to undo" in browser.get("/groups/undo?id=billing").text


def test_the_settings_of_a_broker_are_changed(browser: WebClient) -> None:
    form = {"setting": "log.cleaner.threads", "value": "2", "action": "set"}
    changed = browser.change("/brokers/0", "/brokers/0/settings", **form)
    assert "Set log.cleaner.threads to 2." in changed.text
    assert "set for this broker, at run time" in changed.text


def test_a_change_without_the_token_of_its_page_is_refused(browser: WebClient) -> None:
    for path in CHANGES:
        address = path.replace("{topic}", "orders").replace("{broker:int}", "0")
        for form in ({}, {"token": "0" * 64}):
            page = browser.post(address, {**form, "name": "sneaked", "confirm": "orders", "id": "billing"})
            assert (page.status, "not valid any more" in page.text) == (403, True), address
    assert "sneaked" not in browser.get("/topics").text


def test_a_read_only_console_has_no_forms_for_changes_and_refuses_them(bootstrap: str) -> None:
    pool = SessionPool(options(bootstrap))
    with web_client(application(Console(pool, AccessRules(), bootstrap))) as reader:
        for address in ("/topics", "/topics/orders", "/topics/orders/records", "/brokers/0", "/reassignments"):
            page = reader.get(address)
            assert [form["action"] for form in page.all("form") if form["method"] == "post"] == []
        assert reader.post("/topics", {"name": "sneaked"}).status == 403
        assert "leadline groups reset-offsets billing" in reader.get("/groups/reset?id=billing&to=earliest").text
    pool.close()


def test_a_cluster_that_does_not_answer_is_said_on_the_page() -> None:
    unreachable = argparse.Namespace(**{**vars(options("localhost:1")), "timeout": 2.0})
    with web_client(application(Console(SessionPool(unreachable), AccessRules(), "localhost:1"))) as client:
        page = client.get("/topics")
    assert (page.status, "Cannot reach localhost:1" in page.text) == (502, True)
    assert "Check that the brokers run" in page.text
