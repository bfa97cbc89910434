"""Tokens without a signature: what Kafka's handler for development takes, and nothing with a signature."""

from typing import Any

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.oauthbearer import AccessToken, InvalidToken, OAuthBearerExchange
from leadline.security.sasl_mechanisms import Challenge, Failed
from leadline.security.secret import Secret
from leadline.security.unsecured_tokens import UnsecuredValidator
from tests.support.web_tokens import first_message, signed, unsigned

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW_S + 600, "iat": NOW_S - 5}


def validate(token: str, **options: Any) -> AccessToken:
    return UnsecuredValidator(**options).validate(token, NOW_MS)


def changed(**changes: Any) -> str:
    return unsigned({name: value for name, value in {**CLAIMS, **changes}.items() if value is not None})


def test_a_token_without_a_signature_says_who_it_is() -> None:
    assert validate(unsigned(CLAIMS)) == AccessToken("alice", frozenset(), (NOW_S + 600) * 1000)
    assert validate(changed(iat=None)).principal_name == "alice"
    assert validate(changed(name="bob"), principal_claim="name").principal_name == "bob"
    assert validate(changed(exp=NOW_S - 1), clock_skew_ms=1001).principal_name == "alice"


@pytest.mark.parametrize(
    "token",
    [
        signed(CLAIMS),
        unsigned(CLAIMS) + "x",
        unsigned(CLAIMS, alg="RS256"),
        unsigned([]),
        unsigned(CLAIMS)[:-1],
        "",
        "..",
        "a.b.c",
        changed(sub=None),
        changed(sub=" "),
        changed(sub=5),
        changed(exp=None),
        changed(exp="soon"),
        changed(exp=NOW_S),
        changed(iat=NOW_S + 1),
        changed(iat="x"),
    ],
)
def test_other_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        validate(token)


def test_a_token_that_expires_before_it_was_issued_is_refused() -> None:
    with pytest.raises(InvalidToken, match="before it was issued"):
        validate(changed(iat=NOW_S + 60, exp=NOW_S + 60), clock_skew_ms=100_000)


@pytest.mark.parametrize("scope", [["read", "write"], "read write"])
def test_a_required_scope_is_required_whole(scope: Any) -> None:
    assert validate(changed(scope=["write", "read"]), required_scope=("read", "write")).scopes == {"read", "write"}
    assert validate(changed(scope="read"), required_scope=("read",)).scopes == {"read"}
    if isinstance(scope, str):
        with pytest.raises(InvalidToken):
            validate(changed(scope=scope), required_scope=("read",))


def test_a_client_learns_which_scope_it_lacks() -> None:
    login = OAuthBearerExchange(UnsecuredValidator(required_scope=("read", "write")).validate)
    answer = '{"status":"insufficient_scope", "scope":"[read, write]"}'
    assert login.evaluate(first_message(unsigned(CLAIMS)), NOW_MS) == Challenge(answer.encode())
    assert login.evaluate(b"\x01", NOW_MS) == Failed(answer, "the token is refused: the token lacks the scope read")


def test_options_are_those_of_the_login_module() -> None:
    texts = {"PrincipalClaimName": "p", "ScopeClaimName": "s", "RequiredScope": "a b", "AllowableClockSkewMs": "7"}
    options = {f"unsecuredValidator{name}": Secret.of(text) for name, text in texts.items()}
    assert UnsecuredValidator.of("x", options) == UnsecuredValidator("p", "s", ("a", "b"), 7)
    assert UnsecuredValidator.of("x", {"unsecuredLoginStringClaim_sub": Secret.of("broker")}) == UnsecuredValidator()


@pytest.mark.parametrize("skew", ["-1", "x", "1.5"])
def test_a_clock_skew_is_a_number(skew: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^x: unsecuredValidatorAllowableClockSkewMs"):
        UnsecuredValidator.of("x", {"unsecuredValidatorAllowableClockSkewMs": Secret.of(skew)})
