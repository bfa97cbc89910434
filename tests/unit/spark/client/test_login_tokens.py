"""The tokens of a client: which one a login gets, and when the next one is fetched."""

from dataclasses import replace
from pathlib import Path

import pytest

from leadline.config.security import LOGIN_HANDLERS
from leadline.security.client_properties import SecurityProperties
from leadline.spark.client.login_tokens import LoginTokens, NoToken
from tests.support.web_tokens import unsigned

BEGIN_S, LIFETIME_S = 1_700_000_000, 1000


class TokenFile:
    """A file with tokens, and a client that reads it."""

    def __init__(self, path: Path) -> None:
        self.path, self.now_s = path, BEGIN_S
        self.write("first")
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
        }
        login = SecurityProperties.of(properties).token_login(lambda path: Path(path).read_bytes())
        login = replace(login, rules=replace(login.rules, window_jitter=0.0, buffer_s=0, min_period_s=0))
        self.tokens = LoginTokens(login, lambda: self.now_s * 1000)

    def write(self, user: str) -> None:
        self.path.write_text(unsigned({"sub": user, "iat": self.now_s, "exp": self.now_s + LIFETIME_S}))

    def text(self) -> str:
        return self.tokens.token().text.reveal_text()


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "token")


def test_a_token_is_kept_for_most_of_its_life_and_then_renewed(file: TokenFile) -> None:
    first = file.text()
    file.write("second")
    file.now_s += int(LIFETIME_S * 0.8) - 1
    assert file.text() == first
    file.now_s += 1
    assert file.text() == file.path.read_text() != first


def test_a_token_that_cannot_be_renewed_is_used_until_it_expires(file: TokenFile) -> None:
    first = file.text()
    file.path.unlink()
    file.now_s += LIFETIME_S - 1
    assert file.text() == first
    file.now_s += 1
    with pytest.raises(NoToken, match="there is no token: ") as error:
        file.tokens.token()
    assert not error.value.is_refused
    file.write("second")
    assert file.text() == file.path.read_text()
