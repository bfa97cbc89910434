"""DIGEST-MD5 (RFC 2831), as ZooKeeper's clients log in with it: a name and a password, without a security layer.

Pure: a challenge in, a response out. Random bytes are passed in.

    server  realm="zk-sasl-md5",nonce="...",charset=utf-8,algorithm=md5-sess
    client  charset=utf-8,username="...",realm="...",nonce="...",nc=00000001,cnonce="...",
            digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=...,qop=auth
    server  rspauth=...         proves that the server knows the password, too

    response = MD5(hex(MD5(A1)) : nonce : nc : cnonce : qop : hex(MD5(A2)))
    A1 = MD5(username : realm : password) : nonce : cnonce         A2 = AUTHENTICATE:digest-uri, for rspauth :digest-uri

Each part of A1 is in Latin-1 if it can be, else in UTF-8: so Java reads the RFC.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest

from leadline.config.values import Password

DIGEST_URI = "zookeeper/zk-sasl-md5"  # Java's clients take this for the name of every host
_COUNT, _QOP = "00000001", "auth"
_NONCE_BYTES = 30
_FIELD = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^,"\s]*))\s*(?:,|$)')
_QUOTED = re.compile(r'["\\]')


class DigestRefused(Exception):
    """The server refused the login, or could not prove that it knows the password."""


@dataclass(frozen=True, slots=True)
class DigestLogin:
    """The user and password. `random`: bytes that cannot be guessed."""

    username: str
    password: Password
    random: Callable[[int], bytes]

    def begin(self) -> "DigestExchange":
        return DigestExchange(self)


class DigestExchange:
    """One login. `respond` takes each challenge and returns the next response; None: it is complete."""

    def __init__(self, login: DigestLogin) -> None:
        self._login, self._proof = login, ""

    def respond(self, challenge: bytes) -> bytes | None:
        """Raises DigestRefused."""
        fields = _fields(challenge)
        if not self._proof:
            return self._response(fields)
        if not compare_digest(fields.get("rspauth", "").encode(), self._proof.encode()):
            raise DigestRefused("the server does not prove that it knows the password")
        return None

    def _response(self, fields: Mapping[str, str]) -> bytes:
        realm, nonce = fields.get("realm", ""), fields.get("nonce", "")
        if not nonce or _QOP not in fields.get("qop", _QOP).split(","):
            raise DigestRefused("the server asks for no login by DIGEST-MD5")
        cnonce = base64.b64encode(self._login.random(_NONCE_BYTES)).decode()
        secret = b":".join(map(_bytes, (self._login.username, realm, self._login.password.value)))
        key = hashlib.md5(hashlib.md5(secret).digest() + f":{nonce}:{cnonce}".encode()).hexdigest()

        def digest(a2: str) -> str:
            parts = (key, nonce, _COUNT, cnonce, _QOP, hashlib.md5(a2.encode()).hexdigest())
            return hashlib.md5(":".join(parts).encode()).hexdigest()

        self._proof = digest(f":{DIGEST_URI}")
        return (
            f'charset=utf-8,username="{_escaped(self._login.username)}",realm="{_escaped(realm)}",nonce="{nonce}",'
            f'nc={_COUNT},cnonce="{cnonce}",digest-uri="{DIGEST_URI}",maxbuf=65536,'
            f"response={digest(f'AUTHENTICATE:{DIGEST_URI}')},qop={_QOP}"
        ).encode()


def _fields(challenge: bytes) -> dict[str, str]:
    text, at, fields = challenge.decode("utf-8", "replace"), 0, dict[str, str]()
    while match := _FIELD.match(text, at):
        name, quoted, plain = match.groups()
        fields.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
        if at == len(text):
            break
    return fields


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _escaped(text: str) -> str:
    return _QUOTED.sub(r"\\\g<0>", text)
