"""leadline migrate check on files: settings, key stores, log directories. A cluster: tests/conformance."""

import json
from pathlib import Path

import pytest

from leadline.cli import main
from tests.support.logs import batch

READY_FILE = """
broker.id=1
listeners=PLAINTEXT://localhost:9092
zookeeper.connect=localhost:2181
log.dirs=/data
"""
SECURE = """
listeners=SSL://localhost:9092
security.inter.broker.protocol=SSL
zookeeper.connect=localhost:2181
ssl.keystore.type=PEM
ssl.keystore.location={store}
"""
OLD_MESSAGE = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(9)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(READY_FILE)
    return path


def check(*arguments: object) -> int:
    try:
        return main(["migrate", "check", *map(str, arguments)])
    except SystemExit as error:
        return int(error.code or 0)


def test_a_broker_that_is_ready(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(file) == 0
    assert capsys.readouterr().out == f"Checked {file}. Ready.\n"


def test_findings_are_a_table_with_a_cure_under_each(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(READY_FILE + "metric.reporters=com.example.Reporter\nnum.io.threads=4\n")
    assert check(file) == 1
    head, blocking, cure, note, _, _, verdict = capsys.readouterr().out.splitlines()
    assert head.split() == ["SEVERITY", "AREA", "WHERE", "WHAT"]
    assert blocking.split() == ["blocks", "plugin", str(file), "metric.reporters=com.example.Reporter"]
    assert cure.strip() == "cure: Java classes cannot be loaded; leave it out"
    assert note.startswith("notes")
    assert verdict == f"Checked {file}. Not ready: 1 finding blocks the migration."


def test_json_has_severity_and_area_of_each_finding(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(READY_FILE + "process.roles=broker\n")
    assert check(file, "--output", "json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ready"] is False
    assert [(finding["severity"], finding["area"]) for finding in answer["findings"]] == [("blocks", "mode")]


def test_a_key_store_that_is_elsewhere_warns_and_a_bad_one_blocks(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store.pem"
    file.write_text(SECURE.format(store=store))
    assert check(file) == 0
    assert f"{store} is not on this machine" in capsys.readouterr().out
    store.write_text("nothing")
    assert check(file) == 1
    assert "blocks    security" in capsys.readouterr().out


def test_a_jaas_line_that_is_missing_blocks(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = "listeners=SASL_PLAINTEXT://localhost:9092\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
    mechanism = "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
    file.write_text(READY_FILE + plain + mechanism)
    assert check(file) == 1
    assert "listener.name.sasl_plaintext.plain.sasl.jaas.config is not set" in capsys.readouterr().out


def test_segments_from_before_kafka_0_11_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("new-0", bytes(batch())), ("old-0", OLD_MESSAGE), ("empty-0", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(content)
    assert check("--log-dirs", f"{tmp_path},{tmp_path}") == 1
    out = capsys.readouterr().out
    assert "message format 1, from before Kafka 0.11" in out
    assert "1 finding blocks" in out
    assert "old-0" in out
    assert "new-0" not in out


def test_a_directory_of_kraft_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert check("--log-dirs", tmp_path) == 0
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    assert check("--log-dirs", tmp_path) == 1
    assert "formatted for KRaft" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "nothing to check"),
        (["missing.properties"], "missing.properties: No such file"),
        (["--log-dirs", "missing"], "missing: No such file"),
        (["--output", "xml"], "expected text, json, jsonl, not 'xml'"),
        (["--bootstrap-server", "localhost:1", "--timeout", "0.2"], "localhost:1"),
    ],
)
def test_what_cannot_be_checked_has_an_exit_code_of_its_own(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(*arguments) == 2
    assert error in capsys.readouterr().err
