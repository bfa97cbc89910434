"""The rate of quotas against Kafka's rules written down as they stand, over random histories."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.security.rates import Rate, java_round
from leadline.security.token_bucket import TokenBucket


@dataclass
class Sample:
    start: int
    last: int
    value: float = 0.0


@dataclass
class Transcribed:
    """The rules, word for word."""

    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append(Sample(now, now))
        s = self.samples[self.current]
        if now - s.start >= 1000:
            self.current = (self.current + 1) % 12
            if self.current == len(self.samples):
                self.samples.append(Sample(now, now))
            s = self.samples[self.current] = Sample(now, now)
        s.value += value
        s.last = now

    def window(self, now: int) -> int:
        self.samples = [Sample(now, now) if now - s.last >= 11000 else s for s in self.samples]
        e = now - min(s.start for s in self.samples)
        full = e // 1000
        if full < 10:
            e += (10 - full) * 1000
        return max(e, 1)

    def throttle(self, bound: float, now: int) -> int:
        window = self.window(now)
        total = 0.0
        for s in self.samples:
            total += s.value
        rate = total / (window / 1000.0)
        return java_round((rate - bound) / bound * window) if rate > bound else 0


# Pauses from nothing at all to longer than everything that is remembered, often at the edges of a sample.
pauses = st.one_of(
    st.integers(0, 3), st.sampled_from([999, 1000, 1001, 9999, 10_000, 10_999, 11_000, 11_001]), st.integers(0, 25_000)
)
values = st.one_of(st.integers(0, 100_000), st.floats(0, 100, allow_subnormal=False))
histories = st.lists(st.tuples(pauses, values, st.booleans()), min_size=1, max_size=60)


@settings(max_examples=500)
@given(histories, st.sampled_from([1, 50.5, 999, 10_000]), st.integers(0, 2**41))
def test_a_rate_throttles_as_the_rules_do(history: list[tuple[int, float, bool]], bound: float, start_ms: int) -> None:
    ours, theirs, now = Rate(), Transcribed(), start_ms
    for pause, value, is_taken_back in history:
        now += pause
        ours.record(value, now)
        theirs.record(value, now)
        assert ours.throttle_ms(bound, now, 2**63) == theirs.throttle(bound, now)
        assert ours.window_ms(now) == theirs.window(now)
        if is_taken_back:
            ours.record(-value, now)
            theirs.record(-value, now)


@given(histories, st.integers(0, 2**41))
def test_a_rate_that_is_idle_measures_as_a_new_one(history: list[tuple[int, float, bool]], start_ms: int) -> None:
    used, now = Rate(), start_ms
    for pause, value, _ in history:
        now += pause
        used.record(value, now)
    now += 11_000
    assert used.is_idle(now)
    fresh = Rate()
    for pause, value, _ in history:
        used.record(value, now)
        fresh.record(value, now)
        assert used.throttle_ms(7, now) == fresh.throttle_ms(7, now)
        now += pause


@given(
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 50)), max_size=40),
    st.floats(0.5, 100),
    st.integers(11_000, 2**41),
)
def test_a_token_bucket_is_never_fuller_than_its_burst_and_refills_by_time(
    history: list[tuple[int, int]], rate: float, start_ms: int
) -> None:
    bucket, now = TokenBucket(), start_ms
    assert bucket.tokens(rate, now) == 11 * rate
    expected = 11 * rate
    for pause, count in history:
        now += pause
        expected = min(11 * rate, expected + rate * (pause / 1000.0))
        assert bucket.tokens(rate, now) == expected
        assert bucket.is_full(rate, now) == (expected >= 11 * rate)
        bucket.take(count, rate, now)
        expected -= count
        assert bucket.throttle_ms(rate, now) == (java_round(-expected / rate * 1000) if expected < 0 else 0)
