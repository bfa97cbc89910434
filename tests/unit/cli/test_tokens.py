"""Delegation tokens: what is shown of them, and the properties to log in with."""

from leadline.cli import parse
from leadline.cli.tokens import ShownToken, as_json, client_properties_of
from leadline.config.properties import parse_properties
from leadline.security.client_properties import SecurityProperties
from leadline.security.principal import Principal
from leadline.security.secret import Secret

TOKEN = ShownToken(
    "id", Secret(b"hmac"), Principal("User", "alice"), Principal("User", "ops"), (Principal("User", "ben"),), 1, 2, 3
)


def test_an_id_may_begin_with_a_dash() -> None:
    id = "-w1QuMShQAaHT-qfoVdObA"
    assert parse(["tokens", "renew", id, "--period", "1h"]).id == id
    assert parse(["tokens", "expire", "--yes", id]).id == id


def test_an_hmac_is_shown_only_where_it_is_asked_for() -> None:
    shown, hidden = as_json(TOKEN, with_hmac=True), as_json(TOKEN, with_hmac=False)
    assert isinstance(shown, dict)
    assert shown["hmac"] == "aG1hYw=="
    assert "aG1hYw" not in str(hidden)
    assert "hmac" not in repr(TOKEN).replace("hmac=[hidden]", "")


def test_the_properties_of_a_token_log_in_and_leave_the_creators_certificate_out() -> None:
    creators = SecurityProperties.of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "C:\\trust.p12",
            "ssl.truststore.password": "p",
            "ssl.keystore.location": "mine.p12",
            "ssl.keystore.password": "p",
        }
    )
    properties = parse_properties(client_properties_of(TOKEN, creators))
    assert properties["ssl.truststore.location"] == "C:\\trust.p12"
    assert not any(name.startswith("ssl.keystore") for name in properties)
    login = SecurityProperties.of(properties).login
    assert login is not None
    assert (login.username, login.password.reveal_text(), login.by_token) == ("id", "aG1hYw==", True)
