"""GSSAPI, message by message, over a scripted context. Real tickets are in tests/clients/test_kerberos_logins.py."""

import pytest

from leadline.runtime.kerberos import KerberosError
from leadline.security.gssapi import GssapiClient, GssapiClientFailed, GssapiExchange
from leadline.security.kerberos_names import ShortNames
from leadline.security.principal import Principal
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed, Outcome
from tests.support.scripted_kerberos import REALM, ScriptedAcceptor, ScriptedInitiator, Unreachable

SERVICE = f"kafka/host@{REALM}"
TICKET = f"ticket alice@{REALM} for kafka@host".encode()
OFFER = b"wrapped \1\0\0\0"


def exchange(*rules: str) -> GssapiExchange:
    return GssapiExchange(lambda: ScriptedAcceptor(SERVICE), ShortNames(rules or ("DEFAULT",), REALM))


def play(server: GssapiExchange, *messages: bytes) -> Outcome:
    """The last outcome."""
    return [server.evaluate(message, 0).run() for message in messages][-1]


def test_a_ticket_says_who_a_client_is() -> None:
    server = exchange()
    assert play(server, TICKET) == Challenge(OFFER)
    assert play(server, OFFER) == Authenticated(Principal("User", "alice"), is_silent=True)


def test_a_client_that_asks_for_it_is_shown_who_the_server_is_before_the_offer() -> None:
    server = exchange()
    assert play(server, TICKET + b" mutual") == Challenge(b"reply")
    assert play(server, b"") == Challenge(OFFER)
    assert isinstance(play(server, OFFER), Authenticated)


@pytest.mark.parametrize("authorization_id", [b"", b"alice@REALM.COM", b"root@REALM.COM"])
def test_cve_2017_12610_an_authorization_id_changes_nothing(authorization_id: bytes) -> None:
    outcome = play(exchange(), TICKET, OFFER + authorization_id)
    assert outcome == Authenticated(Principal("User", "alice"), is_silent=True)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b""], "Wrong principal in request"),
        ([b"ticket alice@REALM.COM for kafka@elsewhere"], "Wrong principal in request"),
        ([b"ticket alice@OTHER for kafka@host", OFFER], "No rules apply to alice@OTHER"),
        ([TICKET + b" mutual", b"more"], "a token after the context was established"),
        ([TICKET, b"\1\0\0\0"], "Invalid token was supplied"),
        ([TICKET, b"wrapped \2\0\0\0"], "selects a security layer"),
        ([TICKET, b"wrapped \4\0\xff\xff"], "selects a security layer"),
        ([TICKET, b"wrapped \1\0\0"], "selects a security layer"),
        ([TICKET, b"wrapped "], "selects a security layer"),
    ],
)
def test_what_is_wrong_is_for_our_log_alone(messages: list[bytes], reason: str) -> None:
    outcome = play(exchange(), *messages)
    assert isinstance(outcome, Failed)
    assert outcome.message is None
    assert reason in outcome.reason
    assert not outcome.is_retriable


def test_a_replay_may_succeed_at_the_next_attempt() -> None:
    assert play(exchange(), b"replay") == Failed(reason="GSSAPI: Request is a replay", is_retriable=True)


def test_our_own_client_logs_in_to_our_own_server() -> None:
    server, client = exchange("RULE:[2:$1;$2]"), GssapiClient(ScriptedInitiator(SERVICE, "kafka@host"))
    message = client.resume(client.evaluate(b"").run())
    while isinstance(outcome := play(server, message), Challenge):
        assert not client.is_complete
        message = client.resume(client.evaluate(outcome.data).run())
    assert client.is_complete
    assert outcome == Authenticated(Principal("User", "kafka;host"), is_silent=True)


@pytest.mark.parametrize(
    ("challenges", "reason"),
    [
        ([b"", b"nonsense"], "Invalid token was supplied"),
        ([b"", b"reply", b"\1\0\0\0"], "Invalid token was supplied"),
        ([b"", b"reply", b"wrapped \6\0\0\0"], "insists on a security layer"),
        ([b"", b"reply", b"wrapped \1\0\0"], "insists on a security layer"),
        ([b"", b"reply", b"wrapped \1\0\0\0\0"], "insists on a security layer"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_left(challenges: list[bytes], reason: str) -> None:
    client = GssapiClient(ScriptedInitiator(SERVICE, "kafka@host"))
    *before, last = challenges
    for challenge in before:
        client.resume(client.evaluate(challenge).run())
    answer = client.evaluate(last).run()
    assert isinstance(answer, KerberosError)
    with pytest.raises(GssapiClientFailed, match=reason):
        client.resume(answer)
    assert not client.is_complete


def test_a_ticket_that_is_not_to_be_had_is_a_failure_of_the_login() -> None:
    client = GssapiClient(Unreachable())
    with pytest.raises(GssapiClientFailed, match="GSSAPI: Cannot contact any KDC"):
        client.resume(client.evaluate(b"").run())
