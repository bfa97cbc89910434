"""Key sets: which keys count, and how often a bad token may cause a fetch."""

import json
import sys
from unittest.mock import patch

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.jwks import InvalidJwks, Jwks, check_endpoint, check_library
from tests.support.web_tokens import jwk, key_set

HOUR_MS = 3_600_000
EVERY = ["rsa", "ec-256", "ec-384", "ec-521", "ed25519"]


def loaded(*entries: dict[str, object]) -> Jwks:
    keys = Jwks(lambda: None)
    keys.load(key_set(*entries), 0)
    return keys


@pytest.mark.parametrize(
    ("name", "algorithms"),
    [
        ("rsa", {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        ("ec-256", {"ES256"}),
        ("ec-384", {"ES384"}),
        ("ec-521", {"ES512"}),
        ("ed25519", {"EdDSA"}),
    ],
)
def test_a_key_is_for_the_algorithms_of_its_kind(name: str, algorithms: set[str]) -> None:
    keys = loaded(*map(jwk, EVERY))
    every = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
    others = ["none", "None", "HS256", "HS512", "ES256K", "", "rs256"]
    assert {algorithm for algorithm in every + others if keys.find(name, algorithm, 0)} == algorithms


def test_a_key_with_an_algorithm_is_for_that_one() -> None:
    keys = loaded(jwk("rsa", alg="PS256"))
    assert keys.find("rsa", "PS256", 0) is not None
    assert keys.find("rsa", "RS256", 0) is None


def test_a_token_without_an_id_needs_a_key_that_is_alone() -> None:
    assert loaded(jwk("rsa"), jwk("ec-256")).find(None, "RS256", 0) is not None
    assert loaded(jwk("rsa"), jwk("rsa-2")).find(None, "RS256", 0) is None


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x", "alg": "RS256"},
        jwk("rsa", kid="x", use="enc"),
        jwk("rsa", kid="x", alg="HS256"),
        jwk("rsa", kid="x", alg="none"),
        jwk("rsa", kid="x", d="AQAB"),
        jwk("rsa-weak", kid="x"),
        jwk("rsa", kid="x", n="!"),
        jwk("ec-256", kid="x", crv="P-384"),
        jwk("ec-256", kid="x", crv="secp256k1"),
        {"kty": "RSA", "kid": "x"},
        {"kid": "x"},
        jwk("rsa", kid=["x"]),
    ],
)
def test_keys_that_no_token_may_be_checked_with_are_skipped(entry: dict[str, object]) -> None:
    keys = loaded(entry, jwk("ec-256"))
    assert [keys.find("x", algorithm, 0) for algorithm in ("RS256", "ES256", "ES384", "HS256", "none")] == [None] * 5
    assert keys.find("ec-256", "ES256", 0) is not None


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": {}}', b"null", b"[" * 5000, b'{"keys": 5}'])
def test_a_document_that_is_none_changes_nothing(document: bytes) -> None:
    keys = loaded(jwk("rsa"))
    with pytest.raises(InvalidJwks):
        keys.load(document, 5)
    assert keys.find("rsa", "RS256", 0) is not None
    with pytest.raises(InvalidJwks, match="at most 1000 keys"):
        keys.load(json.dumps({"keys": [1] * 1001}).encode(), 5)


def test_a_regular_fetch_is_due_at_first_and_after_an_hour() -> None:
    keys = Jwks(lambda: None)
    assert keys.is_due(0)
    keys.load(key_set(), 0)
    assert not keys.is_due(HOUR_MS - 1)
    assert keys.is_due(HOUR_MS)


def test_an_unknown_id_causes_one_early_fetch_a_minute() -> None:
    fetches: list[int] = []
    keys = Jwks(lambda: fetches.append(1))
    for now_ms in (0, 1, 59_999):
        assert keys.find("new", "RS256", now_ms) is None
    assert len(fetches) == 1
    keys.find("new", "RS256", 60_000)
    assert len(fetches) == 2
    keys.load(key_set(jwk("rsa", kid="new")), 60_001)
    assert keys.find("new", "RS256", 60_002) is not None
    keys.load(key_set(), 60_003)
    keys.find("new", "RS256", 60_004)
    assert len(fetches) == 3


def test_bad_tokens_cause_at_most_sixteen_fetches_a_minute() -> None:
    fetches: list[int] = []
    keys = Jwks(lambda: fetches.append(1))
    for number in range(10_000):
        keys.find(f"id-{number}", "RS256", number)
    assert len(fetches) == 16
    keys.find("x" * 1001, "RS256", 500_000)
    assert len(fetches) == 16
    keys.find("x" * 1000, "RS256", 500_000)
    assert len(fetches) == 17


def test_an_id_that_is_there_for_another_algorithm_causes_no_fetch() -> None:
    fetches: list[int] = []
    keys = Jwks(lambda: fetches.append(1))
    keys.load(key_set(jwk("rsa")), 0)
    assert keys.find("rsa", "ES256", 0) is None
    assert fetches == []


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("https://idp.example/keys", "https://idp.example/keys"),
        ("https://idp.example:8443/keys?x=1", "https://idp.example:8443/keys?x=1"),
        ("file:///etc/jw%20ks.json", "file:///etc/jw ks.json"),
    ],
)
def test_endpoints_that_are_accepted(url: str, result: str) -> None:
    assert check_endpoint("the.url", url, "why") == result


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example/keys",
        "file://host/share",
        "file:relative",
        "ftp://x/y",
        "jar:file:///x!/y",
        "https://user:secret@idp.example/",
        "https://",
        "//idp.example/keys",
        "https://[",
        "nonsense",
    ],
)
def test_cve_2025_27817_other_endpoints_are_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"the\.url="):
        check_endpoint("the.url", url, "why")


@pytest.mark.parametrize("url", [None, ""])
def test_cve_2026_110985_without_a_source_of_keys_the_broker_does_not_start(url: str | None) -> None:
    with pytest.raises(InvalidSetting, match=r"the\.url is not set: why"):
        check_endpoint("the.url", url, "why")


def test_without_the_library_the_setting_is_refused_with_the_remedy() -> None:
    check_library()
    with patch.dict(sys.modules, {"jwt": None}), pytest.raises(InvalidSetting, match=r"install leadline\[oauth\]"):
        check_library()
