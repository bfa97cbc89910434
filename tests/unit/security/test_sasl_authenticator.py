"""The login of a connection, arrow by arrow. What Kafka answers to the same frames is compared in tests/conformance."""

import itertools
import time
import tracemalloc
from typing import TypeVar

import pytest

from leadline.security.plain import PlainExchange
from leadline.security.principal import Principal
from leadline.security.sasl_authenticator import (
    MAY_FOLLOW,
    Admission,
    LoginFailure,
    LoginState,
    LoginStep,
    SaslAuthenticator,
    SaslListener,
)
from leadline.security.sasl_mechanisms import Authenticated, Challenge, EnabledMechanisms, Failed, Outcome
from leadline.security.secret import Secret
from leadline.wire.apis import APIS
from leadline.wire.classes import Message
from leadline.wire.frames import SIZE, parse_response, request_frame
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from leadline.wire.primitives import BUFFERS
from tests.support.sasl_listeners import received, sasl_listener
from tests.support.scripted_kerberos import REALM

M = TypeVar("M", bound=Message)
NOW_MS, MONOTONIC_MS = 1_700_000_000_000, 5_000
GOOD, WRONG, BOB = b"\0alice\0alice-secret", b"\0alice\0wrong", b"\0bob\0bob-secret"
LISTED = ["PLAIN", "TWO-STEP"]
PASSWORDS = {"alice": Secret.of("alice-secret"), "bob": Secret.of("bob-secret")}


class TwoStep:
    """A mechanism with a challenge and a credential that expires: `hello`, then how many milliseconds it lasts."""

    def evaluate(self, response: bytes, now_ms: int) -> Outcome:
        if response == b"hello":
            return Challenge(b"and?")
        if not response.lstrip(b"-").isdigit():
            return Failed(reason="no number")
        return Authenticated(Principal("User", "alice"), b"bye", now_ms + int(response))


def api_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=42 if version >= 3 and request.client_software_name == "" else 0)


def error_response(request: Message, version: int, code: int) -> Message | None:
    if isinstance(request, ProduceRequest):
        return None
    response = APIS[request.API_KEY or 0].response()
    if hasattr(response, "error_code"):
        response.error_code = code
    return response


def authenticator(**max_reauth_ms: int) -> SaslAuthenticator:
    mechanisms = EnabledMechanisms({"PLAIN": lambda: PlainExchange(PASSWORDS.get), "TWO-STEP": TwoStep})
    limits = {name.replace("_", "-"): limit for name, limit in max_reauth_ms.items()}
    return SaslAuthenticator(SaslListener(mechanisms, limits, api_versions, error_response))


def frame(request: Message, version: int) -> bytes:
    pieces = request_frame(request, version, 7, "client")
    return b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))[SIZE.size :]


def handshake(version: int = 1, mechanism: str = "PLAIN") -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 1) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=data), version)


def versions(version: int = 3, name: str = "x") -> bytes:
    software = {"client_software_name": name, "client_software_version": "1"} if version >= 3 else {}
    return frame(ApiVersionsRequest(**software), version)


METADATA = frame(MetadataRequest(topics=[]), 4)


def play(login: SaslAuthenticator, *frames: bytes, monotonic_ms: int = MONOTONIC_MS) -> LoginStep:
    """The last step."""
    steps = [login.receive(part, NOW_MS, monotonic_ms) for part in frames]
    return steps[-1]


def read(kind: type[M], data: bytes, version: int) -> M:
    (size,) = SIZE.unpack_from(data)
    assert size == len(data) - SIZE.size
    correlation_id, message = parse_response(kind, data[SIZE.size :], version)
    assert correlation_id == 7
    return message


def failure_of(step: LoginStep) -> LoginFailure:
    assert step.failure is not None
    assert not step.send
    return step.failure


@pytest.mark.parametrize("before", [[], [versions()], [versions(name=""), versions()]])
@pytest.mark.parametrize("version", SaslAuthenticateRequest.VERSIONS)
def test_handshake_and_token_make_a_session(before: list[bytes], version: int) -> None:
    login = authenticator()
    step = play(login, *before, handshake(), token(GOOD, version))
    answer = read(SaslAuthenticateResponse, step.send, version)
    assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, "", 0)
    assert step.session is not None
    assert step.session.principal == Principal("User", "alice")
    assert step.session.expires_monotonic_ms is None
    assert login.state is LoginState.COMPLETE


@pytest.mark.parametrize("version", SaslHandshakeRequest.VERSIONS)
def test_the_handshake_lists_the_mechanisms(version: int) -> None:
    answer = read(SaslHandshakeResponse, play(authenticator(), handshake(version)).send, version)
    assert (answer.error_code, answer.mechanisms) == (0, LISTED)


@pytest.mark.parametrize("version", SaslHandshakeRequest.VERSIONS)
@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(version: int, mechanism: str) -> None:
    login = authenticator()
    failure = failure_of(play(login, handshake(version, mechanism)))
    answer = read(SaslHandshakeResponse, failure.response, version)
    assert (answer.error_code, answer.mechanisms, failure.delayed) == (33, LISTED, True)
    assert login.state is LoginState.FAILED


def test_after_handshake_v0_tokens_travel_bare() -> None:
    step = play(authenticator(), handshake(0), GOOD)
    assert step.send == bytes(4)
    assert step.session is not None
    login = authenticator()
    assert play(login, handshake(0, "TWO-STEP"), b"hello").send == b"\0\0\0\4and?"
    assert play(login, b"60000").send == b"\0\0\0\3bye"


def test_after_handshake_v0_a_failure_has_no_answer() -> None:
    failure = failure_of(play(authenticator(), handshake(0), WRONG))
    assert (failure.response, failure.delayed) == (b"", True)


@pytest.mark.parametrize("version", SaslAuthenticateRequest.VERSIONS)
def test_a_refused_token_is_answered_after_the_delay(version: int) -> None:
    failure = failure_of(play(authenticator(), handshake(), token(WRONG, version)))
    answer = read(SaslAuthenticateResponse, failure.response, version)
    assert (answer.error_code, answer.error_message) == (58, "Authentication failed: Invalid username or password")
    assert failure.delayed


def test_a_mechanism_without_words_gets_kafkas() -> None:
    failure = failure_of(play(authenticator(), handshake(mechanism="TWO-STEP"), token(b"hello"), token(b"nonsense")))
    assert read(SaslAuthenticateResponse, failure.response, 1).error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism TWO-STEP"
    )
    assert failure.reason == "no number"


def test_a_refused_api_versions_may_be_repeated_and_a_successful_one_may_not() -> None:
    login = authenticator()
    too_new = b"\0\x12\0\x63" + versions()[4:]
    for part, version, code in ((too_new, 0, 35), (versions(name=""), 3, 42), (too_new, 0, 35), (versions(), 3, 0)):
        assert read(ApiVersionsResponse, play(login, part).send, version).error_code == code
    failure = failure_of(play(login, versions()))
    assert (failure.response, failure.delayed) == (b"", False)


@pytest.mark.parametrize("before", [[], [versions(name="")], [versions()]])
@pytest.mark.parametrize("request_frame", [METADATA, METADATA[:8], token(GOOD)])
def test_another_request_before_the_handshake_closes_after_the_delay(before: list[bytes], request_frame: bytes) -> None:
    login = authenticator()
    step = play(login, *before, request_frame)
    failure = failure_of(step)
    assert failure.response == b""
    assert failure.delayed or request_frame == METADATA[:8]


@pytest.mark.parametrize("data", [b"", b"\x60\x82", b"\x60\x82\1\2\3\4\5\6\7\x08", b"\x7f\xff\0\0\0\0\0\1\xff\xff"])
def test_a_first_frame_that_is_no_request_closes_after_the_delay(data: bytes) -> None:
    failure = failure_of(play(authenticator(), data))
    assert (failure.response, failure.delayed) == (b"", True)


@pytest.mark.parametrize("data", [b"", b"\x60\x82", b"\0\x11\0\1", handshake()[:-1], b"\0\x11\0\2" + handshake()[4:]])
def test_a_later_frame_that_cannot_be_parsed_closes_at_once(data: bytes) -> None:
    failure = failure_of(play(authenticator(), versions(), data))
    assert (failure.response, failure.delayed) == (b"", False)


@pytest.mark.parametrize("data", [b"", token(GOOD)[:9], token(GOOD)[:-1], b"\0\x24\0\x09" + token(GOOD)[4:]])
def test_an_authenticate_that_cannot_be_parsed_closes_at_once(data: bytes) -> None:
    failure = failure_of(play(authenticator(), handshake(), data))
    assert (failure.response, failure.delayed) == (b"", False)


@pytest.mark.parametrize(("request_frame", "version"), [(versions(), 3), (versions(0), 0)])
def test_another_request_than_authenticate_is_answered_with_34(request_frame: bytes, version: int) -> None:
    failure = failure_of(play(authenticator(), handshake(), request_frame))
    assert read(ApiVersionsResponse, failure.response, version).error_code == 34
    assert failure.delayed


def test_a_large_request_in_place_of_authenticate_is_not_decoded() -> None:
    """That would take the time of all others, for a client that is not known yet."""
    topics = [MetadataRequest.MetadataRequestTopic(name="topic") for _ in range(70_000)]
    large, times_s = frame(MetadataRequest(topics=topics), 4), []
    for _ in range(3):
        login, began_s = authenticator(), time.process_time()
        failure = play(login, handshake(), large).failure
        times_s.append(time.process_time() - began_s)
        assert failure is not None
        assert failure.reason == "unexpected Metadata during the login"
        assert failure.delayed
    assert min(times_s) < 0.01


def test_a_request_without_a_response_just_closes() -> None:
    produce = frame(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 7)
    assert failure_of(play(authenticator(), handshake(), produce)).response == b""


def test_a_frame_beyond_the_limit_fails_after_the_delay() -> None:
    login = authenticator()
    assert failure_of(login.refuse_size("a request of 9 bytes")).delayed
    assert login.state is LoginState.FAILED


# Sessions


@pytest.mark.parametrize(
    ("max_reauth_ms", "credential_ms", "lifetime_ms"),
    [(0, 500, 500), (1000, 500, 500), (300, 500, 300), (0, -5, 0), (300, -5, 0)],
)
def test_the_shorter_of_setting_and_credential_bounds_the_session(
    max_reauth_ms: int, credential_ms: int, lifetime_ms: int
) -> None:
    login = authenticator(TWO_STEP=max_reauth_ms)
    step = play(login, handshake(mechanism="TWO-STEP"), token(b"%d" % credential_ms))
    assert read(SaslAuthenticateResponse, step.send, 1).session_lifetime_ms == lifetime_ms
    assert step.session is not None
    assert step.session.expires_monotonic_ms == MONOTONIC_MS + lifetime_ms


@pytest.mark.parametrize(("frames"), [(handshake(0), GOOD), (handshake(), token(GOOD, 0))])
def test_the_lifetime_holds_also_for_clients_that_never_hear_of_it(frames: tuple[bytes, ...]) -> None:
    login = authenticator(PLAIN=100)
    play(login, *frames)
    assert login.admit(3, MONOTONIC_MS + 100) is Admission.SERVE
    assert login.admit(3, MONOTONIC_MS + 101) is Admission.CLOSE


def test_a_session_without_an_end_serves_everything() -> None:
    login = authenticator()
    play(login, handshake(), token(GOOD))
    assert {login.admit(key, 10**12) for key in (3, 17, 36)} == {Admission.SERVE}


def reauthenticating() -> SaslAuthenticator:
    login = authenticator(PLAIN=100, TWO_STEP=100)
    play(login, handshake(), token(GOOD))
    return login


@pytest.mark.parametrize("after_ms", [0, 50, 5000])
def test_a_handshake_on_a_session_with_an_end_begins_anew(after_ms: int) -> None:
    login = reauthenticating()
    at_ms = MONOTONIC_MS + after_ms
    assert login.admit(17, at_ms) is Admission.REAUTHENTICATE
    step = play(login, handshake(), token(GOOD), monotonic_ms=at_ms)
    assert step.session is not None
    assert step.session.expires_monotonic_ms == at_ms + 100
    assert login.admit(17, at_ms + 999) is Admission.SERVE
    assert login.admit(17, at_ms + 1000) is Admission.REAUTHENTICATE


def test_another_mechanism_fails_at_the_message_after_the_handshake() -> None:
    login = reauthenticating()
    step = play(login, handshake(mechanism="TWO-STEP"))
    assert read(SaslHandshakeResponse, step.send, 1).error_code == 0
    failure = failure_of(play(login, token(b"hello")))
    assert (failure.response, failure.delayed) == (b"", True)


def test_a_mechanism_that_is_not_enabled_ends_a_session_at_once() -> None:
    failure = failure_of(play(reauthenticating(), handshake(mechanism="GSSAPI")))
    assert (failure.response, failure.delayed) == (b"", False)


def test_reauthentication_cannot_change_the_principal() -> None:
    login = reauthenticating()
    failure = failure_of(play(login, handshake(), token(BOB)))
    assert read(SaslAuthenticateResponse, failure.response, 1).error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert failure_of(play(reauthenticating(), handshake(0), BOB)).response == b""


def test_a_failure_says_that_it_was_a_reauthentication() -> None:
    login = authenticator(TWO_STEP=100)
    play(login, handshake(mechanism="TWO-STEP"), token(b"900"))
    failure = failure_of(play(login, handshake(mechanism="TWO-STEP"), token(b"?")))
    message = read(SaslAuthenticateResponse, failure.response, 1).error_message
    assert message is not None
    assert message.startswith("Authentication failed during re-authentication due to")


def test_api_versions_within_a_reauthentication_is_answered_with_34() -> None:
    failure = failure_of(play(reauthenticating(), handshake(), versions()))
    assert read(ApiVersionsResponse, failure.response, 3).error_code == 34
    assert failure.delayed


# Work for a thread: GSSAPI


TICKET = f"ticket alice@{REALM} for kafka@host".encode()
CHOICE = b"wrapped \1\0\0\0"


def by_ticket() -> SaslAuthenticator:
    return SaslAuthenticator(sasl_listener("GSSAPI", "PLAIN"))


def tokens(login: SaslAuthenticator, *frames: bytes) -> LoginStep:
    """The last step, with the work within."""
    return [received(login, part, NOW_MS, MONOTONIC_MS) for part in frames][-1]


def test_a_token_waits_for_a_thread_and_its_outcome_is_the_answer() -> None:
    login = by_ticket()
    step = play(login, handshake(mechanism="GSSAPI"), token(TICKET))
    assert step.work is not None
    assert step == LoginStep(work=step.work)
    assert login.state is LoginState.WORK
    step = login.resume(step.work.run(), NOW_MS, MONOTONIC_MS)
    assert read(SaslAuthenticateResponse, step.send, 1).auth_bytes == CHOICE
    step = tokens(login, token(CHOICE))
    assert read(SaslAuthenticateResponse, step.send, 1) == SaslAuthenticateResponse(error_message="")
    assert step.session is not None
    assert step.session.principal == Principal("User", "alice")


@pytest.mark.parametrize("before", [[], [handshake(0, "GSSAPI")]])
def test_bare_tokens_end_without_a_last_message_and_may_come_without_a_handshake(before: list[bytes]) -> None:
    login = by_ticket()
    assert tokens(login, *before, TICKET).send == SIZE.pack(len(CHOICE)) + CHOICE
    step = tokens(login, CHOICE)
    assert step.send == b""
    assert step.session is not None
    assert step.session.mechanism == "GSSAPI"


@pytest.mark.parametrize("first", [TICKET, b"", b"\x60\x82\1\2\3\4\5\6\7\x08\x09"])
def test_a_first_frame_that_is_no_request_fails_where_gssapi_is_not_enabled(first: bytes) -> None:
    failure = failure_of(play(authenticator(), first))
    assert failure == LoginFailure("the first frame is no Kafka request, and GSSAPI is not enabled")


def test_what_is_no_request_after_the_first_frame_is_no_token() -> None:
    failure = failure_of(play(by_ticket(), versions(), b"\x60\x82\1\2\3\4\5\6\7\x08\x09"))
    assert not failure.delayed


def test_a_ticket_that_is_refused_is_answered_without_the_reason_of_kerberos() -> None:
    failure = failure_of(tokens(by_ticket(), handshake(mechanism="GSSAPI"), token(b"nonsense")))
    assert failure.reason == "GSSAPI: Wrong principal in request"
    response = read(SaslAuthenticateResponse, failure.response, 1)
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    )


def test_a_replay_is_closed_at_once_without_a_word() -> None:
    failure = failure_of(tokens(by_ticket(), handshake(mechanism="GSSAPI"), token(b"replay")))
    assert failure == LoginFailure("GSSAPI: Request is a replay", delayed=False)


# The table


@pytest.mark.parametrize(("state", "follower"), list(itertools.product(LoginState, LoginState)))
def test_only_the_arrows_of_the_table_are_taken(state: LoginState, follower: LoginState) -> None:
    login = authenticator()
    login.state = state
    if follower in MAY_FOLLOW[state]:
        login._move(follower)
        assert login.state is follower
    else:
        with pytest.raises(AssertionError, match="LoginState"):
            login._move(follower)


def test_no_step_shows_what_a_client_sent_as_its_proof() -> None:
    login = authenticator()
    steps = [login.receive(part, NOW_MS, 0) for part in (handshake(), token(b"\0alice\0hunter2"))]
    assert "hunter2" not in repr(steps)


# What a peer may send before it has logged in


@pytest.mark.parametrize(
    "hostile",
    [
        b"\0\x11\0\1\0\0\0\7\x7f\xff",
        b"\0\x11\0\1\0\0\0\7\xff\xff\x7f\xff",
        b"\0\x12\0\3\0\0\0\7\xff\xff\0\xff\xff\xff\xff\x07",
    ],
)
def test_cve_2022_34917_what_a_frame_announces_is_not_allocated(hostile: bytes) -> None:
    tracemalloc.start()
    try:
        for login in [authenticator() for _ in range(100)]:
            failure_of(login.receive(hostile, NOW_MS, 0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_cve_2022_34917_a_token_that_announces_2_gb_is_not_allocated() -> None:
    announced = frame(SaslAuthenticateRequest(auth_bytes=b""), 1)[:-4] + b"\x7f\xff\xff\xff"
    assert failure_of(play(authenticator(), handshake(), announced)).delayed is False


@pytest.mark.parametrize("count", [101, 250_000])
def test_cve_2026_111115_a_header_full_of_tagged_fields_is_refused_before_it_is_read(count: int) -> None:
    varint = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
    tags = b"".join(bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14, 0]) for number in range(1000))
    hostile = b"\0\x12\0\3\0\0\0\7\xff\xff" + varint + tags * (count // 1000 + 1)
    failure = failure_of(play(authenticator(), hostile[:524_288]))
    assert failure.response == b""
