"""Every command has a form in JSON, with the fields that docs/OUTPUT.md lists, or a reason why it has none."""

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from leadline.cli import main
from leadline.testing import LocalCluster
from tests.support.leaf_commands import leaf_commands

DOCUMENT = Path(__file__).parents[3] / "docs" / "OUTPUT.md"
ROW = re.compile(r"\| `([^`]+)` \| (object|array|stream) \| ([^;,:|]*)")
NOT_LISTED = "; "  # what comes after it is about parts

WITHOUT_JSON = {
    "start": "runs until Ctrl-C; --log-format json",
    "cluster up": "runs until Ctrl-C",
    "console": "runs until Ctrl-C",
    "completion": "a script for a shell",
    "demo": "a show for a person",
    "sim": "a story for a person; the verdict is its exit code",
}
JOBS = "pipeline "  # tests/spark runs them

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
PLAN = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}'

# In this order. FOLDER is a new one.
CALLS = """
topics create orders --partitions 2
topics list
topics describe orders
topics alter orders --partitions 3 --config retention.ms=86400000
produce orders --file FOLDER/record
consume orders --from-beginning --to-end --group g
groups list
groups describe g
groups reset-offsets g --topic orders --to-earliest
groups delete g
transactions list
transactions describe tx
transactions blocking deals
transactions find-hanging --max-transaction-timeout 0s
transactions abort deals:0 --start-offset 0 --force
leader-election preferred orders
reassign plan orders
reassign execute FOLDER/plan.json
reassign verify FOLDER/plan.json
reassign cancel FOLDER/plan.json
reassign list
explain orders
configs describe --topic orders
configs alter --topic orders --set retention.ms=1000
log-levels list
log-levels set leadline.log.recovery=INFO
log-levels reset leadline.log.recovery
acls add --allow-principal User:alice --operation read --topic orders
acls list
acls why --principal User:alice --operation read --topic orders
acls remove --topic orders --dry-run
users add alice --password-file FOLDER/password
users list
users remove alice --yes
quotas set --user alice producer_byte_rate=1000
quotas list
quotas remove --user alice
tokens create --dry-run
tokens list
tokens renew Bw1QuMShQAaHT-qfoVdObA
tokens expire Bw1QuMShQAaHT-qfoVdObA
security init FOLDER/security
migrate check
perf produce orders --records 3
perf consume orders --records 3
perf latency orders --records 3
dump-log FOLDER/cluster
topics delete orders --yes
""".strip().splitlines()
OFFLINE = ("security init", "dump-log")
REFUSED = (
    "tokens list",
    "tokens renew",
    "tokens expire",
)  # a token needs a login
EMPTY = ("transactions find-hanging", "reassign cancel", "reassign list")
FINDINGS = 1  # the exit code of a check that is not passed
DRY = {"tokens create": ["owner", "renewers", "dry_run"]}


class CommandOutput(NamedTuple):
    code: int
    out: str
    err: str


class DocumentedForm(NamedTuple):
    kind: str
    fields: list[str]


def documented() -> dict[str, DocumentedForm]:
    rows = ROW.findall(DOCUMENT.read_text())
    return {name: DocumentedForm(kind, re.findall(r"`(\w+)`", fields)) for name, kind, fields in rows}


FORMS = documented()


def run(words: list[str]) -> CommandOutput:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    data = out.buffer
    assert isinstance(data, io.BytesIO)
    return CommandOutput(code, data.getvalue().decode(), err.getvalue())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CommandOutput]]:
    folder = tmp_path_factory.mktemp("json")
    (folder / "record").write_text("a")
    (folder / "password").write_text("secret\n")
    (folder / "plan.json").write_text(PLAN)
    results: dict[str, CommandOutput] = {}
    with LocalCluster(brokers=1, settings=SETTINGS) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO())
        cluster.create_topic("deals", partitions=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "tx", "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("deals", b"open")
        assert producer.flush(60) == 0
        (folder / "cluster").symlink_to(Path(cluster._directory) / "broker-1")
        for call in CALLS:
            name = name_of(call)
            words = call.replace("FOLDER", str(folder)).split()
            if name not in OFFLINE:
                words += ["--bootstrap-server", cluster.bootstrap_servers, "--timeout", "60"]
            results[name] = run([*words, "--output", "jsonl" if FORMS[name].kind == "stream" else "json"])
        producer.abort_transaction(60)
        yield results


def name_of(call: str) -> str:
    words = call.split()
    return next(name for name in (" ".join(words[:2]), words[0]) if name in FORMS)


def test_every_command_is_here_and_documented_or_has_a_reason() -> None:
    leaves = leaf_commands()
    having = [name for name, parser in leaves.items() if "--output" in parser._option_string_actions]
    assert sorted({*leaves} - {*having}) == sorted(WITHOUT_JSON)
    assert sorted(having) == sorted(FORMS)
    assert sorted(name for name in having if not name.startswith(JOBS)) == sorted(map(name_of, CALLS))


@pytest.mark.parametrize("name", [name for name in FORMS if not name.startswith(JOBS)])
def test_its_json_parses_and_has_the_fields_that_are_documented(name: str, outputs: dict[str, CommandOutput]) -> None:
    code, out, err = outputs[name]
    if name in REFUSED:
        assert (code, out) == (1, "")
        assert [[*json.loads(line)] for line in err.splitlines()] == [["error"]]
        return
    kind, fields = FORMS[name]
    assert (code, err) == (FINDINGS if name == "migrate check" else 0, "")
    values: list[Any]
    if kind == "stream":
        values = [json.loads(line) for line in out.splitlines()]
    else:
        value: Any = json.loads(out)
        assert isinstance(value, dict if kind == "object" else list)
        values = [value] if kind == "object" else list(value)
    assert values or name in EMPTY
    for value in values:
        shown = [*value][: len(fields)] if name == "dump-log" else [*value]
        assert sorted(shown) == sorted(DRY.get(name, fields))


def test_a_name_of_a_field_is_in_snake_case(outputs: dict[str, CommandOutput]) -> None:
    names = {name for form in FORMS.values() for name in form.fields}
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)
