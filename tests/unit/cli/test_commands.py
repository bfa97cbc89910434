"""What holds for every command: help that teaches, errors in a line, and nothing imported before it is needed."""

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
    ("arguments", "said"),
    [
        ("topics create", "the following arguments are required: NAME"),
        ("topics create x --partitions many", "expected a number from 1 on, not 'many'"),
        ("topics create x --config retention", "expected KEY=VALUE, not 'retention'"),
        ("consume x --from-beginning --offset 3", "not allowed with argument --from-beginning"),
        ("consume x --from-time yesterday", "'yesterday' is no time"),
        ("consume x --print key,value", "no field 'value'"),
        ("consume x --partition 0,a", "expected numbers separated by commas"),
        ("produce x --acks 2", "invalid choice: '2'"),
        ("configs describe --topic x --broker 1", "not allowed with argument --topic"),
        ("groups list --state Idle", "invalid choice: 'Idle'"),
        ("groups reset-offsets g --to-earliest --to-latest", "not allowed with argument --to-earliest"),
        ("groups reset-offsets g --all-topics", "one of the arguments --to-earliest --to-latest"),
        ("groups reset-offsets g --topic x:1- --to-latest", "expected TOPIC or TOPIC:0,2-5, not 'x:1-'"),
        ("groups reset-offsets g --all-topics --by-duration soon", "'soon' is no length of time"),
        ("groups reset-offsets g --undo --execute --dry-run", "not allowed with argument --execute"),
        ("transactions list --longer-than 5", "'5' is no length of time"),
        ("transactions blocking", "the following arguments are required: TOPIC[:0,2-5]"),
    ],
)
def test_a_wrong_call_is_two_lines_how_to_call_it_and_what_was_wrong(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    usage, error = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert usage.startswith("usage: leadline")
    assert said in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("topics alter x", "nothing to alter"),
        ("configs alter --topic x", "nothing to alter"),
        ("configs alter --topic x --set a=1 --delete a", "a would be changed 2 times"),
        ("configs alter --broker-defaults --set a=1", "librdkafka cannot alter what is set for all brokers"),
        ("produce x --idempotent --acks 1", "--acks 1: an idempotent or transactional producer"),
        ("consume x --group g --offset 3", "--group hands out partitions and offsets"),
        ("groups reset-offsets g --to-latest", "which partitions? give --topic TOPIC"),
        ("groups reset-offsets g --undo --topic x", "--undo and --from-file say themselves which partitions"),
        ("groups reset-offsets g --all-topics --topic x --to-latest", "give --topic or --all-topics, not both"),
        ("transactions abort x", "which partition? give one, as in x:0"),
        ("transactions abort x:0-3 --start-offset 1", "which partition? give one, as in x:0"),
        ("topics list --command-config no-such-file", "no-such-file: No such file or directory"),
        ("topics list --property retries", "--property retries: expected KEY=VALUE"),
        ("topics list --property no.such=1", 'No such configuration property: "no.such"'),
        ("topics list --bootstrap-server 127.0.0.1:1 --timeout 5", "cannot reach 127.0.0.1:1: Connection refused"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_1(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leadline: ")
    assert said in line
