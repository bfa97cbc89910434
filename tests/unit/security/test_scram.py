"""SCRAM: both sides of the exchange, what fails it, and what an attacker does not learn."""

import base64
import dataclasses
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from unittest.mock import patch

import pytest

from leadline.security.principal import Principal
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed, Outcome
from leadline.security.scram import (
    OTHER_AUTHORIZATION_ID,
    ScramClient,
    ScramClientFailed,
    ScramClientState,
    ScramExchange,
    ScramUsers,
    TokenCredential,
)
from leadline.security.scram_credentials import (
    KAFKAS_FORM,
    CredentialForm,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
)
from leadline.security.secret import Secret

SHA_256, SHA_512 = ScramMechanism
NOW_MS = 1_000_000
NAMES = ["alice", "a,b=c", "x=2Cy"]


def users(mechanism: ScramMechanism) -> ScramUsers:
    credentials = {
        name: credential_of_password(mechanism, Secret.of(f"{name}-secret"), b"salt of " + name.encode())
        for name in NAMES
    }
    credentials["weak"] = credential_of_password(mechanism, Secret.of("weak-secret"), b"salt", 4095)
    tokens = {
        "token": TokenCredential(
            Principal("User", "owner"), credential_of_password(mechanism, Secret.of("hmac"), b"t"), NOW_MS + 500
        ),
        "old": TokenCredential(
            Principal("User", "owner"), credential_of_password(mechanism, Secret.of("hmac"), b"t"), NOW_MS
        ),
    }
    return ScramUsers(credentials.get, tokens.get, Secret(b"decoy key"))


USERS = {mechanism: users(mechanism) for mechanism in ScramMechanism}


def exchange(mechanism: ScramMechanism = SHA_256, nonce: str = "server") -> ScramExchange:
    return ScramExchange(mechanism, USERS[mechanism], nonce)


def log_in(
    name: str,
    password: str,
    mechanism: ScramMechanism = SHA_256,
    by_token: bool = False,
    change: Callable[[bytes], bytes] = bytes,
) -> Outcome:
    """A whole login; `change` tampers with client final."""
    server = exchange(mechanism)
    client = ScramClient(mechanism, name, Secret.of(password), "client", by_token)
    challenge = server.evaluate(client.answer(b""), NOW_MS)
    if not isinstance(challenge, Challenge):
        return challenge
    outcome = server.evaluate(change(client.answer(challenge.data)), NOW_MS)
    if isinstance(outcome, Authenticated):
        assert client.answer(outcome.data) == b""
        assert client.state is ScramClientState.COMPLETE
    return outcome


def principal_of(outcome: Outcome) -> Principal | None:
    return outcome.principal if isinstance(outcome, Authenticated) else None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_both_sides_prove_that_they_know_the_password(mechanism: ScramMechanism, name: str) -> None:
    assert principal_of(log_in(name, f"{name}-secret", mechanism)) == Principal("User", name)


def test_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of_password(SHA_256, Secret.of("pencil"), salt)
    lookup = ScramUsers({"user": credential}.get, lambda _: None, Secret(b""))
    server = ScramExchange(SHA_256, lookup, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0)
    assert first == Challenge(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.evaluate(final, 0) == Authenticated(Principal("User", "user"), signature)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("password", ["wrong", "", "alice-secre"])
def test_a_wrong_password_fails_without_words(mechanism: ScramMechanism, password: str) -> None:
    outcome = log_in("alice", password, mechanism)
    assert isinstance(outcome, Failed)
    assert outcome.message is None


def with_nonce(final: bytes) -> bytes:
    return final.replace(b"r=client", b"r=cliens")


def signed_anew(change: Callable[[bytes], bytes]) -> Outcome:
    """A client that knows the password and changes client final before it computes its proof."""
    server = exchange()
    bare = b"n=alice,r=client"
    challenge = server.evaluate(b"n,," + bare, NOW_MS)
    assert isinstance(challenge, Challenge)
    without_proof = change(b"c=biws,r=clientserver")
    salted = hashlib.pbkdf2_hmac("sha256", b"alice-secret", b"salt of alice", 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    auth_message = b",".join([bare, challenge.data, without_proof])
    signature = hmac.digest(hashlib.sha256(key).digest(), auth_message, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return server.evaluate(without_proof + b",p=" + base64.b64encode(proof), NOW_MS)


def test_the_clients_own_proof_is_accepted() -> None:
    assert principal_of(signed_anew(bytes)) == Principal("User", "alice")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"r=clientserver", b"r=clientserve"),
        (b"r=clientserver", b"r=clientserver2"),
        (b"r=clientserver", b"r=client"),
        (b"r=clientserver", b"r=another"),
        (b"r=clientserver", b"r=anotherclientserver"),
        (b"r=clientserver", b"r=clientclientclientserver"),
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c="),
        (b"c=biws", b"c=" + base64.b64encode(b"n,a=alice,")),
        (b"c=biws", b"c=" + base64.b64encode(b"p=tls-unique,,")),
    ],
)
def test_cve_2024_56128_nonce_and_channel_binding_are_those_of_the_exchange(old: bytes, new: bytes) -> None:
    assert principal_of(signed_anew(lambda message: message.replace(old, new))) is None


def test_librdkafka_before_2_6_1_which_repeats_its_own_nonce_is_let_in() -> None:
    repeated = signed_anew(lambda message: message.replace(b"r=clientserver", b"r=clientclientserver"))
    assert principal_of(repeated) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final[:-4],
        lambda final: re.sub(rb"p=.*", b"p=", final),
        lambda final: re.sub(rb"p=.*", b"p=" + base64.b64encode(bytes(32)), final),
        lambda final: re.sub(rb"p=.*", b"p=" + base64.b64encode(bytes(33)), final),
        lambda final: re.sub(rb"p=.*", b"p=!", final),
        lambda final: final + b",x=y",
        lambda final: b"",
        lambda final: b"\xff" + final,
    ],
)
def test_a_client_final_that_is_not_one_fails(change: Callable[[bytes], bytes]) -> None:
    assert isinstance(log_in("alice", "alice-secret", change=change), Failed)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=x",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=al=2cice,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=x,",
        b"n,,n=alice,r=x,1=y",
        "n,,n=ümlaut,r=x".encode(),
        b"n,,n=alice,r=x\0",
    ],
)
def test_a_client_first_that_kafka_refuses_is_refused(message: bytes) -> None:
    outcome = exchange().evaluate(message, NOW_MS)
    assert isinstance(outcome, Failed)
    assert outcome.message is None


def test_other_extensions_are_ignored_and_signed() -> None:
    server = exchange()
    first = server.evaluate(b"n,,m=ext,n=alice,r=client,zebra=1,ant=2", NOW_MS)
    assert isinstance(first, Challenge)


@pytest.mark.parametrize("authzid", [b"bob", b"nobody", b"token"])
@pytest.mark.parametrize("rest", [b"n=alice,r=x", b"n=nobody2,r=x", b"n=token2,r=x,tokenauth=true"])
def test_cve_2017_12610_another_authorization_id_is_refused_for_users_and_tokens(authzid: bytes, rest: bytes) -> None:
    outcome = exchange().evaluate(b"n,a=" + authzid + b"," + rest, NOW_MS)
    assert outcome == Failed(OTHER_AUTHORIZATION_ID)


def test_ones_own_authorization_id_is_part_of_the_channel_binding() -> None:
    server = exchange()
    client = ScramClient(SHA_256, "alice", Secret.of("alice-secret"), "client")
    challenge = server.evaluate(client.answer(b"").replace(b"n,,", b"n,a=alice,"), NOW_MS)
    assert isinstance(challenge, Challenge)
    assert isinstance(server.evaluate(client.answer(challenge.data), NOW_MS), Failed)


# Tokens


def test_a_token_logs_its_owner_in_until_it_expires() -> None:
    outcome = log_in("token", "hmac", by_token=True)
    assert isinstance(outcome, Authenticated)
    assert outcome.principal == Principal("User", "owner")
    assert outcome.principal.token_authenticated
    assert outcome.expires_ms == NOW_MS + 500


@pytest.mark.parametrize(
    ("name", "by_token"), [("old", True), ("nothing", True), ("alice", True), ("token", False), ("owner", True)]
)
def test_an_expired_token_an_unknown_one_and_a_user_as_token_fail_alike(name: str, by_token: bool) -> None:
    outcome = log_in(name, "hmac", by_token=by_token)
    assert isinstance(outcome, Failed)
    assert outcome.message is None


# What an attacker learns


def first_answer(name: str, nonce: str = "server") -> bytes:
    answer = exchange(nonce=nonce).evaluate(f"n,,n={name},r=x".encode(), NOW_MS)
    assert isinstance(answer, Challenge)
    return answer.data


def test_a_name_that_does_not_exist_gets_a_salt_of_its_own_that_stays() -> None:
    assert first_answer("nobody") == first_answer("nobody")
    assert first_answer("nobody") != first_answer("nobody2")
    assert re.fullmatch(rb"r=xserver,s=[A-Za-z0-9+/]{32,}=*,i=4096", first_answer("nobody"))


NOBODIES = [f"nobody{number}" for number in range(200)]


def decoy_form(name: str, *forms: CredentialForm) -> CredentialForm:
    """What the server shows of a user that does not exist, if its users have these forms."""
    users = dataclasses.replace(USERS[SHA_256], forms=lambda: forms)
    answer = ScramExchange(SHA_256, users, "server").evaluate(f"n,,n={name},r=x".encode(), NOW_MS)
    assert isinstance(answer, Challenge)
    fields = dict(part.split(b"=", 1) for part in answer.data.split(b","))
    credential = ScramCredential(base64.b64decode(fields[b"s"]), Secret(b""), Secret(b""), int(fields[b"i"]))
    return CredentialForm.of(credential)


@pytest.mark.parametrize(
    "forms",
    [
        {KAFKAS_FORM},
        {CredentialForm(8192, 32)},
        {CredentialForm(8192, 32), KAFKAS_FORM, CredentialForm(4096, 64), CredentialForm(16384, 100)},
    ],
)
def test_a_name_that_does_not_exist_looks_like_the_users_that_do(forms: set[CredentialForm]) -> None:
    """Other iterations, or a salt of another length, would tell that there is no such user."""
    assert {decoy_form(name, *forms) for name in NOBODIES} == forms


def test_a_new_form_of_users_takes_over_some_names_and_leaves_the_others() -> None:
    forms, new = (KAFKAS_FORM, CredentialForm(8192, 32)), CredentialForm(4096, 64)
    changed = [name for name in NOBODIES if decoy_form(name, *forms) != decoy_form(name, new, *forms)]
    assert 0 < len(changed) < len(NOBODIES) / 2
    assert {decoy_form(name, new, *forms) for name in changed} == {new}


@pytest.mark.parametrize("name", ["nobody", "weak"])
def test_an_unknown_user_and_a_weak_credential_fail_at_the_message_at_which_a_wrong_password_does(name: str) -> None:
    wrong, unknown = log_in("alice", "wrong"), log_in(name, f"{name}-secret")
    assert isinstance(wrong, Failed)
    assert isinstance(unknown, Failed)
    assert wrong.message == unknown.message


def test_the_keys_of_the_decoy_do_not_log_in() -> None:
    """Whoever knew the key of the decoys could compute a proof that fits them."""
    server = exchange()
    with patch.object(hmac, "compare_digest", return_value=True):
        server.evaluate(b"n,,n=nobody,r=x", NOW_MS)
        final = b"c=biws,r=xserver,p=" + base64.b64encode(bytes(32))
        assert isinstance(server.evaluate(final, NOW_MS), Failed)


MOST_BYTES = 524_000  # of a message before the login


@pytest.mark.parametrize(
    ("first", "final"),
    [
        (b"n,,n=" + b"a" * MOST_BYTES + b",r=x", None),
        (b"n,,n=" + b"a" * MOST_BYTES, None),
        (b"n,,n=" + b"=2C" * (MOST_BYTES // 3) + b",r=x", None),
        (b"n,a=" + b"a" * MOST_BYTES + b",n=a,r=x", None),
        (b"n,,n=a,r=x" + b",a=b" * (MOST_BYTES // 4), None),
        (b"n,,n=a,r=x", b"c=" + b"AAAA" * (MOST_BYTES // 4)),
        (b"n,,n=a,r=x", b"c=biws,r=xserver" + b",p=b" * (MOST_BYTES // 4) + b"*"),
        (b"n,,n=a,r=x", b"c=biws,r=xserver,p=" + b"AAAA" * (MOST_BYTES // 4) + b"*"),
    ],
    ids=["name", "no nonce", "escapes", "authzid", "extensions", "channel", "proofs", "proof"],
)
def test_half_a_megabyte_of_a_stranger_takes_milliseconds(first: bytes, final: bytes | None) -> None:
    """Of the CPU; nobody else is served meanwhile."""
    times_s = []
    for _ in range(3):
        server, began_s = exchange(), time.process_time()
        server.evaluate(first, NOW_MS)
        if final is not None:
            server.evaluate(final, NOW_MS)
        times_s.append(time.process_time() - began_s)
    assert min(times_s) < 0.02


def test_no_repr_shows_proofs_salts_or_signatures() -> None:
    outcome = log_in("alice", "alice-secret")
    assert isinstance(outcome, Authenticated)
    assert base64.b64encode(outcome.data).decode()[:8] not in repr(outcome)
    assert "v=" not in repr(outcome)
    assert "s=" not in repr(exchange().evaluate(b"n,,n=alice,r=x", NOW_MS))


def test_a_login_costs_the_server_two_hmacs_and_no_pbkdf2() -> None:
    client = ScramClient(SHA_256, "alice", Secret.of("alice-secret"), "client")
    server = exchange()
    first = client.answer(b"")
    challenge = server.evaluate(first, NOW_MS)
    assert isinstance(challenge, Challenge)
    final = client.answer(challenge.data)
    with patch.object(hashlib, "pbkdf2_hmac") as pbkdf2, patch.object(hmac, "digest", wraps=hmac.digest) as digest:
        assert isinstance(server.evaluate(final, NOW_MS), Authenticated)
    assert (pbkdf2.call_count, digest.call_count) == (0, 2)


# The client's side


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=clientserver,s=c2FsdA==",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=client,s=c2FsdA==,i=4096",
        b"r=clientserver,s=c2FsdA==,i=4095",
        b"r=clientserver,s=c2FsdA==,i=0",
        b"r=clientserver,s=c2FsdA==,i=-5000",
        b"r=clientserver,s=!,i=4096",
    ],
)
def test_the_client_refuses_a_server_first_that_is_not_right(challenge: bytes) -> None:
    client = ScramClient(SHA_256, "alice", Secret.of("p"), "client")
    client.answer(b"")
    with pytest.raises(ScramClientFailed):
        client.answer(challenge)


@pytest.mark.parametrize("iterations", [b"1000001", b"2147483647", b"9" * 5000])
def test_cve_2026_10143_the_client_does_not_do_as_many_iterations_as_a_server_likes(iterations: bytes) -> None:
    client = ScramClient(SHA_256, "alice", Secret.of("p"), "client")
    client.answer(b"")
    with pytest.raises(ScramClientFailed, match=r"iterations beyond 4096|invalid SCRAM"):
        client.answer(b"r=clientserver,s=c2FsdA==,i=" + iterations)


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", b"x"])
def test_the_client_refuses_a_server_that_does_not_know_the_password(final: bytes) -> None:
    client = ScramClient(SHA_256, "alice", Secret.of("p"), "client")
    client.answer(b"")
    client.answer(b"r=clientserver,s=c2FsdA==,i=4096")
    with pytest.raises(ScramClientFailed):
        client.answer(final)
    assert client.state is not ScramClientState.COMPLETE


def test_a_credential_is_looked_up_by_its_decoded_name() -> None:
    names: list[str] = []

    def credential_of(name: str) -> ScramCredential | None:
        names.append(name)
        return None

    lookup = ScramUsers(credential_of, lambda _: None, Secret(b""))
    ScramExchange(SHA_256, lookup, "s").evaluate(b"n,,n=a=2Cb=3D2C,r=x", 0)
    assert names == ["a,b=2C"]
