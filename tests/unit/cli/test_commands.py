"""What holds for every command: help that teaches, errors in a line, and nothing imported before it is needed."""

import json
import subprocess
import sys

import pytest

from leadline.cli import main

COMMANDS = [
    "cluster up",
    "topics create",
    "topics list",
    "topics describe",
    "topics alter",
    "topics delete",
    "produce",
    "consume",
    "groups list",
    "groups describe",
    "groups reset-offsets",
    "groups delete",
    "transactions list",
    "transactions describe",
    "transactions blocking",
    "transactions find-hanging",
    "transactions abort",
    "leader-election",
    "reassign plan",
    "reassign execute",
    "reassign verify",
    "reassign cancel",
    "reassign list",
    "explain",
    "configs describe",
    "configs alter",
    "log-levels list",
    "log-levels set",
    "log-levels reset",
    "acls list",
    "acls add",
    "acls remove",
    "acls why",
    "users list",
    "users add",
    "users remove",
    "quotas list",
    "quotas set",
    "quotas remove",
    "tokens create",
    "tokens list",
    "tokens renew",
    "tokens expire",
    "security init",
    "dump-log",
    "perf produce",
    "perf consume",
    "perf latency",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_calls_that_one_can_copy(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.startswith(f"usage: leadline {command}")
    assert f"  leadline {command}" in shown.partition("examples:")[2]


def test_the_client_library_is_not_imported_before_a_command_needs_it() -> None:
    code = (
        "import sys, leadline.cli as cli; cli.main(['dump-log', sys.argv[1]]); print('confluent_kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "no-such-file"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topics create", "the following arguments are required: NAME"),
        ("topics create x --partitions many", "expected a number of at least 1, not 'many'"),
        ("topics create x --config retention", "expected KEY=VALUE, not 'retention'"),
        ("consume x --from-beginning --offset 3", "not allowed with argument --from-beginning"),
        ("consume x --from-time yesterday", "'yesterday' is not a time"),
        ("consume x --print key,value", "no field 'value'"),
        ("consume x --partition 0,a", "expected numbers separated by commas"),
        ("produce x --acks 2", "invalid choice: '2'"),
        ("configs describe --topic x --broker 1", "not allowed with argument --topic"),
        ("groups list --state Idle", "invalid choice: 'Idle'"),
        ("groups reset-offsets g --to-earliest --to-latest", "not allowed with argument --to-earliest"),
        ("groups reset-offsets g --all-topics", "one of the arguments --to-earliest --to-latest"),
        ("groups reset-offsets g --topic x:1- --to-latest", "expected TOPIC or TOPIC:0,2-5, not 'x:1-'"),
        ("groups reset-offsets g --all-topics --by-duration soon", "'soon' is not a duration"),
        ("groups reset-offsets g --undo --execute --dry-run", "not allowed with argument --execute"),
        ("transactions list --longer-than 5", "'5' is not a duration"),
        ("transactions blocking", "the following arguments are required: TOPIC[:0,2-5]"),
    ],
)
def test_a_wrong_call_is_two_lines_how_to_call_it_and_what_was_wrong(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    usage, error = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert usage.startswith("usage: leadline")
    assert message in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topics alter x", "nothing to alter"),
        ("configs alter --topic x", "nothing to alter"),
        ("configs alter --topic x --set a=1 --delete a", "a would be changed 2 times"),
        ("configs alter --broker-defaults --set a=1", "librdkafka cannot alter the defaults of all brokers"),
        ("produce x --idempotent --acks 1", "--acks 1: an idempotent or transactional producer"),
        ("consume x --group g --offset 3", "--group assigns partitions and offsets"),
        ("groups reset-offsets g --to-latest", "no partitions given: add --topic TOPIC"),
        ("groups reset-offsets g --undo --topic x", "--undo and --from-file define the partitions"),
        ("groups reset-offsets g --all-topics --topic x --to-latest", "--topic and --all-topics cannot be combined"),
        ("transactions abort x", "exactly one partition is needed, such as x:0"),
        ("transactions abort x:0-3 --start-offset 1", "exactly one partition is needed, such as x:0"),
        ("topics list --command-config no-such-file", "no-such-file: No such file or directory"),
        ("topics list --property retries", "--property retries: expected KEY=VALUE"),
        ("topics list --property no.such=1", "client properties: there is no property no.such"),
        ("topics list --bootstrap-server 127.0.0.1:1 --timeout 5", "cannot reach 127.0.0.1:1: Connection refused"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_1(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leadline: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "usage", "message"),
    [
        ("topics list --bogus", "leadline topics list", "unrecognized arguments: --bogus"),
        ("topics list --bootsrap-server x", "leadline topics list", "(did you mean --bootstrap-server?)"),
        ("topics describe --undr-replicated-partitions", "leadline topics describe", "--under-replicated-partitions?)"),
        ("produce t --timout=3", "leadline produce", "(did you mean --timeout?)"),
        ("start --prot 9", "leadline start", "(did you mean --port?)"),
        ("start x.properties y.properties", "leadline start", "unrecognized arguments: y.properties"),
        ("strat", "leadline ", "no command 'strat' (did you mean start?)"),
        ("topic list", "leadline ", "no command 'topic' (did you mean topics?)"),
        ("topics lst", "leadline topics", "no command 'lst' (did you mean list?)"),
        ("groups reset-offset g", "leadline groups", "no command 'reset-offset' (did you mean reset-offsets?)"),
        ("nonsense", "leadline ", "no command 'nonsense'; `leadline --help` lists them"),
        ("pipeline tabel", "leadline pipeline", "no command 'tabel' (did you mean table?)"),
    ],
)
def test_a_mistyped_word_is_reported_by_its_command_with_the_nearest_word(
    arguments: str, usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert lines[0].startswith(f"usage: {usage}")
    assert message in lines[-1]


@pytest.mark.parametrize("command", ["", "topics", "groups", "cluster", "configs", "perf", "pipeline", "reassign"])
def test_a_command_that_lacks_a_command_shows_its_help_and_fails_as_git_does(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    shown = capsys.readouterr()
    assert ended.value.code == 1
    assert shown.out.startswith(f"usage: leadline {command}".rstrip())
    assert "--help" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("localhost:99999", "localhost:99999: a port is a number from 1 to 65535"),
        ("localhost:0", "localhost:0: a port is a number from 1 to 65535"),
        ("a:9092,b:x", "b:x: a port is a number from 1 to 65535"),
        ("[::1]:70000", "[::1]:70000: a port is a number from 1 to 65535"),
        (":9092", ":9092: a host is missing"),
        (",", "expected HOST:PORT"),
        ("", "expected HOST:PORT"),
        ("http://localhost:9092", "http://localhost:9092: expected HOST:PORT"),
    ],
)
def test_an_invalid_address_is_refused_before_any_request(
    servers: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "list", "--bootstrap-server", servers]) == 1
    assert capsys.readouterr().err == f"leadline: --bootstrap-server {message}\n"


@pytest.mark.parametrize("output", ["--json", "--output json", "--output=jsonl"])
def test_with_json_an_error_is_an_object_and_the_exit_code_stays(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "alter", "x", *output.split()]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line) == {"error": "nothing to alter: give --partitions, --config or --delete-config"}


def test_with_json_wrong_usage_is_an_object_and_the_exit_code_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main("topics lst --output json".split())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line) == {
        "error": "no command 'lst' (did you mean list?)",
        "usage": "leadline topics COMMAND ...",
    }


def test_a_stream_has_no_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main("consume x --output=json".split())
    assert "one object a line: --output jsonl" in capsys.readouterr().err
