"""Contexts of Kerberos with tickets of a real key distribution center, and what is said without the package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.runtime.kerberos import GssContext, KerberosError, LibKerberos
from tests.support.gssapi_package import gssapi_package
from tests.support.kdc import REALM, Kdc, kdc

SERVICE = f"kafka/localhost@{REALM}"


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with kdc(tmp_path_factory.mktemp("kdc")) as center, pytest.MonkeyPatch.context() as patch:
        for name, value in center.environment.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(gssapi_package()))
        yield center


@pytest.fixture(scope="module")
def key_tables(center: Kdc) -> dict[str, str]:
    return {name: str(center.add(name)) for name in ("alice", "kafka/localhost", "kafka/other")}


def initiator(key_tables: dict[str, str], host: str = "localhost", client: str = "alice") -> GssContext:
    return LibKerberos().initiator(f"{client}@{REALM}", key_tables[client], "kafka", host)


def acceptor(key_tables: dict[str, str]) -> GssContext:
    return LibKerberos().acceptor(SERVICE, key_tables["kafka/localhost"])()


def test_both_sides_come_to_a_context_and_prove_to_hold_its_key(key_tables: dict[str, str]) -> None:
    client, server = initiator(key_tables), acceptor(key_tables)
    assert not client.is_established
    token = client.step(b"")
    reply = server.step(token)
    assert server.is_established
    assert server.initiator == f"alice@{REALM}"
    assert client.step(reply) == b""
    assert client.is_established
    assert client.unwrap(server.wrap(b"to the client")) == b"to the client"
    assert server.unwrap(client.wrap(b"to the server")) == b"to the server"
    wrapped = bytearray(client.wrap(b"to the server"))
    wrapped[-1] ^= 1
    with pytest.raises(KerberosError, match="A token had an invalid"):
        server.unwrap(bytes(wrapped))


def test_a_token_that_comes_twice_is_refused_and_another_may_succeed(key_tables: dict[str, str]) -> None:
    token = initiator(key_tables).step(b"")
    acceptor(key_tables).step(token)
    with pytest.raises(KerberosError, match="Request is a replay") as refused:
        acceptor(key_tables).step(token)
    assert refused.value.is_retriable


@pytest.mark.parametrize("token", [b"", b"nonsense", b"\x60\x82\1\2\3\4"])
def test_what_is_no_token_is_refused(token: bytes, key_tables: dict[str, str]) -> None:
    with pytest.raises(KerberosError) as refused:
        acceptor(key_tables).step(token)
    assert not refused.value.is_retriable


def test_a_ticket_that_was_changed_or_is_for_another_service_is_refused(key_tables: dict[str, str]) -> None:
    token = bytearray(initiator(key_tables).step(b""))
    token[-1] ^= 1
    with pytest.raises(KerberosError, match="Decrypt integrity check failed"):
        acceptor(key_tables).step(bytes(token))
    with pytest.raises(KerberosError) as refused:
        acceptor(key_tables).step(initiator(key_tables, "other").step(b""))
    assert not refused.value.is_retriable


def test_tickets_that_are_not_to_be_had_say_why(key_tables: dict[str, str]) -> None:
    with pytest.raises(KerberosError, match=f"kafka/nowhere@{REALM} not found in Kerberos database"):
        initiator(key_tables, "nowhere").step(b"")
    with pytest.raises(KerberosError, match="No key table entry found for"):
        LibKerberos().acceptor(f"kafka/nowhere@{REALM}", key_tables["kafka/localhost"])
    with pytest.raises(KerberosError):
        LibKerberos().initiator(f"bob@{REALM}", key_tables["alice"], "kafka", "localhost").step(b"")


def test_the_realm_is_that_of_the_configuration(center: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kerberos = LibKerberos()
    assert kerberos.default_realm() == REALM
    monkeypatch.setenv("KRB5_CONFIG", "")  # put back afterwards
    (tmp_path / "krb5.conf").write_text("[libdefaults]\ndefault_realm = ELSEWHERE\n")
    kerberos.use_config(str(tmp_path / "krb5.conf"))
    assert kerberos.default_realm() == "ELSEWHERE"
    kerberos.use_config(str(tmp_path / "none.conf"))
    with pytest.raises(KerberosError, match="does not specify default realm"):
        kerberos.default_realm()


def test_where_the_package_is_missing_the_error_says_how_to_install_it() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gssapi", None)
        with pytest.raises(
            KerberosError, match=r"needs the package gssapi: pip install 'leadline\[gssapi\]' \(.*libkrb5"
        ):
            LibKerberos().default_realm()
