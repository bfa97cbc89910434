"""Every command that connects, against a broker with TLS, SCRAM and ACLs: with the file of a user who has just the
rights that it needs, without a file, with a wrong password, and with the file of a user without rights."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.commands import LEADLINE
from tests.support.forked_commands import ForkedResult, run_forked
from tests.support.leaf_commands import leaf_commands
from tests.support.secured_broker import SecuredBroker, secured_broker

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD, WRONG_PASSWORD = "staple-of-a-command", "wrong-horse"
NOBODY = "nobody"  # who has no rights
TIMEOUT_S = "60"
PLAN = '{"version": 1, "partitions": [{"topic": "TOPIC", "partition": 0, "replicas": [1]}]}'

# A command and the rights that it needs. FOLDER is a new one. Each has a topic, a group and a transaction of its own.
COMMANDS = """
topics create NEW | topic:NEW create
topics list | topic:TOPIC describe
topics describe TOPIC | topic:TOPIC describe,describe_configs
topics alter TOPIC --partitions 2 --config retention.ms=86400000 | topic:TOPIC describe,alter,alter_configs
topics delete TOPIC --yes | topic:TOPIC delete
produce TOPIC --file FOLDER/record | topic:TOPIC write
consume TOPIC --from-beginning --to-end | topic:TOPIC read
consume TOPIC --from-beginning --to-end --group NEW | topic:TOPIC read; group:NEW read
groups list | group:GROUP describe
groups describe GROUP | group:GROUP describe; topic:TOPIC describe
groups reset-offsets GROUP --topic TOPIC --to-earliest --execute | group:GROUP read; topic:TOPIC read
groups delete GROUP --yes | group:GROUP describe,delete
transactions list | transactional_id:TXN describe
transactions describe TXN | transactional_id:TXN describe; topic:TOPIC describe
transactions blocking TOPIC | topic:TOPIC read; transactional_id:TXN describe
transactions find-hanging | topic:TOPIC read
transactions abort TOPIC:0 --start-offset 1 --force | topic:TOPIC read; cluster alter
leader-election preferred TOPIC | topic:TOPIC describe; cluster alter
reassign plan TOPIC | topic:TOPIC describe; cluster describe
reassign execute PLAN | topic:TOPIC describe,alter_configs; cluster describe,alter,alter_configs
reassign verify PLAN | topic:TOPIC describe,alter_configs; cluster describe,alter_configs
reassign cancel PLAN | topic:TOPIC describe,alter_configs; cluster describe,alter,alter_configs
reassign list | cluster describe
explain TOPIC | topic:TOPIC describe; cluster describe_configs
configs describe --topic TOPIC | topic:TOPIC describe,describe_configs
configs alter --topic TOPIC --set retention.ms=1000 | topic:TOPIC describe,alter_configs
log-levels list | cluster describe_configs
log-levels set leadline.log.recovery=INFO | cluster describe_configs,alter_configs
log-levels reset leadline.log.cleaner | cluster describe_configs,alter_configs
acls list | cluster describe
acls add --allow-principal User:a --operation read --topic NEW | cluster describe,alter
acls remove --topic NEW --yes | cluster describe,alter
acls why --principal User:a --operation read --topic NEW | cluster describe,describe_configs
users list | cluster describe
users add NEW --password-file FOLDER/record | cluster describe,alter
users remove USER --yes | cluster describe,alter
quotas list | cluster describe_configs
quotas set --user NEW producer_byte_rate=1000000 | cluster describe_configs,alter_configs
quotas remove --user USER | cluster describe_configs,alter_configs
tokens create
tokens list
tokens renew TOKEN
tokens expire TOKEN --yes
migrate check | cluster describe; topic:TOPIC describe
perf produce TOPIC --records 3 | topic:TOPIC write
perf consume TOPIC --records 1 | topic:TOPIC read
perf latency TOPIC --records 3 | topic:TOPIC read,write
""".strip().splitlines()
SERVES = "console"  # it has a test of its own
JOBS = "pipeline "  # tests/spark/test_secured_jobs.py has them
NO_RIGHT_NEEDED = (
    "topics list",
    "groups list",
    "transactions list",
    "transactions find-hanging",
    "tokens ",
    "migrate check",
)
FINDINGS = "migrate check"  # they are what it prints, and its exit code
SUMMARY = re.compile(r"^produced 0 records .*\n", re.MULTILINE)  # after the error


class Command(NamedTuple):
    number: int
    words: list[str]
    rights: list[str]

    @property
    def user(self) -> str:
        return f"user-{self.number}"

    @property
    def names(self) -> dict[str, str]:
        """What the words stand for."""
        return {word: f"{word.lower()}-{self.number}" for word in ("NEW", "TOPIC", "GROUP", "TXN", "USER")}

    def has(self, word: str) -> bool:
        return any(word in text for text in (*self.words, *self.rights))


def commands() -> list[Command]:
    rows = [line.partition(" | ") for line in COMMANDS]
    return [
        Command(number, words.split(), rights.split("; ") if rights else [])
        for number, (words, _, rights) in enumerate(rows)
    ]


class SecuredCluster:
    """What the commands need: users with their rights, topics with a record, groups, transactions, tokens."""

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.servers = f"localhost:{broker.broker.addresses['SASL_SSL'].port}"
        self._open: dict[str, str | int | float | bool] = {
            "bootstrap.servers": f"localhost:{broker.broker.addresses['PLAINTEXT'].port}"
        }
        self._create_topics()
        self._allow()
        (folder / "record").write_text("a\n")
        self._add_user(NOBODY)
        self._add_user("wrong", WRONG_PASSWORD)
        for command in commands():
            names = command.names
            self._add_user(command.user)
            broker.add_scram_user(names["USER"], PASSWORD)
            self._plan(command).write_text(PLAN.replace("TOPIC", names["TOPIC"]))
            if command.has("GROUP"):
                self._commit(names["GROUP"], names["TOPIC"])
            if command.has("TXN") or "abort" in command.words:
                self._begin_transaction(names["TXN"], names["TOPIC"])
        owners = [command for command in commands() if command.has("TOKEN")]
        created = run_forked([["tokens", "create", "--output", "json", *self.access(owner.user)] for owner in owners])
        self.tokens = {
            owner.number: json.loads(result.out)["token_id"] for owner, result in zip(owners, created, strict=True)
        }

    def _plan(self, command: Command) -> Path:
        return self.folder / f"{command.names['TOPIC']}.json"

    def _add_user(self, user: str, password: str = PASSWORD) -> None:
        """With a file that has this password."""
        self.broker.add_scram_user(user, PASSWORD)
        self.broker.write_client_properties(user, password)

    def _create_topics(self) -> None:
        names = [command.names["TOPIC"] for command in commands()]
        admin, producer = AdminClient(self._open), Producer(self._open)
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result()
        for name in names:
            producer.produce(name, b"a")
        assert producer.flush() == 0

    def _commit(self, group: str, topic: str) -> None:
        consumer = Consumer({**self._open, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()

    def _begin_transaction(self, txn: str, topic: str) -> None:
        producer = Producer({**self._open, "transactional.id": txn})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"a")
        producer.flush()

    def _allow(self) -> None:
        self.broker.allow(
            (command.user, f"{kind}:{command.names.get(name, name)}", operations)
            for command in commands()
            for resource, operations in (right.split() for right in command.rights)
            for kind, _, name in [resource.partition(":")]
        )

    def access(self, user: str | None, timeout_s: str = TIMEOUT_S) -> list[str]:
        file = [] if user is None else ["--command-config", str(self.folder / f"{user}.properties")]
        return ["--bootstrap-server", self.servers, "--timeout", timeout_s, *file]

    def run(self, user: str | None = "", timeout_s: str = TIMEOUT_S) -> dict[str, ForkedResult]:
        """All commands, by their words. None: without a file. Empty: each with that of its own user."""
        calls = [
            [*self._words(command), *self.access(command.user if user == "" else user, timeout_s)]
            for command in commands()
        ]
        return {" ".join(command.words): result for command, result in zip(commands(), run_forked(calls), strict=True)}

    def _words(self, command: Command) -> list[str]:
        names = {**command.names, "FOLDER": str(self.folder), "TOKEN": self.tokens.get(command.number, "")}
        names["PLAN"] = str(self._plan(command))
        return [re.sub("|".join(names), lambda match: names[match[0]], word) for word in command.words]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, {"broker.id": "1"}) as broker:
        yield SecuredCluster(broker, folder)


def one_line(result: ForkedResult) -> bool:
    """An error as a person wants it: one line, no traceback, no secret."""
    error = SUMMARY.sub("", result.err)
    return (
        result.code in (1, 2)
        and len(error.strip().splitlines()) == 1
        and error.startswith("leadline: ")
        and not any(secret in result.err + result.out for secret in (PASSWORD, WRONG_PASSWORD))
    )


def test_every_command_that_connects_is_here() -> None:
    connecting = [
        name for name, parser in leaf_commands().items() if "--command-config" in parser._option_string_actions
    ]
    named = {
        name
        for name in connecting
        if any(f"{' '.join(command.words)} ".startswith(f"{name} ") for command in commands())
    }
    assert {*connecting} - named == {SERVES, *(name for name in connecting if name.startswith(JOBS))}


def test_without_a_file_each_ends_with_one_line(cluster: SecuredCluster) -> None:
    results = cluster.run(None, "5")
    assert [f"{call}: {result}" for call, result in results.items() if not one_line(result)] == []


def test_with_a_wrong_password_each_ends_with_one_line(cluster: SecuredCluster) -> None:
    results = cluster.run("wrong", "30")
    assert [f"{call}: {result}" for call, result in results.items() if not one_line(result)] == []
    assert all("uthentication failed" in result.err for result in results.values()), results


def test_without_the_right_each_that_needs_one_ends_with_one_line(cluster: SecuredCluster) -> None:
    results = {
        call: result for call, result in cluster.run(NOBODY, "30").items() if not call.startswith(NO_RIGHT_NEEDED)
    }
    assert [f"{call}: {result}" for call, result in results.items() if not one_line(result)] == []


def test_with_just_the_rights_that_it_needs_each_works(cluster: SecuredCluster) -> None:
    results = cluster.run()
    assert results.pop(FINDINGS).err == ""
    assert [f"{call}: {result}" for call, result in results.items() if result.code != 0] == []


@contextmanager
def console(cluster: SecuredCluster, user: str) -> Iterator[str]:
    """The address of a console that logs in as this user."""
    command = [*LEADLINE, "console", "--listen", "127.0.0.1:0", *cluster.access(user)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split(" on ")[1].split()[0]
        finally:
            process.terminate()


def page(url: str) -> str:
    try:
        with urlopen(url) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        return error.read().decode()


def test_the_console_shows_what_its_user_may_see_and_why_it_may_not(cluster: SecuredCluster) -> None:
    lister = next(command for command in commands() if command.words == ["topics", "list"])
    with console(cluster, lister.user) as url:
        topics = re.findall(r">(topic-\d+)<", page(f"{url}/topics"))
    assert set(topics) == {lister.names["TOPIC"]}
    with console(cluster, "wrong") as url:
        text = page(f"{url}/topics")
    assert "uthentication failed" in text
    assert WRONG_PASSWORD not in text
