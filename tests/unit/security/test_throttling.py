"""Throttle times of requests."""

from leadline.security.client_quotas import ClientQuotas, QuotaEntity, QuotaKind
from leadline.security.rates import INT_MAX
from leadline.security.throttling import (
    EXEMPT,
    FetchLimits,
    QuotaClient,
    fetch_limits,
    fetch_throttle_ms,
    produce_throttle_ms,
    record_network_time,
    request_throttle_ms,
)
from leadline.wire.apis import APIS

CLIENT = QuotaClient("u", "c")
NOW = 1_794_778_757_210
SECOND_NS = 1_000_000_000


def with_quotas(**bounds: float) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.put(QuotaEntity("u"), {QuotaKind(name): bound for name, bound in bounds.items()})
    return quotas


def test_a_produce_is_throttled_for_its_bytes_as_a_real_kafka_did() -> None:
    quotas = with_quotas(producer_byte_rate=999)
    sizes = [(213, 0), (5113, 12), (20115, 31)]
    assert [produce_throttle_ms(quotas, CLIENT, size, 0, 1, NOW + at) for size, at in sizes] == [0, 0, 15435]


def test_a_produce_is_throttled_for_the_longer_of_bytes_and_time() -> None:
    quotas = with_quotas(producer_byte_rate=1000, request_percentage=10)
    assert produce_throttle_ms(quotas, CLIENT, 10_500, 2 * SECOND_NS, 1, NOW) == 1000
    quotas = with_quotas(producer_byte_rate=1000, request_percentage=10)
    assert produce_throttle_ms(quotas, CLIENT, 15_000, 2 * SECOND_NS, 1, NOW) == 5000


def test_a_produce_without_acks_is_throttled_for_its_bytes_alone() -> None:
    quotas = with_quotas(producer_byte_rate=1000, request_percentage=10)
    assert produce_throttle_ms(quotas, CLIENT, 1, 10 * SECOND_NS, 0, NOW) == 0
    assert produce_throttle_ms(quotas, CLIENT, 10_999, 10 * SECOND_NS, 0, NOW) == 1000
    assert request_throttle_ms(quotas, CLIENT, 0, NOW) == 0


def test_a_fetch_that_is_throttled_does_not_count() -> None:
    quotas = with_quotas(consumer_byte_rate=100)
    assert fetch_throttle_ms(quotas, CLIENT, 900, 0, NOW) == 0
    assert fetch_throttle_ms(quotas, CLIENT, 200, 0, NOW) == 1000
    assert fetch_throttle_ms(quotas, CLIENT, 200, 0, NOW) == 1000
    assert fetch_throttle_ms(quotas, CLIENT, 100, 0, NOW) == 0


def test_a_fetch_that_is_throttled_for_its_time_does_not_count_its_bytes() -> None:
    quotas = with_quotas(consumer_byte_rate=100, request_percentage=1)
    assert fetch_throttle_ms(quotas, CLIENT, 1000, SECOND_NS, NOW) == 1000
    measure = quotas.measure(QuotaKind.CONSUMER_BYTE_RATE, *CLIENT, NOW)
    assert measure is not None
    assert measure.rate.per_second(NOW) == 0


def test_the_time_of_handlers_is_a_percentage_of_one_thread() -> None:
    quotas = with_quotas(request_percentage=50)
    assert request_throttle_ms(quotas, CLIENT, 5 * SECOND_NS, NOW) == 0
    assert request_throttle_ms(quotas, CLIENT, SECOND_NS // 4, NOW) == 500
    assert request_throttle_ms(quotas, CLIENT, 100 * SECOND_NS, NOW) == 1000


def test_network_time_counts_for_the_next_request() -> None:
    quotas = with_quotas(request_percentage=50)
    record_network_time(quotas, CLIENT, 5 * SECOND_NS + SECOND_NS // 4, NOW)
    assert request_throttle_ms(quotas, CLIENT, 0, NOW) == 500


def test_without_quotas_no_client_is_throttled() -> None:
    quotas = ClientQuotas()
    assert produce_throttle_ms(quotas, CLIENT, 10**9, 10**12, 1, NOW) == 0
    assert fetch_throttle_ms(quotas, CLIENT, 10**9, 10**12, NOW) == 0
    record_network_time(quotas, CLIENT, 10**12, NOW)
    assert fetch_limits(quotas, CLIENT, FetchLimits(INT_MAX, 1), NOW) == (INT_MAX, 1)


def test_a_fetch_is_limited_so_that_it_cannot_violate_its_quota_alone() -> None:
    quotas = with_quotas(consumer_byte_rate=100)
    limits = fetch_limits(quotas, CLIENT, FetchLimits(52_428_800, 5000), NOW)
    assert limits == (1000, 1000)
    assert fetch_throttle_ms(quotas, CLIENT, limits.max_bytes, 0, NOW) == 0
    assert fetch_limits(quotas, CLIENT, FetchLimits(10, 1), NOW) == (10, 1)
    assert fetch_limits(with_quotas(consumer_byte_rate=2.0**62), CLIENT, FetchLimits(9, 1), NOW) == (9, 1)
    assert fetch_limits(with_quotas(producer_byte_rate=1), CLIENT, FetchLimits(INT_MAX, 7), NOW) == (INT_MAX, 7)


def test_a_new_client_may_spend_ten_seconds_worth_at_once() -> None:
    quotas = with_quotas(producer_byte_rate=1000)
    assert produce_throttle_ms(quotas, CLIENT, 10_000, 0, 1, NOW) == 0
    assert produce_throttle_ms(quotas, CLIENT, 1, 0, 1, NOW) == 1


def test_requests_among_brokers_are_exempt() -> None:
    names = {APIS[key].request.__name__ for key in EXEMPT}
    expected = "LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown AlterPartition WriteTxnMarkers"
    assert names == {f"{name}Request" for name in expected.split()}
