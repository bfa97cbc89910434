"""The login of a connection: the same frames to a real Kafka, to our state machine and to the socket of our broker.

A dialogue is a generator: it yields what the client sends and is handed the answer. All dialogues run against a broker
at once, as many of them wait for its failure delay, and against the core in a moment, on a clock of its own.
"""

import base64
import hashlib
import hmac
import re
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin._scram import ScramMechanism as ClientScramMechanism

from leadline.security.jwks import Jwks
from leadline.security.oauthbearer import OAuthBearerExchange, TokenRules, TokenValidator
from leadline.security.plain import PlainExchange
from leadline.security.sasl_authenticator import (
    MAX_RECEIVE_BYTES,
    Admission,
    LoginState,
    SaslAuthenticator,
    SaslListener,
)
from leadline.security.sasl_mechanisms import EnabledMechanisms
from leadline.security.scram import ScramClient, ScramExchange, ScramUsers
from leadline.security.scram_credentials import ScramMechanism, credential_of_password
from leadline.security.secret import Secret
from leadline.wire.apis import APIS
from leadline.wire.classes import Message
from leadline.wire.frames import FRONT, parse_response, request_frame, response_frame
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.conformance.kafka.broker import _free_port, broker, zookeeper
from tests.support.broker import leadline
from tests.support.web_tokens import first_message, jwk, key_set, signed, signed_with_public_key, unsigned

pytestmark = pytest.mark.conformance

DELAY_MS = 8000  # connection.failed.authentication.delay.ms: longer than anything else takes on a busy machine
ANSWER_S = 60
QUIET_S = 0.5  # a connection that says nothing for so long is open
SALT = b"0123456789abcdef"
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
MAX_REAUTH_MS = {"PLAIN": 60_000, "SCRAM-SHA-256": 0, "SCRAM-SHA-512": 1500}
LOGIN = "org.apache.kafka.common.security"
TOKEN_RULES = TokenRules(issuer="the issuer")
KEY_SET = key_set(jwk("rsa"), jwk("ec-256"), jwk("rsa-2", alg="RS512"))
SIZE = Struct(">i")
SHA_256, SHA_512 = ScramMechanism

Sent = tuple[Message, int] | bytes | float  # a request in a version; a raw frame; seconds to wait
Answer = Message | bytes | None  # None: closed, or nothing for a wait
Dialogue = Callable[[], Generator[Sent, Answer, None]]


@dataclass
class Line:
    """What came back for what was sent."""

    sent: str
    answer: str
    delayed: bool


class Transcript(NamedTuple):
    kafka: list[Line]
    core: list[Line]  # of our state machine
    leadline: list[Line]  # of a broker of ours, through its socket


# The two ends


class SocketEnd:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self.reader = self.socket.makefile("rb")

    def exchange(self, frame: bytes) -> tuple[bytes | None, bool]:
        """The answer's frame without its size, and whether it took as long as the failure delay."""
        started = time.monotonic()
        self.socket.sendall(frame)
        answer = self.receive()
        return answer, time.monotonic() - started >= DELAY_MS / 1000

    def receive(self) -> bytes | None:
        try:
            front = self.reader.read(4)
            return self.reader.read(SIZE.unpack(front)[0]) if len(front) == 4 else None
        except ConnectionResetError:
            return None

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def is_closed(self, expected: bool) -> bool:
        self.socket.settimeout(ANSWER_S if expected else QUIET_S)
        try:
            return self.receive() is None
        except TimeoutError:
            return False

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


class CoreEnd:
    def __init__(self) -> None:
        users = {
            mechanism: {
                name: credential_of_password(mechanism, Secret.of(password), SALT)
                for name, password in PASSWORDS.items()
            }
            for mechanism in ScramMechanism
        }

        def scram(mechanism: ScramMechanism) -> ScramExchange:
            lookup = ScramUsers(users[mechanism].get, lambda _: None, Secret(b"decoys"))
            return ScramExchange(mechanism, lookup, "ournonce")

        keys = Jwks(lambda: None)
        keys.load(KEY_SET, 0)
        passwords = {name: Secret.of(password) for name, password in PASSWORDS.items()}
        mechanisms = EnabledMechanisms(
            {
                "PLAIN": lambda: PlainExchange(passwords.get),
                "SCRAM-SHA-256": lambda: scram(SHA_256),
                "SCRAM-SHA-512": lambda: scram(SHA_512),
                "OAUTHBEARER": lambda: OAuthBearerExchange(TokenValidator(TOKEN_RULES, keys).validate),
            }
        )
        self.login = SaslAuthenticator(SaslListener(mechanisms, MAX_REAUTH_MS, api_versions, error_response))
        self.now_ms = time.time_ns() // 1_000_000  # as tokens hold for a time
        self.closed = False

    def exchange(self, frame: bytes) -> tuple[bytes | None, bool]:
        (size,) = SIZE.unpack_from(frame)
        if not 0 <= size <= MAX_RECEIVE_BYTES:
            step = self.login.refuse_size(f"a request of {size} bytes")
        elif self.login.state is LoginState.COMPLETE and (admission := self._admission(frame)) is not None:
            return admission, False
        else:
            step = self.login.receive(frame[4:], self.now_ms, self.now_ms)
        if step.failure is None:
            return step.send[4:], False
        self.closed = True
        return (step.failure.response[4:] or None), step.failure.delayed

    def _admission(self, frame: bytes) -> bytes | None:
        """The answer to a request on a connection that has logged in; None: it begins to log in again."""
        key, version, correlation_id = FRONT.unpack_from(frame, 4)
        admission = self.login.admit(key, self.now_ms)
        if admission is Admission.REAUTHENTICATE:
            return None
        if admission is Admission.CLOSE:
            self.closed = True
            return b""
        response: Message = SaslHandshakeResponse(error_code=34)
        if key == SaslAuthenticateRequest.API_KEY:
            message = "SaslAuthenticate request received after successful authentication"
            response = SaslAuthenticateResponse(error_code=34, error_message=message)
        return framed_response(response, version, correlation_id)

    def wait(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    def is_closed(self, expected: bool) -> bool:
        return self.closed

    def close(self) -> None: ...


def api_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=42 if version >= 3 and not request.client_software_name else 0)


def error_response(request: Message, version: int, code: int) -> Message | None:
    assert request.API_KEY is not None
    return APIS[request.API_KEY].response(error_code=code)  # type: ignore[call-arg]


def framed_response(response: Message, version: int, correlation_id: int) -> bytes:
    return joined(response_frame(response, version, correlation_id))[4:]


def joined(pieces: Iterable[object]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))


def play(dialogue: Dialogue, end: SocketEnd | CoreEnd, expect_closed: bool | None) -> list[Line]:
    lines: list[Line] = []
    script = dialogue()
    answer: Answer = None
    try:
        sent = next(script)
        while True:
            answer, line = _exchange(sent, end)
            lines.append(line)
            sent = script.send(answer)
    except StopIteration:
        closed = end.is_closed(lines[-1].answer == "closed" or bool(expect_closed))
        lines.append(Line("the connection", "closed" if closed else "open", False))
        return lines
    finally:
        end.close()


def _exchange(sent: Sent, end: SocketEnd | CoreEnd) -> tuple[Answer, Line]:
    if isinstance(sent, float):
        end.wait(sent)
        return None, Line(f"{sent} s pass", "", False)
    if isinstance(sent, bytes):
        data, delayed = end.exchange(sent)
        return data, Line("a frame", "closed" if data is None else repr(without_nonces(data)), delayed)
    request, version = sent
    label = f"{type(request).__name__} v{version}"
    data, delayed = end.exchange(joined(request_frame(request, version, 7, "client")))
    if not data:
        return None, Line(label, "closed", delayed)
    assert request.API_KEY is not None
    is_too_new = request.API_KEY == 18 and data[4:6] == b"\0\x23"
    response = parse_response(APIS[request.API_KEY].response, data, 0 if is_too_new else version)[1]
    return response, Line(label, shown(response), delayed)


def shown(response: Message) -> str:
    if isinstance(response, ApiVersionsResponse) and response.error_code == 0:
        return "the versions"
    text = repr(response)
    if isinstance(response, SaslAuthenticateResponse):
        if response.session_lifetime_ms not in MAX_REAUTH_MS.values():
            text = text.replace(str(response.session_lifetime_ms), "<until the token expires>")
        text = text.replace(repr(response.auth_bytes), repr(without_nonces(bytes(response.auth_bytes))))
    return text


def without_nonces(data: bytes) -> bytes:
    """What both servers draw or compute from what they drew."""
    data = re.sub(rb"^r=clientnonce[!-+\--~]+", b"r=<nonce>", data)
    return re.sub(rb"^v=[A-Za-z0-9+/=]+$", b"v=<signature>", data)


# The dialogues

DIALOGUES: dict[str, Dialogue] = {}


def dialogue(name: str, *frames: Sent) -> None:
    def script() -> Generator[Sent, Answer, None]:
        yield from (frame for frame in frames)  # a generator takes what is sent to it; a tuple would not

    DIALOGUES[name] = script


def handshake(mechanism: str = "PLAIN", version: int = 1) -> Sent:
    return SaslHandshakeRequest(mechanism=mechanism), version


def token(data: bytes, version: int = 1) -> Sent:
    return SaslAuthenticateRequest(auth_bytes=data), version


def bare(data: bytes) -> bytes:
    return SIZE.pack(len(data)) + data


def raw(key: int, version: int, rest: bytes = b"") -> bytes:
    return bare(FRONT.pack(key, version, 7) + b"\xff\xff" + rest)


VERSIONS: Sent = (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
NAMELESS: Sent = (ApiVersionsRequest(), 3)
TOO_NEW = raw(18, 99, bytes(1))
HEARTBEAT: Sent = (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0)
METADATA: Sent = (MetadataRequest(topics=[]), 4)
GOOD, WRONG, BOB = b"\0alice\0alice-secret", b"\0alice\0wrong", b"\0bob\0bob-secret"

dialogue("versions, handshake, token", VERSIONS, handshake(), token(GOOD))
dialogue("old versions", (ApiVersionsRequest(), 0), handshake(), token(GOOD))
dialogue("versions twice", VERSIONS, VERSIONS)
dialogue("versions refused, then not", NAMELESS, TOO_NEW, NAMELESS, VERSIONS, handshake(), token(GOOD))
dialogue("versions refused, then a handshake", NAMELESS, handshake(), token(GOOD))
dialogue("versions refused, then another request", NAMELESS, METADATA)
dialogue("versions, then versions that would be refused", VERSIONS, TOO_NEW)
dialogue("metadata first", METADATA)
dialogue("metadata after versions", VERSIONS, METADATA)
dialogue("metadata that cannot be parsed", raw(3, 4, b"\x7f\xff\xff\xff"))
dialogue("authenticate first", token(GOOD))
dialogue("an empty frame first", bare(b""))
dialogue("a GSSAPI token first", bare(b"\x60\x82\1\2\3\4\5\6\7\x08\x09"))
dialogue("an empty frame after versions", VERSIONS, bare(b""))
dialogue("an api key that does not exist, after versions", VERSIONS, raw(999, 0))
dialogue("a handshake that is too new", raw(17, 2, b"\0\5PLAIN"))
dialogue("a handshake that is cut off", raw(17, 1, b"\0\5PLA"))
for version in (0, 1):
    for mechanism in ("GSSAPI", "plain", ""):
        dialogue(f"a handshake v{version} for {mechanism!r}", handshake(mechanism, version))
    dialogue(f"two handshakes v{version}", handshake("PLAIN", version), handshake())
dialogue("a frame beyond the limit", SIZE.pack(MAX_RECEIVE_BYTES + 1))
dialogue("a frame of 2 GB", SIZE.pack(0x7FFF_FFFF))
dialogue("a frame of a negative size", SIZE.pack(-1))
dialogue("a frame beyond the limit, later", handshake(), SIZE.pack(MAX_RECEIVE_BYTES + 1))

TOKENS = {
    "good": GOOD,
    "wrong": WRONG,
    "own authorization id": b"alice" + GOOD,
    "another's authorization id": b"bob" + GOOD,
    "unknown user": b"\0nobody\0x",
    "no user": b"\0\0x",
    "no password": b"\0alice\0",
    "nothing": b"",
    "two parts": b"alice\0alice-secret",
    "five parts": b"\0a\0b\0c\0d",
}
for name, data in TOKENS.items():
    for version in (0, 1, 2):
        dialogue(f"PLAIN in authenticate v{version}: {name}", handshake(), token(data, version))
    dialogue(f"PLAIN after handshake v0: {name}", handshake("PLAIN", 0), bare(data))
dialogue("an authenticate that is too new", handshake(), raw(36, 9))
dialogue("an authenticate that is cut off", handshake(), raw(36, 1, b"\0\0\0\x09abc"))
dialogue("versions instead of authenticate", handshake(), VERSIONS)
dialogue("old versions instead of authenticate", handshake(), (ApiVersionsRequest(), 1))
dialogue("heartbeat instead of authenticate", handshake(), HEARTBEAT)
dialogue("an api key that does not exist, instead of authenticate", handshake(), raw(999, 0))


def scram(
    mechanism: ScramMechanism,
    name: str,
    password: str,
    version: int = 1,
    first: Callable[[bytes], bytes] = bytes,
    final: Callable[[bytes], bytes] = bytes,
    by_token: bool = False,
) -> Generator[Sent, Answer, None]:
    """A login with messages that may be tampered with. `version` -1: after handshake v0, without requests."""
    client = ScramClient(mechanism, name, Secret.of(password), "clientnonce", by_token)
    tamper, challenge = first, b""
    yield handshake(mechanism.mechanism_name, min(version + 1, 1))
    while message := tamper(client.answer(challenge)):
        answer = yield bare(message) if version < 0 else token(message, version)
        if isinstance(answer, SaslAuthenticateResponse) and answer.error_code == 0:
            challenge = bytes(answer.auth_bytes)
        elif isinstance(answer, bytes):
            challenge = answer
        else:
            return
        tamper = final


SCRAM_LOGINS: dict[str, Callable[..., Generator[Sent, Answer, None]]] = {
    "good": lambda mechanism, version: scram(mechanism, "alice", "alice-secret", version),
    "wrong password": lambda mechanism, version: scram(mechanism, "alice", "wrong", version),
    "another's authorization id": lambda mechanism, version: scram(
        mechanism, "alice", "alice-secret", version, lambda message: message.replace(b"n,,", b"n,a=bob,")
    ),
    "channel binding demanded": lambda mechanism, version: scram(
        mechanism, "alice", "alice-secret", version, lambda message: message.replace(b"n,,", b"p=tls-unique,,")
    ),
    "nonsense first": lambda mechanism, version: scram(mechanism, "x", "x", version, lambda message: b"nonsense"),
    "nonsense second": lambda mechanism, version: scram(
        mechanism, "alice", "alice-secret", version, final=lambda message: b"nonsense"
    ),
    "a name with an escape that is none": lambda mechanism, version: scram(
        mechanism, "alice", "x", version, lambda message: message.replace(b"alice", b"al=ice")
    ),
    "extensions": lambda mechanism, version: scram(
        mechanism, "alice", "wrong", version, lambda message: message + b",zebra=1"
    ),
}
BETTER: dict[str, Dialogue] = {}  # where we differ on purpose
for scram_mechanism in ScramMechanism:
    for version in (-1, 0, 1, 2):
        for name, login in SCRAM_LOGINS.items():
            is_told = version >= 0 or name in ("good", "another's authorization id")
            (DIALOGUES if is_told else BETTER)[f"{scram_mechanism.mechanism_name} v{version}: {name}"] = partial(
                login, scram_mechanism, version
            )

# OAUTHBEARER: Kafka checks the same tokens with the same keys.


def oauth(*messages: bytes) -> list[Sent]:
    return [handshake("OAUTHBEARER"), *map(token, messages)]


NOW_S, DAY_S = int(time.time()), 86_400  # the dialogues are played some time after this
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW_S + DAY_S, "iat": NOW_S - 5, "iss": TOKEN_RULES.issuer}
GOOD_TOKEN = signed(CLAIMS)


def claims(**changes: Any) -> dict[str, Any]:
    """With these changes; None takes a claim away."""
    return {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}


LATE, EARLY = NOW_S - 300, NOW_S + DAY_S
WEB_TOKENS = {
    "good": GOOD_TOKEN,
    "good, of an elliptic curve": signed(CLAIMS, "ec-256", "ES256"),
    "good, with a list of scopes": signed(claims(scope=["a", "b"])),
    "unsigned": unsigned(CLAIMS) + "x",
    "signed by a key that is not in the set": signed(CLAIMS, "rsa-other"),
    "signed by another key than it names": signed(CLAIMS, "rsa-other", kid="rsa"),
    "signed with the public key as a shared secret": signed_with_public_key(CLAIMS, "rsa", "rsa"),
    "with another algorithm than the key's": signed(CLAIMS, "rsa", "RS256", kid="ec-256"),
    "changed": ".".join([*signed(claims(sub="bob")).split(".")[:2], GOOD_TOKEN.split(".")[2]]),
    "expired": signed(claims(exp=LATE)),
    "not yet valid": signed(claims(nbf=EARLY)),
    "valid since now": signed(claims(nbf=NOW_S)),
    "issued in the future": signed(claims(iat=EARLY)),
    "without exp": signed(claims(exp=None)),
    "without iat": signed(claims(iat=None)),
    "without sub": signed(claims(sub=None)),
    "with an empty sub": signed(claims(sub="")),
    "with a blank sub": signed(claims(sub="  ")),
    "with a sub between blanks": signed(claims(sub=" alice ")),
    "with a number as sub": signed(claims(sub=5)),
    "of another issuer": signed(claims(iss="somebody")),
    "without an issuer": signed(claims(iss=None)),
    "for an audience": signed(claims(aud="somebody")),
    "with an exp that is a text": signed(claims(exp="soon")),
    "two parts": "a.b",
    "nonsense": "a.b.c",
}
for name, web_token in WEB_TOKENS.items():
    dialogue(f"OAUTHBEARER: {name}", *oauth(first_message(web_token)))
dialogue("OAUTHBEARER: refused, and the end", *oauth(first_message("a.b.c"), b"\x01"))
dialogue("OAUTHBEARER: refused, and another try", *oauth(first_message("a.b.c"), first_message(GOOD_TOKEN)))
dialogue("OAUTHBEARER: own authorization id", *oauth(first_message(GOOD_TOKEN, "alice")))
dialogue("OAUTHBEARER: another's authorization id", *oauth(first_message(GOOD_TOKEN, "bob")))
dialogue("OAUTHBEARER: extensions", *oauth(first_message(GOOD_TOKEN, traceId="123", other="x y")))
for name, message in {
    "nothing": b"",
    "the end at once": b"\x01",
    "channel binding": b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
    "no token": b"n,,\x01other=x\x01\x01",
    "cut off": b"n,,\x01auth=Bearer x\x01",
}.items():
    dialogue(f"OAUTHBEARER: {name}", *oauth(message))
dialogue("OAUTHBEARER: another scheme", *oauth(b"n,,\x01auth=Basic x\x01\x01"))
BETTER["OAUTHBEARER: another scheme"] = DIALOGUES.pop("OAUTHBEARER: another scheme")
dialogue("OAUTHBEARER: login anew", *oauth(first_message(GOOD_TOKEN)), *oauth(first_message(GOOD_TOKEN)))
dialogue(
    "OAUTHBEARER: login anew as somebody else",
    *oauth(first_message(GOOD_TOKEN)),
    *oauth(first_message(signed(claims(sub="bob")))),
)

# Sessions: PLAIN's last a minute, SCRAM-SHA-256's as long as the connection, SCRAM-SHA-512's 1.5 s.

PLAIN_LOGIN = [handshake(), token(GOOD)]
dialogue("authenticate after the login", *PLAIN_LOGIN, token(GOOD))
dialogue("a login anew", *PLAIN_LOGIN, handshake(), token(GOOD), token(GOOD))
WITHIN_A_SECOND = "a login anew within a second of the last"
dialogue(WITHIN_A_SECOND, *PLAIN_LOGIN, handshake(), token(GOOD), handshake(), token(GOOD))
dialogue("a login anew a second later", *PLAIN_LOGIN, handshake(), token(GOOD), 1.1, handshake(), token(GOOD))
dialogue("a login anew by handshake v0", *PLAIN_LOGIN, handshake("PLAIN", 0), bare(GOOD), token(GOOD))
dialogue("a login anew by another mechanism", *PLAIN_LOGIN, handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=x"))
dialogue("a login anew by a mechanism that is not enabled", *PLAIN_LOGIN, handshake("GSSAPI"))
dialogue("a login anew as somebody else", *PLAIN_LOGIN, handshake(), token(BOB))
dialogue("a login anew as somebody else by handshake v0", *PLAIN_LOGIN, handshake("PLAIN", 0), bare(BOB))
dialogue("a login anew with a wrong password", *PLAIN_LOGIN, handshake(), token(WRONG))
dialogue("versions within a login anew", *PLAIN_LOGIN, handshake(), VERSIONS)
dialogue("handshake v0, authenticate after the login", handshake("PLAIN", 0), bare(GOOD), token(GOOD))


def without_end() -> Generator[Sent, Answer, None]:
    yield from scram(SHA_256, "alice", "alice-secret")
    yield handshake("SCRAM-SHA-256")
    yield token(b"x")


def expired(*frames: Sent) -> Dialogue:
    def script() -> Generator[Sent, Answer, None]:
        yield from scram(SHA_512, "alice", "alice-secret")
        yield 2.0
        yield from (frame for frame in frames)  # a generator takes what is sent to it; a tuple would not

    return script


def expired_and_anew(name: str = "alice", password: str = "alice-secret") -> Dialogue:
    def script() -> Generator[Sent, Answer, None]:
        yield from scram(SHA_512, "alice", "alice-secret", 0)
        yield 2.0
        yield from scram(SHA_512, name, password)

    return script


DIALOGUES["a handshake on a session without an end"] = without_end
DIALOGUES["a request on an expired session"] = expired(token(b"x"))
DIALOGUES["a heartbeat on an expired session"] = expired(HEARTBEAT)
DIALOGUES["a login anew of an expired session"] = expired_and_anew()
DIALOGUES["a login anew of an expired session as somebody else"] = expired_and_anew("bob", "bob-secret")
DIALOGUES["a wrong login anew of an expired session"] = expired_and_anew(password="wrong")


def resigned(final: bytes) -> bytes:
    """Client final with another nonce, and a proof that fits it. The server's nonce is found in the message."""
    nonce = re.search(rb"r=([^,]+)", final)
    assert nonce is not None
    first = b"n=alice,r=clientnonce"
    server_first = b"r=%b,s=%b,i=4096" % (nonce[1], base64.b64encode(SALT))
    without_proof = b"c=biws,r=" + nonce[1] + b"x"
    key = hmac.digest(hashlib.pbkdf2_hmac("sha256", b"alice-secret", SALT, 4096), b"Client Key", "sha256")
    auth_message = b",".join([first, server_first, without_proof])
    signature = hmac.digest(hashlib.sha256(key).digest(), auth_message, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def another_nonce() -> Generator[Sent, Answer, None]:
    """Without the end of the login: the client would not accept the server's signature, which is over its own words."""
    login = scram(SHA_256, "alice", "alice-secret", final=resigned)
    yield next(login)
    answer = yield login.send(SaslHandshakeResponse())
    yield login.send(answer)


BETTER |= {
    "another nonce in client final": another_nonce,
    "an unknown user": lambda: scram(SHA_256, "nobody", "x"),
    "an unknown token": lambda: scram(SHA_256, "nobody", "x", by_token=True),
}


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Transcript]]:
    """Of each dialogue."""
    home, port = tmp_path_factory.mktemp("sasl"), _free_port()
    listener = "listener.name.sasl_plaintext"
    settings: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:$port,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": DELAY_MS,
        f"{listener}.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        + ";",
    }
    jwks = home / "jwks.json"
    jwks.write_bytes(KEY_SET)
    settings[f"{listener}.oauthbearer.sasl.jaas.config"] = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
    handler = f"{LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    settings[f"{listener}.oauthbearer.sasl.server.callback.handler.class"] = handler
    settings["sasl.oauthbearer.jwks.endpoint.url"] = jwks.as_uri()
    settings["sasl.oauthbearer.expected.issuer"] = TOKEN_RULES.issuer
    for mechanism in MECHANISMS[1:3]:
        name = f"{listener}.{mechanism.lower()}.sasl.jaas.config"
        settings[name] = f"{LOGIN}.scram.ScramLoginModule required;"
    for mechanism, limit in MAX_REAUTH_MS.items():
        settings[f"{listener}.{mechanism.lower()}.connections.max.reauth.ms"] = limit
    own = settings | {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with (
        zookeeper(home / "zk") as zk,
        broker(home / "broker", zk, **settings) as kafka,
        leadline(home / "leadline", **own) as running,
    ):
        create_users(kafka.bootstrap)
        create_users(running.bootstrap)
        everything = DIALOGUES | BETTER
        core = {name: play(script, CoreEnd(), None) for name, script in everything.items()}
        (own_port,) = re.findall(r" SASL_PLAINTEXT on 127\.0\.0\.1:(\d+)", running.output())
        theirs, ours = (_all_lines(everything, core, tried_port) for tried_port in (port, int(own_port)))
        yield {name: Transcript(theirs[name], core[name], ours[name]) for name in everything}


def _all_lines(everything: dict[str, Dialogue], core: dict[str, list[Line]], port: int) -> dict[str, list[Line]]:
    def lines_of(name: str) -> list[Line]:
        return play(everything[name], SocketEnd(port), core[name][-1].answer == "closed")

    in_time = lines_of(WITHIN_A_SECOND)  # by itself, before the others keep the machine busy
    with ThreadPoolExecutor(len(everything)) as pool:
        return dict(zip(everything, pool.map(lines_of, everything), strict=True)) | {WITHIN_A_SECOND: in_time}


def create_users(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ClientScramMechanism.SCRAM_SHA_256, ClientScramMechanism.SCRAM_SHA_512):
        for name, password in PASSWORDS.items():
            credential = ScramCredentialInfo(mechanism, 4096)
            user = UserScramCredentialUpsertion(name, credential, password.encode(), SALT)
            for future in admin.alter_user_scram_credentials([user]).values():
                future.result(120)


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_login_goes_as_it_goes_with_kafka(name: str, transcripts: dict[str, Transcript]) -> None:
    theirs, ours, _ = transcripts[name]
    assert ours == theirs


@pytest.mark.parametrize("name", DIALOGUES | BETTER)
def test_the_socket_of_a_broker_says_what_its_state_machine_says(name: str, transcripts: dict[str, Transcript]) -> None:
    _, core, leadline_lines = transcripts[name]
    assert without_decoys(leadline_lines) == without_decoys(core)


def without_decoys(lines: list[Line]) -> list[Line]:
    """The salt of an unknown user comes from a secret of the broker."""
    decoy = re.compile(f"s=(?!{re.escape(base64.b64encode(SALT).decode())})[^,]+,i=")
    return [Line(line.sent, decoy.sub("s=<decoy>,i=", line.answer), line.delayed) for line in lines]


def test_cve_2024_56128_the_nonce_that_kafka_takes_is_refused(
    transcripts: dict[str, Transcript],
) -> None:
    theirs, ours, _ = transcripts["another nonce in client final"]
    assert theirs[-1].answer == "open"
    assert "error_code=58" in ours[-2].answer
    assert ours[-1].answer == "closed"


@pytest.mark.parametrize("name", ["an unknown user", "an unknown token"])
def test_a_probe_for_names_learns_what_kafka_gives_away(name: str, transcripts: dict[str, Transcript]) -> None:
    """Kafka refuses an unknown name at the first message. Ours fails at the second, as a wrong password does."""
    theirs, ours, _ = transcripts[name]
    wrong = transcripts["SCRAM-SHA-256 v1: wrong password"].core
    assert len(theirs) == len(ours) - 1
    assert theirs[-2:] == ours[-2:]
    assert [line.answer for line in ours if "s=" not in line.answer] == [
        line.answer for line in wrong if "s=" not in line.answer
    ]


def test_another_scheme_than_bearer_is_answered(transcripts: dict[str, Transcript]) -> None:
    """Kafka fails to put its error into words, and closes the connection."""
    theirs, ours, _ = transcripts["OAUTHBEARER: another scheme"]
    assert theirs[1].answer == "closed"
    assert "error_code=58" in ours[1].answer


@pytest.mark.parametrize("name", [name for name in BETTER if "v-1" in name])
def test_after_handshake_v0_a_failed_scram_login_waits_for_the_delay_too(
    name: str, transcripts: dict[str, Transcript]
) -> None:
    """Kafka closes at once there, and so lets passwords be tried as fast as connections can be opened."""
    theirs, ours, _ = transcripts[name]
    assert [(line.sent, line.answer) for line in ours] == [(line.sent, line.answer) for line in theirs]
    assert ours[-2].delayed
