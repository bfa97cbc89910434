"""The file of `leadline pipeline run`: what it says, and what is refused, with its place."""

import argparse
from math import inf
from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.cli.pipeline import run, table
from leadline.cli.pipeline.job_file import JobFile, options_of, parse_job_file

ORDERS = '[[tables]]\ntopics = ["orders"]\ntable = "/lake/{topic}"\n'


def parsed(text: str) -> JobFile:
    return parse_job_file(text, "jobs.toml")


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run.add_to(parser.add_subparsers())
    return parser.parse_args(["run", "jobs.toml", *arguments])


def test_what_a_table_does_not_say_comes_from_the_defaults() -> None:
    file = parsed(
        f'[defaults]\nformat = "json"\ninterval = "1m"\nkeep = "2d"\n{ORDERS}format = "raw"\nmode = "upsert"\n'
    )
    job = run.job_spec_of(file.tables[0], "orders", options())
    assert (job.spec.topic, job.place.uri, job.spec.format, job.spec.mode) == (
        "orders",
        "/lake/orders",
        "raw",
        "upsert",
    )
    assert (job.interval_s, job.upkeep.keep_hours, job.spec.group) == (60, 48, "table-orders")
    assert job.directory == Path("/lake/orders")


def test_the_defaults_are_those_of_the_command_for_one_table() -> None:
    job = run.job_spec_of(parsed(ORDERS).tables[0], "orders", options())
    assert (job.place.kind, job.spec.format, job.spec.mode, job.spec.partition_by) == ("delta", "raw", "append", "none")
    assert (job.spec.committed, job.spec.fail_on_data_loss, job.spec.batch_bytes) == (True, True, 512 << 20)
    assert (job.upkeep.compact_every_s, job.upkeep.vacuum_every_s, job.upkeep.keep_hours) == (3600, 86_400, 168)
    assert (job.upkeep.target_bytes, job.upkeep.count_every_s) == (256 << 20, inf)


def test_a_table_of_the_file_has_all_options_of_the_command_for_one_table() -> None:
    parser = argparse.ArgumentParser()
    table.add_to(parser.add_subparsers())
    typed = vars(parser.parse_args(["table", "orders", "/lake/orders"])).keys()
    assert typed <= vars(options_of(parsed(ORDERS).tables[0], "orders", options())).keys()


def test_the_columns_of_validity_can_be_named() -> None:
    (entry,) = parsed(f'{ORDERS}mode = "scd2"\nhistory-columns = "since,until,now"\n').tables
    spec = run.job_spec_of(entry, "orders", options()).spec
    assert (spec.mode, spec.history.names) == ("scd2", ("since", "until", "now"))
    with pytest.raises(Failure, match="expected three names"):
        parsed(f'{ORDERS}history-columns = "since"\n')


def test_columns_are_declared() -> None:
    (entry,) = parsed(f'{ORDERS}format = "json"\ncolumns = {{ price = "decimal(18,2)", paid = "timestamp" }}\n').tables
    assert list(run.job_spec_of(entry, "orders", options()).spec.columns) == ["price", "paid"]


def test_rules_and_masks_are_those_of_the_file_and_a_wrong_one_is_refused_with_its_place() -> None:
    rules = 'rules = ["id: not null"]\non-violation = "refuse"\nmasks = { name = "redact", "customer.id" = "null" }\n'
    (entry,) = parsed(f"{ORDERS}{rules}").tables
    quality = run.job_spec_of(entry, "orders", options()).spec.quality
    assert (quality.rules, quality.on_violation) == (("id: not null",), "refuse")
    assert quality.masks == (("name", "redact"), ("customer.id", "null"))
    run.check_entry(entry, options())
    for wrong in ('rules = ["id"]', 'masks = { id = "md5" }', 'masks = { id = "hash" }', 'mask-key-file = "/absent"'):
        (entry,) = parsed(f"{ORDERS}{wrong}\n").tables
        with pytest.raises(Failure, match=r"tables\[1\]: "):
            run.check_entry(entry, options())
    with pytest.raises(Failure, match="expected a list of rules"):
        parsed(f'{ORDERS}rules = "id: not null"\n')


def test_clients_and_tasks_give_up_soon_unless_a_property_says_otherwise() -> None:
    (entry,) = parsed(ORDERS).tables
    timeout = "default.api.timeout.ms"
    assert run.job_spec_of(entry, "orders", options()).spec.properties[timeout] == str(run.API_TIMEOUT_MS)
    typed = options("--property", f"{timeout}=5")
    assert run.job_spec_of(entry, "orders", typed).spec.properties[timeout] == "5"


def test_sizes_periods_and_options_of_stores_are_read() -> None:
    more = 'target-file-size = "64MiB"\nbatch-bytes = 1000\ncompact-every = "never"\nallow-data-loss = true\n'
    store = 'table-options = { "s3.region" = "eu", "s3.anonymous" = true }\n'
    job = run.job_spec_of(parsed(ORDERS + more + store).tables[0], "orders", options("--metrics", "9405"))
    assert (job.upkeep.target_bytes, job.spec.batch_bytes, job.upkeep.compact_every_s) == (64 << 20, 1000, inf)
    assert job.place.options == {"s3.region": "eu", "s3.anonymous": "true"}
    assert (job.spec.fail_on_data_loss, job.upkeep.count_every_s) == (False, run.COUNT_EVERY_S)


@pytest.mark.parametrize(
    ("place", "topic", "name"),
    [
        ("/lake/{topic}", "shop.eu", "/lake/shop.eu"),
        ("s3://lake/{topic}/raw", "shop.eu", "s3://lake/shop.eu/raw"),
        ("prod:sales.{topic}", "orders", "prod:sales.orders"),
        ("prod:sales.{topic}", "shop.eu", "prod:sales.`shop.eu`"),
        ("prod:sales.`{topic}`", "shop.eu", "prod:sales.`shop.eu`"),
    ],
)
def test_a_topic_is_one_part_of_the_name_of_its_table(place: str, topic: str, name: str) -> None:
    (entry,) = parsed(f'[[tables]]\npattern = ".*"\ntable = "{place}"\ntable-format = "iceberg"\n').tables
    assert options_of(entry, topic, argparse.Namespace()).table == name


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    cluster = '[cluster]\nbootstrap-server = "far:9092"\nproperties = { "client.id" = "lake" }\n'
    file = parsed(f'{cluster}[spark]\nmaster = "local[2]"\nconf = {{ "spark.driver.memory" = "2g" }}\n{ORDERS}')
    typed = options("--bootstrap-server", "near:9092", "--conf", "spark.driver.memory=1g")
    run.adopt(typed, file)
    assert (typed.bootstrap_server, typed.master, typed.property) == ("near:9092", "local[2]", ["client.id=lake"])
    assert dict(typed.conf)["spark.driver.memory"] == "1g"
    plain = options()
    run.adopt(plain, parsed(ORDERS))
    assert (plain.bootstrap_server, plain.master) == (None, "local[*]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "jobs.toml: it has no [[tables]]"),
        ("x = ", "jobs.toml: Invalid value (at end of document)"),
        (f"{ORDERS}fromat = 'json'", "jobs.toml: tables[1]: there is no key fromat (did you mean format?)"),
        (f"{ORDERS}compact-evry = '1h'", "tables[1]: there is no key compact-evry (did you mean compact-every?)"),
        (f"{ORDERS}[clutser]\nx = 1", "there is no section clutser (did you mean cluster?)"),
        (f"{ORDERS}[run]\nzzz = 1", "[run]: there is no key zzz: expected one of parallel, refresh, drain"),
        (f"{ORDERS}[defaults]\ntopics = ['a']", "[defaults]: there is no key topics"),
        (f"{ORDERS}format = 'xml'", "format = 'xml': expected one of raw, json, avro, protobuf"),
        (f"{ORDERS}format = 'avro'", "format = 'avro' needs registry"),
        (f"{ORDERS}schema = 'orders.avsc'", "columns and schema are for values with fields"),
        (f"{ORDERS}interval = 5", "interval = 5: expected a duration"),
        (f"{ORDERS}keep = '1h'", "keep = '1h': expected 24h or more"),
        (f"{ORDERS}compact-every = '0s'", "expected a duration above 0"),
        (f"{ORDERS}compact-every = 'often'", 'or "never"'),
        (f"{ORDERS}batch-bytes = '1 potato'", "expected a number of bytes"),
        (f"{ORDERS}batch-bytes = 0", "expected a number of bytes"),
        (f"{ORDERS}allow-data-loss = 'yes'", "expected true or false"),
        (f"{ORDERS}[run]\nparallel = 0", "expected a number of at least 1"),
        (f"{ORDERS}pattern = '.*'", "exactly one is needed: topics, or pattern"),
        ("[[tables]]\ntable = '/t'", "exactly one is needed: topics, or pattern"),
        ("[[tables]]\ntopics = ['a']", "table is missing"),
        ("[[tables]]\ntopics = 'a'\ntable = '/t'", "expected a list of names"),
        ("[[tables]]\npattern = '('\ntable = '/{topic}'", "expected a regular expression"),
        ("[[tables]]\ntopics = ['a', 'b']\ntable = '/t'", "it must contain {topic}"),
        ("[[tables]]\npattern = 'a.*'\ntable = '/t'", "it must contain {topic}"),
        (ORDERS + ORDERS, "tables[2]: /lake/orders is the table of orders already"),
        (f"{ORDERS}table-options = {{ a = [1] }}", "expected a table of texts"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(Failure) as refused:
        parsed(text)
    assert message in str(refused.value)
    assert str(refused.value).startswith("jobs.toml: ")


def test_the_example_of_the_help_is_a_file() -> None:
    lines = run.EXAMPLES.partition("jobs.toml:\n")[2].splitlines()
    text = "\n".join(line.partition("     ")[0] if '"  ' in line else line for line in lines)
    assert [entry.pattern for entry in parsed(text).tables] == [None, "shop-.*"]
