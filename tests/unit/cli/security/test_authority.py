"""The development authority: certificates that OpenSSL and our own readers accept, and the files around them."""

import json
import ssl
from pathlib import Path

import pytest

from leadline.cli import main
from leadline.cli.security.authority import is_host, new_authority, new_leaf
from leadline.config.properties import parse_properties
from leadline.security.client_properties import SecurityProperties
from leadline.security.distinguished_name import subject_name
from leadline.security.key_stores import PKCS12, KeyStoreSettings, TrustStoreSettings, load_key_store, load_trust_store
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings, alternative_names

PASSWORD = Secret.of("store-secret")


def test_a_leaf_has_the_names_of_its_hosts_and_both_stores_hold_it() -> None:
    authority = new_authority("ca")
    broker = new_leaf(authority, "broker", ["localhost", "::1"])
    store = load_key_store(
        KeyStoreSettings(PKCS12, "store", PASSWORD), lambda path: broker.pkcs12("broker", PASSWORD, authority)
    )
    trust = load_trust_store(
        TrustStoreSettings(PKCS12, "trust", PASSWORD), lambda path: authority.trust_store(PASSWORD)
    )
    assert store is not None
    assert trust is not None
    assert subject_name(store.chain[0]) == "CN=broker"
    assert alternative_names(store.chain[0]) == {"DNSName:localhost", "IPAddress:::1"}
    assert len(store.chain) == 2
    assert (
        ListenerTls(TlsSettings(client_auth="required"), store, trust).server_context.verify_mode is ssl.CERT_REQUIRED
    )


@pytest.mark.parametrize(("host", "valid"), [("a-b.example", True), ("10.0.0.1", True), ("::1", True), ("a b", False)])
def test_what_can_be_a_host(host: str, valid: bool) -> None:
    assert is_host(host) is valid


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["security", "init", str(tmp_path / "secure"), "--user", "ben", "--host", "kafka.example"]) == 0
    return tmp_path / "secure"


def test_what_init_writes_is_private_and_the_properties_are_understood(folder: Path) -> None:
    readable = [file.name for file in folder.rglob("*") if file.is_file() and file.stat().st_mode & 0o077]
    assert readable == ["ca.pem"]
    assert folder.stat().st_mode & 0o077 == 0
    for name in ("admin", "ben"):
        for file in (f"{name}.properties", f"{name}.librdkafka.properties"):
            security = SecurityProperties.of(parse_properties((folder / file).read_text()))
            assert security.ssl_context(lambda path: Path(path).read_bytes()).check_hostname
        assert json.loads((folder / f"{name}.kafka-python.json").read_text())["ssl_cafile"] == str(folder / "ca.pem")
    settings = parse_properties((folder / "server.properties").read_text())
    assert settings["listeners"] == "SSL://kafka.example:9093,SASL_SSL://kafka.example:9094"


def test_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    assert main(["security", "init", str(folder)]) == 1
    assert "exists and is not empty: nothing is overwritten" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("arguments", [("--user", "admin"), ("--user", 'a"b'), ("--host", "a b"), ("--port", "65535")])
def test_names_that_would_not_work_are_refused(arguments: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["security", "init", str(tmp_path / "secure"), *arguments])
    assert not (tmp_path / "secure").exists()


def test_no_secret_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["security", "init", str(tmp_path / "secure")])
    shown = capsys.readouterr().out
    properties = parse_properties((tmp_path / "secure" / "alice.librdkafka.properties").read_text())
    assert properties["sasl.password"] not in shown
    assert "leadline start" in shown
