"""Delegation tokens: their times, who may do what with them, their HMAC, their nodes byte for byte."""

import base64
from dataclasses import replace

import pytest

from leadline.coordination.node_json import MalformedNode
from leadline.errors import DelegationTokenExpired, DelegationTokenNotFound, DelegationTokenOwnerMismatch
from leadline.security.delegation_tokens import (
    DelegationToken,
    TokenCache,
    TokenLifetimes,
    decode_token,
    encode_token,
    expired,
    new_token,
    renewed,
    token_hmac,
    token_path,
)
from leadline.security.principal import Principal
from leadline.security.secret import Secret

ALICE, BOB, CLARA = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "clara")
ID = "Bw1QuMShQAaHT-qfoVdObA"
NOW, DAY_MS = 1_794_778_757_210, 86_400_000
LIFETIMES = TokenLifetimes(max_lifetime_ms=7 * DAY_MS, expiry_time_ms=DAY_MS)
TOKEN = DelegationToken(ID, ALICE, ALICE, (BOB, Principal("User", "c d")), NOW, NOW + DAY_MS, NOW + DAY_MS)
NODE = (
    b'{"issueTimestamp":1794778757210,"renewers":["User%3Abob","User%3Ac%20d"],"tokenRequester":"User%3Aalice",'
    b'"tokenId":"Bw1QuMShQAaHT-qfoVdObA","owner":"User%3Aalice","expiryTimestamp":1794865157210,'
    b'"maxTimestamp":1794865157210,"version":3}'
)


def test_a_node_is_kafkas_and_read_again() -> None:
    assert token_path(ID) == f"/delegation_token/tokens/{ID}"
    assert encode_token(TOKEN) == NODE
    assert decode_token(token_path(ID), NODE) == TOKEN


@pytest.mark.parametrize("version", [b"1", b"2"])
def test_older_nodes_have_no_requester_but_their_owner(version: bytes) -> None:
    older = NODE.replace(b'"version":3', b'"version":' + version).replace(b'"tokenRequester":"User%3Aalice",', b"")
    assert decode_token(token_path(ID), older) == TOKEN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":3', b'"version":4'),
        (b'"version":3', b'"version":0'),
        (b'"owner":"User%3Aalice"', b'"owner":"alice"'),
        (b'"renewers":["User%3Abob","User%3Ac%20d"]', b'"renewers":"User%3Abob"'),
        (b'"maxTimestamp":1794865157210', b'"maxTimestamp":"1794865157210"'),
        (b'"tokenRequester":"User%3Aalice",', b""),
    ],
)
def test_a_malformed_node_is_refused_by_its_path(old: bytes, new: bytes) -> None:
    assert old in NODE
    with pytest.raises(MalformedNode, match=token_path(ID)):
        decode_token(token_path(ID), NODE.replace(old, new))


def test_an_empty_node_has_no_token() -> None:
    assert decode_token(token_path(ID), b"") is None


def test_the_hmac_is_the_one_of_a_real_kafka() -> None:
    text = base64.b64encode(token_hmac(ID, Secret.of("topsecret")).reveal()).decode()
    assert (text[:8], text[-7:], len(text)) == ("hIk42SHc", "7b5SQ==", 88)
    assert text not in repr(token_hmac(ID, Secret.of("topsecret")))


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (1000, 1000, 1000),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (30 * DAY_MS, 7 * DAY_MS, DAY_MS),
    ],
)
def test_the_times_of_a_new_token(asked_ms: int, max_ms: int, expiry_ms: int) -> None:
    token = new_token(ID, ALICE, CLARA, [BOB], asked_ms, LIFETIMES, NOW)
    assert token == DelegationToken(ID, ALICE, CLARA, (BOB,), NOW, NOW + max_ms, NOW + expiry_ms)


@pytest.mark.parametrize(("period_ms", "expiry_ms"), [(-1, DAY_MS), (0, 0), (500, 500), (9 * DAY_MS, 7 * DAY_MS - 10)])
def test_a_token_is_renewed_from_now_on_and_never_beyond_its_max(period_ms: int, expiry_ms: int) -> None:
    token = new_token(ID, ALICE, ALICE, [BOB], -1, LIFETIMES, NOW)
    for principal in (ALICE, BOB):
        changed = renewed(token, principal, period_ms, LIFETIMES, NOW + 10)
        assert changed == replace(token, expiry_ms=NOW + 10 + expiry_ms)


@pytest.mark.parametrize(("period_ms", "expiry_ms"), [(0, 0), (500, 500), (9 * DAY_MS, 7 * DAY_MS - 10)])
def test_the_expiry_of_a_token_can_be_set(period_ms: int, expiry_ms: int) -> None:
    token = new_token(ID, ALICE, ALICE, [BOB], -1, LIFETIMES, NOW)
    changed = expired(token, BOB, period_ms, NOW + 10)
    assert changed == replace(token, expiry_ms=NOW + 10 + expiry_ms)


def test_a_negative_period_ends_a_token_at_once_even_an_expired_one() -> None:
    assert expired(TOKEN, ALICE, -1, NOW) is None
    assert expired(TOKEN, ALICE, -1, NOW + 2 * DAY_MS) is None


def test_an_expired_token_cannot_be_revived() -> None:
    for now_ms in (TOKEN.expiry_ms + 1, TOKEN.max_ms + 1):
        with pytest.raises(DelegationTokenExpired):
            renewed(TOKEN, ALICE, -1, LIFETIMES, now_ms)
        with pytest.raises(DelegationTokenExpired):
            expired(TOKEN, ALICE, 1000, now_ms)
    assert not TOKEN.is_expired(TOKEN.expiry_ms)


def test_only_owner_and_renewers_change_a_token() -> None:
    token = replace(TOKEN, requester=CLARA)
    with pytest.raises(DelegationTokenOwnerMismatch):
        renewed(token, CLARA, -1, LIFETIMES, NOW)
    with pytest.raises(DelegationTokenOwnerMismatch):
        expired(token, CLARA, -1, NOW)
    with pytest.raises(DelegationTokenOwnerMismatch):  # before it is said that it has expired
        renewed(token, CLARA, -1, LIFETIMES, NOW + 9 * DAY_MS)


def a_cache(*tokens: DelegationToken) -> TokenCache:
    cache = TokenCache(Secret.of("topsecret"))
    for token in tokens:
        cache.put(token)
    return cache


def test_a_token_is_found_by_its_hmac_and_by_no_other() -> None:
    cache = a_cache(TOKEN)
    hmac = token_hmac(ID, Secret.of("topsecret")).reveal()
    assert cache.by_hmac(hmac) == TOKEN
    assert cache.get(ID) == TOKEN
    for other in (b"", hmac[:-1], hmac + b"\0", token_hmac(ID, Secret.of("other")).reveal()):
        with pytest.raises(DelegationTokenNotFound):
            cache.by_hmac(other)
    cache.remove(ID)
    cache.remove(ID)
    assert cache.get(ID) is None
    with pytest.raises(DelegationTokenNotFound):
        cache.by_hmac(hmac)


def test_tokens_are_described_to_their_owners_and_by_rights() -> None:
    mine, for_bob = replace(TOKEN, id="mine"), replace(TOKEN, id="for", owner=BOB, requester=CLARA, renewers=())
    cache = a_cache(mine, for_bob)

    def described(
        principal: Principal, owners: list[Principal] | None = None, allowed: tuple[str, ...] = ()
    ) -> set[str]:
        named = None if owners is None else frozenset(owners)
        return {token.id for token in cache.described(principal, named, lambda token: token.id in allowed)}

    assert described(ALICE) == {"mine"}
    assert described(BOB) == {"mine", "for"}
    assert described(CLARA) == {"for"}
    assert described(Principal("User", "dora")) == set()
    assert described(Principal("User", "dora"), allowed=("for",)) == {"for"}
    assert described(BOB, owners=[ALICE]) == {"mine"}
    assert described(BOB, owners=[]) == set()
    assert described(ALICE, owners=[CLARA]) == set()


def test_nothing_secret_is_shown() -> None:
    assert "topsecret" not in repr(vars(a_cache(TOKEN)))
