"""Refused logins: nobody hammers at a closed door, and the log tells what is new."""

from leadline.security.login_failures import FIRST_BACKOFF_S, MAX_BACKOFF_S, LoginFailures


def test_after_a_refusal_logins_wait_longer_each_time() -> None:
    failures, now_s, waits = LoginFailures(), 0.0, list[float]()
    for _ in range(8):
        failures.failed("peer", "why", now_s)
        start_s = now_s
        while failures.pending("peer", now_s) == "why":
            now_s += 0.0625
        waits.append(now_s - start_s)
    assert FIRST_BACKOFF_S < waits[0] < waits[1] < waits[2] <= waits[-1] <= MAX_BACKOFF_S + 0.1
    assert failures.pending("another", now_s) is None


def test_only_another_reason_is_new_and_a_success_ends_it() -> None:
    failures = LoginFailures()
    assert failures.failed("peer", "one", 0)
    assert not failures.failed("peer", "one", 1)
    assert failures.failed("peer", "two", 2)
    assert failures.failed("another", "two", 2)
    assert failures.succeeded("peer")
    assert not failures.succeeded("peer")
    assert failures.pending("peer", 2) is None
    assert failures.failed("peer", "two", 3)


def test_a_connection_that_broke_keeps_nobody_from_trying_again() -> None:
    failures = LoginFailures()
    assert failures.failed("peer", "closed", 0, is_refusal=False)
    assert not failures.failed("peer", "closed", 0, is_refusal=False)
    assert failures.pending("peer", 0) is None
    assert failures.succeeded("peer")
