"""Rates: the worked example of a real broker, and the edges."""

import pytest

from leadline.security.rates import INT_MAX, Rate, java_round

NOW = 1_794_778_757_210


def test_three_requests_that_a_real_kafka_throttled() -> None:
    """Quota 999; requests of 213, 5113 and 20115 bytes within 31 ms: throttled for 0, 0 and 15435 ms."""
    rate = Rate()
    throttle_ms = []
    for size, at_ms in ((213, 0), (5113, 12), (20115, 31)):
        rate.record(size, NOW + at_ms)
        throttle_ms.append(rate.throttle_ms(999, NOW + at_ms))
    assert throttle_ms == [0, 0, 15435]
    assert rate.window_ms(NOW + 31) == 10031


def test_a_rate_equal_to_the_bound_is_fine() -> None:
    rate = Rate()
    rate.record(1000, NOW)
    assert rate.per_second(NOW) == 100
    assert rate.throttle_ms(100, NOW) == 0
    rate.record(1, NOW)
    assert rate.throttle_ms(100, NOW) == 10


def test_a_throttle_time_is_capped_where_it_has_a_cap() -> None:
    rate = Rate()
    rate.record(10**9, NOW)
    assert rate.throttle_ms(1, NOW, 1000) == 1000
    assert rate.throttle_ms(1, NOW) == INT_MAX  # Kafka overflows here


@pytest.mark.parametrize("bound", [0, -1])
def test_a_quota_of_nothing_takes_forever(bound: int) -> None:
    rate = Rate()
    rate.record(1, NOW)
    assert rate.throttle_ms(bound, NOW) == INT_MAX
    assert rate.throttle_ms(bound, NOW, 1000) == 1000


def test_what_is_taken_back_was_never_there() -> None:
    rate = Rate()
    rate.record(5000, NOW)
    rate.record(10**6, NOW + 1)
    rate.record(-(10**6), NOW + 1)
    assert rate.per_second(NOW + 1) == 5000 / 10.001


def test_what_was_recorded_counts_for_eleven_seconds() -> None:
    rate = Rate()
    rate.record(1000, NOW)
    assert rate.per_second(NOW + 10_999) == 1000 / 10.999
    assert not rate.is_idle(NOW + 10_999)
    assert rate.is_idle(NOW + 11_000)
    assert rate.per_second(NOW + 11_000) == 0


def test_samples_are_used_again_in_turn() -> None:
    rate = Rate()
    for second in range(100):
        rate.record(10, NOW + second * 1000)
    assert len(rate._values) == 12
    assert rate.per_second(NOW + 99_000) == 110 / 10.0


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    rate = Rate()
    rate.record(1000, NOW)
    rate.record(1000, NOW - 3_600_000)
    assert rate.per_second(NOW - 3_600_000) > 0
    assert rate.window_ms(NOW - 3_600_000) >= 1


def test_other_numbers_and_lengths_of_samples() -> None:
    rate = Rate(samples=3, sample_ms=2000)
    rate.record(100, NOW)
    assert rate.window_ms(NOW) == 4000
    assert rate.per_second(NOW + 5999) == 100 / 5.999
    assert rate.per_second(NOW + 6000) == 0


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.5, 1), (1.5, 2), (2.5, 3), (-0.5, 0), (-1.5, -1), (0.49999999999999994, 0)]
)
def test_rounding_is_javas(value: float, rounded: int) -> None:
    assert java_round(value) == rounded
