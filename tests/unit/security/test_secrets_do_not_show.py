"""No password, key, proof, salt or token in a repr, a log line or an error, whatever goes wrong."""

import ast
import base64
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import leadline.security
from leadline.security import (
    jaas,
    jks,
    key_stores,
    oauthbearer,
    password_encoder,
    plain,
    sasl_authenticator,
    sasl_mechanisms,
    scram,
    scram_credentials,
    tls,
)
from leadline.security.jwks import Jwks
from leadline.security.secret import Secret
from leadline.wire.frames import SIZE, request_frame
from leadline.wire.messages import ApiVersionsResponse, SaslAuthenticateRequest, SaslHandshakeRequest
from leadline.wire.primitives import BUFFERS
from tests.support.certificates import issued, new_authority
from tests.support.web_tokens import first_message, jwk, key_set, signed

PASSWORD = "Hunter2-Hunter2"
SHA_256 = scram_credentials.ScramMechanism.SCRAM_SHA_256
CREDENTIAL = scram_credentials.credential_of_password(SHA_256, Secret.of(PASSWORD), b"PepperPepper")
BROKER = issued(new_authority())
TOKEN = signed({"sub": "alice", "exp": 2_000_000_000, "iat": 1})
SECRETS = [
    PASSWORD,
    "PepperPepper",
    base64.b64encode(b"PepperPepper").decode(),
    *(base64.b64encode(key.reveal()).decode() for key in (CREDENTIAL.stored_key, CREDENTIAL.server_key)),
    BROKER.key_pem().splitlines()[1],
    TOKEN.split(".")[2],
]


def listener() -> sasl_authenticator.SaslListener:
    keys = Jwks(lambda: None)
    keys.load(key_set(jwk("rsa")), 0)
    users = scram.ScramUsers({"alice": CREDENTIAL}.get, lambda _: None, Secret(b"Hunter2-Hunter2-decoy"))
    validator = oauthbearer.TokenValidator(oauthbearer.TokenRules(), keys)
    mechanisms = sasl_mechanisms.EnabledMechanisms(
        {
            "PLAIN": lambda: plain.PlainExchange({"alice": Secret.of(PASSWORD)}.get),
            "SCRAM-SHA-256": lambda: scram.ScramExchange(SHA_256, users, "nonce"),
            "OAUTHBEARER": lambda: oauthbearer.OAuthBearerExchange(validator.validate),
        }
    )
    return sasl_authenticator.SaslListener(mechanisms, {}, lambda *_: ApiVersionsResponse(), lambda *_: None)


def frames(mechanism: str, *tokens: bytes) -> Iterator[bytes]:
    requests = [SaslHandshakeRequest(mechanism=mechanism), *(SaslAuthenticateRequest(auth_bytes=t) for t in tokens)]
    for request in requests:
        pieces = request_frame(request, 1, 1, None)
        yield b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))[SIZE.size :]


def logins() -> Iterator[object]:
    """All that is shown of logins, good and bad."""
    tokens = first_message(TOKEN), first_message(TOKEN[:-3] + "AAA"), first_message(TOKEN, PASSWORD[:5])
    cases: list[tuple[str, tuple[bytes, ...]]] = [
        ("PLAIN", (f"\0alice\0{PASSWORD}".encode(),)),
        ("PLAIN", (f"\0alice\0{PASSWORD}x".encode(),)),
        ("PLAIN", (f"{PASSWORD}\0x".encode(),)),
        ("SCRAM-SHA-256", (b"n,,n=alice,r=x", b"c=biws,r=xnonce,p=" + base64.b64encode(PASSWORD.encode()))),
        ("SCRAM-SHA-256", (f"n,,n={PASSWORD}".encode(),)),
        *(("OAUTHBEARER", (message,)) for message in tokens),
    ]
    for mechanism, messages in cases:
        authenticator = sasl_authenticator.SaslAuthenticator(listener())
        for frame in frames(mechanism, *messages):
            yield authenticator.receive(frame, 1_000_000, 0)
        yield authenticator.session
    yield [listener(), CREDENTIAL]


def refusals() -> Iterator[Exception]:
    """Errors about settings, stores and values with a secret within."""
    secret, pem = Secret.of(PASSWORD), Secret.of(BROKER.key_pem())
    encoder = password_encoder.PasswordEncoder(secret, os.urandom, iterations=1)
    store, trust = key_stores.KeyStoreSettings, key_stores.TrustStoreSettings
    attempts: list[Callable[[], object]] = [
        lambda: jaas.parse_jaas_line("s", Secret.of(f'x.Y required password="{PASSWORD}";')),
        lambda: jaas.parse_jaas_line("s", Secret.of(f"x.Y required password={PASSWORD}")),
        lambda: jaas.parse_jaas_line("s", Secret.of(f'{jaas.PLAIN_LOGIN_MODULE} required password "{PASSWORD}";')),
        lambda: key_stores.load_key_store(store("JKS", key=pem, certificate_chain=pem), lambda _: b""),
        lambda: key_stores.load_key_store(store("PEM", key=pem, certificate_chain=secret), lambda _: b""),
        lambda: key_stores.load_key_store(store("PKCS12", "/x", secret), lambda _: BROKER.pkcs12("other")),
        lambda: key_stores.load_trust_store(trust("PEM", certificates=pem), lambda _: b""),
        lambda: tls.ListenerTls.load(tls.TlsSettings(store("PEM", "/x")), lambda _: BROKER.key_pem().encode()),
        lambda: password_encoder.decode_password(Secret.of("other"), encoder.encode(secret)),
        lambda: scram_credentials.parse_credential(scram_credentials.credential_text(CREDENTIAL) + ",x"),
    ]
    for attempt in attempts:
        with pytest.raises((ValueError, password_encoder.PasswordNotDecoded)) as refused:
            attempt()
        yield refused.value


def assert_none_shown(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


def test_cve_2019_12399_no_error_and_no_repr_contains_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert_none_shown(repr(list(logins())))
        for error in refusals():
            assert_none_shown(f"{error} {error!r} {error.__cause__!r} {error.args}")
    assert_none_shown(caplog.text)


def test_cve_2026_33558_the_modules_of_a_login_write_no_log() -> None:
    """What they learn leaves them in a step or an error alone, so that the test above sees all of it."""
    for module in (jaas, jks, key_stores, oauthbearer, password_encoder, plain, sasl_authenticator, scram, tls):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert "logging" not in imported, module


def test_secrets_are_compared_in_constant_time() -> None:
    """CVE-2021-38153: == on what `reveal` returns would stop at the first byte that differs."""
    for path in Path(leadline.security.__file__).parent.glob("*.py"):
        assert not re.search(r"reveal(_text)?\(\)\s*[!=]=|[!=]=\s*\w+(\.\w+)*\.reveal", path.read_text()), path
