"""Logins under random input: nothing but the password opens, and nothing that a client sends is more than a refusal."""

import base64

from hypothesis import assume, given
from hypothesis import strategies as st

from leadline.security.oauthbearer import AccessToken, InvalidToken, OAuthBearerExchange
from leadline.security.plain import PlainExchange
from leadline.security.principal import Principal
from leadline.security.sasl_authenticator import LoginState, SaslAuthenticator, SaslListener
from leadline.security.sasl_mechanisms import Authenticated, Challenge, EnabledMechanisms, Failed
from leadline.security.scram import ScramClient, ScramExchange, ScramUsers
from leadline.security.scram_credentials import ScramMechanism, credential_of_password
from leadline.security.secret import Secret
from leadline.wire.messages import ApiVersionsResponse

SHA_256 = ScramMechanism.SCRAM_SHA_256
PASSWORD = Secret.of("the password")
CREDENTIAL = credential_of_password(SHA_256, PASSWORD, b"salt")
NAMES = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1)
NONCES = st.text(st.sampled_from([chr(code) for code in range(0x21, 0x7F) if chr(code) != ","]), min_size=1)


def refuse(token: str, now_ms: int) -> AccessToken:
    raise InvalidToken("never")


def scram(name: str = "alice", nonce: str = "server") -> ScramExchange:
    users = ScramUsers({name: CREDENTIAL}.get, lambda _: None, Secret(b"decoys"))
    return ScramExchange(SHA_256, users, nonce)


def login() -> SaslAuthenticator:
    mechanisms = EnabledMechanisms(
        {
            "PLAIN": lambda: PlainExchange({"alice": PASSWORD}.get),
            "SCRAM-SHA-256": scram,
            "OAUTHBEARER": lambda: OAuthBearerExchange(refuse),
        }
    )
    return SaslAuthenticator(SaslListener(mechanisms, {}, lambda *_: ApiVersionsResponse(), lambda *_: None))


@given(NAMES, NONCES, NONCES)
def test_every_name_and_every_nonce_log_in_with_the_password(name: str, one: str, other: str) -> None:
    server, client = scram(name, other), ScramClient(SHA_256, name, PASSWORD, one)
    challenge = server.evaluate(client.answer(b""), 0)
    assert isinstance(challenge, Challenge)
    outcome = server.evaluate(client.answer(challenge.data), 0)
    assert isinstance(outcome, Authenticated)
    assert outcome.principal == Principal("User", name)
    assert client.answer(outcome.data) == b""


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_a_changed_client_final_never_logs_in(at: int, data: bytes) -> None:
    server, client = scram(), ScramClient(SHA_256, "alice", PASSWORD, "client")
    challenge = server.evaluate(client.answer(b""), 0)
    assert isinstance(challenge, Challenge)
    final = client.answer(challenge.data)
    changed = final[:at] + data + final[at + len(data) :]
    assume(changed != final)
    assert isinstance(server.evaluate(changed, 0), Failed)


@given(st.binary(min_size=32, max_size=32))
def test_no_proof_fits_a_name_that_does_not_exist(proof: bytes) -> None:
    server = scram()
    server.evaluate(b"n,,n=nobody,r=x", 0)
    assert isinstance(server.evaluate(b"c=biws,r=xserver,p=" + base64.b64encode(proof), 0), Failed)


FRAMES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b"\0\x12\0\0\0\0\0\1\xff\xff",
                *(
                    b"\0\x11\0" + version + b"\0\0\0\1\xff\xff\0" + bytes([len(name)]) + name
                    for version in (b"\0", b"\1")
                    for name in (b"PLAIN", b"SCRAM-SHA-256", b"OAUTHBEARER", b"GSSAPI")
                ),
                *(
                    b"\0\x24\0\1\0\0\0\1\xff\xff\0\0\0" + bytes([len(token)]) + token
                    for token in (b"\0alice\0wrong", b"n,,n=alice,r=x", b"c=biws,r=xserver,p=", b"\x01", b"")
                ),
            ]
        ),
    ),
    max_size=6,
)


@given(FRAMES)
def test_no_frames_without_the_password_complete_a_login_or_raise(frames: list[bytes]) -> None:
    authenticator = login()
    for frame in frames:
        step = authenticator.receive(frame, 0, 0)
        assert step.session is None
        if step.failure is not None:
            assert authenticator.state is LoginState.FAILED
            return
    assert authenticator.state is not LoginState.COMPLETE
