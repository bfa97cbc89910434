"""Client properties of `leadline produce`, and the end of its transaction."""

import argparse
from typing import Any
from unittest.mock import Mock

import pytest

from leadline.admin.errors import Failure
from leadline.cli.produce import command
from leadline.cli.produce.command import add_to, properties_of


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    return parser.parse_args(["produce", "orders", *arguments])


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ((), {}),
        (("--compression", "lz4", "--acks", "1"), {"compression.type": "lz4", "acks": "1"}),
        (("--idempotent", "--acks", "all"), {"acks": "all", "enable.idempotence": "true"}),
        (("--transactional-id", "load"), {"transactional.id": "load", "enable.idempotence": "true"}),
    ],
)
def test_only_options_that_are_set_become_properties(arguments: tuple[str, ...], properties: dict[str, str]) -> None:
    assert properties_of(options(*arguments)) == properties


@pytest.mark.parametrize("kind", [("--idempotent",), ("--transactional-id", "load")])
@pytest.mark.parametrize("acks", ["0", "1"])
def test_an_idempotent_producer_needs_acks_of_all_replicas(kind: tuple[str, ...], acks: str) -> None:
    with pytest.raises(Failure, match=f"--acks {acks}: an idempotent or transactional producer waits for all"):
        properties_of(options(*kind, "--acks", acks))


def in_transaction(monkeypatch: pytest.MonkeyPatch, failed: int = 0, error: BaseException | None = None) -> list[str]:
    """The calls of the producer after all records were sent with this result."""
    sender = Mock(failed=failed)
    monkeypatch.setattr(command, "_send_all", Mock(side_effect=error))
    calls: list[str] = []
    for name in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
        setattr(sender.producer, name, lambda *_, name=name: calls.append(name))
    send: Any = command._send_in_transaction
    if error is None:
        send(sender, options(), 1.0)
    else:
        with pytest.raises(type(error)):
            send(sender, options(), 1.0)
    return calls


def test_a_transaction_is_committed_if_all_records_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = in_transaction(monkeypatch)
    assert calls == ["init_transactions", "begin_transaction", "commit_transaction"]


@pytest.mark.parametrize(("failed", "error"), [(1, None), (0, Failure("line 2")), (0, KeyboardInterrupt())])
def test_a_transaction_is_aborted_after_any_failure(
    failed: int, error: BaseException | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_transaction(monkeypatch, failed, error)[-1] == "abort_transaction"
    assert "the transaction was aborted" in capsys.readouterr().err
