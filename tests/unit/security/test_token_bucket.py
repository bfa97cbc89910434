"""The token bucket of controller mutations, and what it lets a request do."""

import pytest

from leadline.errors import ThrottlingQuotaExceeded
from leadline.security.rates import INT_MAX
from leadline.security.token_bucket import MutationQuota, TokenBucket, is_strict

NOW = 1_794_778_757_210


def test_a_bucket_is_full_at_first_and_never_fuller() -> None:
    bucket = TokenBucket()
    assert bucket.tokens(10, NOW) == 110
    assert bucket.tokens(10, NOW + 1000) == 110
    assert bucket.is_full(10, NOW + 1000)


def test_a_bucket_may_be_overdrawn_and_fills_with_time() -> None:
    bucket = TokenBucket()
    bucket.take(150, 10, NOW)
    assert bucket.tokens(10, NOW) == -40
    assert bucket.throttle_ms(10, NOW) == 4000
    assert bucket.throttle_ms(10, NOW + 1500) == 2500
    assert bucket.throttle_ms(10, NOW + 4000) == 0
    assert not bucket.is_full(10, NOW + 4000)
    assert bucket.is_full(10, NOW + 15_000)


def test_a_quota_of_nothing_is_never_paid_off() -> None:
    bucket = TokenBucket()
    bucket.take(1, 0, NOW)
    assert bucket.throttle_ms(0, NOW) == INT_MAX


def test_a_strict_quota_lets_one_topic_overdraw_and_refuses_the_next() -> None:
    bucket = TokenBucket()
    quota = MutationQuota(bucket, 1, strict=True)
    quota.record(30, NOW)
    assert not quota.is_exceeded
    assert quota.throttle_ms(NOW) == 0
    with pytest.raises(ThrottlingQuotaExceeded):
        quota.record(1, NOW)
    assert quota.is_exceeded
    assert quota.throttle_ms(NOW) == 19_000
    assert quota.throttle_ms(NOW + 5000) == 14_000
    assert bucket.tokens(1, NOW) == -19  # what was refused was not taken
    later = MutationQuota(bucket, 1, strict=True)
    later.record(1, NOW + 19_000)
    assert not later.is_exceeded


def test_a_permissive_quota_refuses_nothing_and_throttles_instead() -> None:
    bucket = TokenBucket()
    quota = MutationQuota(bucket, 1, strict=False)
    quota.record(30, NOW)
    quota.record(5, NOW)
    assert not quota.is_exceeded
    assert quota.throttle_ms(NOW) == 24_000


def test_a_permissive_quota_within_its_bounds_does_not_throttle() -> None:
    quota = MutationQuota(TokenBucket(), 1, strict=False)
    quota.record(11, NOW)
    assert quota.throttle_ms(NOW) == 0


@pytest.mark.parametrize("strict", [True, False])
def test_without_a_quota_there_is_no_limit(strict: bool) -> None:
    for quota in (MutationQuota(None, None, strict=strict), MutationQuota(TokenBucket(), None, strict=strict)):
        for _ in range(3):
            quota.record(10**9, NOW)
        assert quota.throttle_ms(NOW) == 0


@pytest.mark.parametrize(("key", "since"), [(19, 6), (37, 3), (20, 5)])
def test_the_versions_that_know_the_error_are_strict(key: int, since: int) -> None:
    assert is_strict(key, since)
    assert not is_strict(key, since - 1)


def test_auto_creation_is_permissive() -> None:
    assert not is_strict(3, 12)
