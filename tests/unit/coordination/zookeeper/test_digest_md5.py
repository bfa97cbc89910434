"""DIGEST-MD5 as a client: the example of the RFC's form, what is refused, and how strange names are written."""

import hashlib
import re

import pytest

from leadline.config.values import Password
from leadline.coordination.zookeeper.digest_md5 import DigestLogin, DigestRefused

CHALLENGE = b'realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",charset=utf-8,algorithm=md5-sess'


def login(username: str = "kafka", password: str = "secret") -> DigestLogin:
    return DigestLogin(username, Password(password), lambda length: b"r" * length)


def md5(*parts: str) -> str:
    return hashlib.md5(":".join(parts).encode()).hexdigest()


def proofs(response: bytes, username: str, password: str, encoding: str = "latin-1") -> tuple[str, str]:
    """What the server computes: the client's proof and its own."""
    cnonce = re.findall(rb'cnonce="([^"]*)"', response)[0].decode()
    secret = hashlib.md5(f"{username}:zk-sasl-md5:{password}".encode(encoding)).digest()
    key = hashlib.md5(secret + f":OA6MG9tEQGm2hh:{cnonce}".encode()).hexdigest()
    uri = "zookeeper/zk-sasl-md5"
    return (
        md5(key, "OA6MG9tEQGm2hh", "00000001", cnonce, "auth", md5("AUTHENTICATE", uri)),
        md5(key, "OA6MG9tEQGm2hh", "00000001", cnonce, "auth", md5("", uri)),
    )


@pytest.mark.parametrize(
    ("password", "encoding"), [("secret", "latin-1"), ("pässwörd", "latin-1"), ("пароль", "utf-8")]
)
def test_both_sides_prove_that_they_know_the_password(password: str, encoding: str) -> None:
    exchange = login(password=password).begin()
    response = exchange.respond(CHALLENGE)
    assert response is not None
    ours, theirs = proofs(response, "kafka", password, encoding)
    assert f"response={ours},qop=auth".encode() in response
    assert response.startswith(b'charset=utf-8,username="kafka",realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",nc=00000001')
    assert password.encode() not in response
    assert exchange.respond(f"rspauth={theirs}".encode()) is None


@pytest.mark.parametrize("answer", [b"rspauth=0123", b"", b"rspauth=", CHALLENGE])
def test_a_server_that_does_not_know_the_password_is_left(answer: bytes) -> None:
    exchange = login().begin()
    exchange.respond(CHALLENGE)
    with pytest.raises(DigestRefused, match="does not prove"):
        exchange.respond(answer)


@pytest.mark.parametrize("challenge", [b"", b'realm="x"', b'nonce="n",qop="auth-int"', b"\xff\xfe", b"nonce"])
def test_a_challenge_that_is_none_is_refused(challenge: bytes) -> None:
    with pytest.raises(DigestRefused, match="asks for no login"):
        login().begin().respond(challenge)


def test_quotes_in_a_name_are_escaped() -> None:
    response = login(username='a"b\\c').begin().respond(CHALLENGE)
    assert response is not None
    assert rb'username="a\"b\\c"' in response


def test_neither_the_login_nor_its_errors_show_the_password() -> None:
    assert "secret" not in repr(login())
