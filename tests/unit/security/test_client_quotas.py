"""Which quota applies to a client, and who shares what is measured."""

import pytest

from leadline.errors import ThrottlingQuotaExceeded
from leadline.security.client_quotas import DEFAULT, IDLE_MS, ClientMeasure, ClientQuotas, QuotaEntity, QuotaKind

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
MUTATION = QuotaKind.CONTROLLER_MUTATION_RATE
NOW = 1_794_778_757_210

# In the order of precedence.
LEVELS = [
    QuotaEntity("u", "c"),
    QuotaEntity("u", DEFAULT),
    QuotaEntity("u"),
    QuotaEntity(DEFAULT, "c"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "c"),
    QuotaEntity(None, DEFAULT),
]


def measure(
    quotas: ClientQuotas, user: str = "u", client_id: str | None = "c", kind: QuotaKind = PRODUCE
) -> ClientMeasure:
    measure = quotas.measure(kind, user, client_id, NOW)
    assert measure is not None
    return measure


def with_quotas(*entities: QuotaEntity) -> ClientQuotas:
    quotas = ClientQuotas()
    for entity in entities:
        quotas.put(entity, {PRODUCE: 100.0 + LEVELS.index(entity)})
    return quotas


@pytest.mark.parametrize("level", range(8))
def test_the_first_of_the_eight_levels_that_is_set_applies(level: int) -> None:
    quotas = with_quotas(*reversed(LEVELS[level:]))
    assert measure(quotas).bound == 100 + level
    quotas.put(LEVELS[level], {})
    expected = None if level == 7 else 101 + level
    assert measure(quotas).bound == expected


@pytest.mark.parametrize(
    ("level", "shares_user", "shares_client"),
    [(0, False, False), (1, False, False), (2, True, False), (3, False, False), (4, False, False), (5, True, False),
     (6, False, True), (7, False, True)],
)  # fmt: skip
def test_the_level_of_a_quota_decides_which_clients_share_a_measure(
    level: int, shares_user: bool, shares_client: bool
) -> None:
    """Alone, and with a quota of another level that applies to none of them."""
    other = QuotaEntity("nobody", "nothing") if level > 1 else QuotaEntity("nobody")
    for others in ((), (other, QuotaEntity(None, "nothing"))):
        quotas = with_quotas(LEVELS[level])
        for entity in others:
            quotas.put(entity, {PRODUCE: 1})
        mine = measure(quotas)
        assert measure(quotas) is mine
        assert (measure(quotas, client_id="d") is mine) is shares_user
        assert (measure(quotas, user="v") is mine) is shares_client


def test_default_levels_give_each_client_its_own_full_quota() -> None:
    quotas = with_quotas(QuotaEntity(DEFAULT, DEFAULT))
    assert measure(quotas, "a", "x").bound == measure(quotas, "b", "y").bound == 104
    assert measure(quotas, "a", "x") is not measure(quotas, "a", "y")


def test_each_kind_is_looked_up_by_itself() -> None:
    quotas = ClientQuotas()
    quotas.put(QuotaEntity("u", "c"), {PRODUCE: 1})
    quotas.put(QuotaEntity("u"), {FETCH: 2})
    assert (measure(quotas).bound, measure(quotas, kind=FETCH).bound) == (1, 2)
    assert measure(quotas, kind=QuotaKind.REQUEST_PERCENTAGE).bound is None


def test_without_any_quota_nothing_is_recorded() -> None:
    assert ClientQuotas().measure(PRODUCE, "u", "c", NOW) is None
    assert not ClientQuotas().are_enabled


def test_a_node_without_quotas_switches_recording_on_for_all_kinds() -> None:
    quotas = ClientQuotas()
    quotas.put(QuotaEntity("scram"), {})
    for kind in QuotaKind:
        assert measure(quotas, kind=kind).bound is None
    quotas.put(QuotaEntity("scram"), {})
    assert quotas.are_enabled


def test_a_quota_that_changes_counts_at_once_for_what_was_recorded() -> None:
    quotas = with_quotas(QuotaEntity("u"))
    recorded = measure(quotas)
    assert recorded.record_and_throttle_ms(1000, NOW) == 0
    quotas.put(QuotaEntity("u"), {PRODUCE: 10})
    assert measure(quotas) is recorded
    assert recorded.record_and_throttle_ms(0, NOW) == 90_000
    quotas.put(QuotaEntity("u"), {})
    assert measure(quotas) is recorded
    assert recorded.record_and_throttle_ms(10**9, NOW) == 0


def test_what_was_recorded_without_a_quota_counts_once_there_is_one() -> None:
    quotas = ClientQuotas()
    quotas.put(QuotaEntity("v"), {PRODUCE: 1})
    assert measure(quotas).record_and_throttle_ms(1000, NOW) == 0
    quotas.put(QuotaEntity(DEFAULT), {PRODUCE: 10})
    assert measure(quotas).record_and_throttle_ms(0, NOW) == 90_000


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_without_an_id_cannot_escape_the_default(client_id: str | None) -> None:
    assert measure(with_quotas(QuotaEntity(None, DEFAULT)), client_id=client_id).bound == 107
    assert measure(with_quotas(QuotaEntity("u", DEFAULT)), client_id=client_id).bound == 101
    both = with_quotas(QuotaEntity("u", DEFAULT), QuotaEntity("u"))
    assert measure(both, client_id=client_id).bound == 101
    assert measure(both, client_id=None) is measure(both, client_id="")


def test_a_user_of_the_name_of_the_default_is_a_user_like_others() -> None:
    quotas = with_quotas(QuotaEntity(DEFAULT), QuotaEntity("u"))
    assert measure(quotas, user="<default>").bound == 105
    quotas.put(QuotaEntity("<default>"), {PRODUCE: 7})
    assert measure(quotas, user="<default>").bound == 7
    assert measure(quotas, user="v").bound == 105


def test_idle_measures_are_dropped_and_busy_ones_kept() -> None:
    quotas = with_quotas(QuotaEntity("u"))
    idle, busy = measure(quotas, "idle"), measure(quotas, "busy")
    idle.record(1, NOW)
    busy.record(1, NOW + IDLE_MS)
    quotas.drop_idle(NOW + IDLE_MS + 11_000)
    assert measure(quotas, "busy") is busy
    assert measure(quotas, "idle") is not idle


def test_an_overdrawn_bucket_is_not_dropped() -> None:
    quotas = ClientQuotas()
    quotas.put(QuotaEntity("u"), {MUTATION: 0.001})
    quotas.mutation_quota("u", "c", 19, 5, NOW).record(100, NOW)
    quotas.drop_idle(NOW + 2 * IDLE_MS)
    assert quotas.mutation_quota("u", "c", 19, 5, NOW + 2 * IDLE_MS)._bucket is not None
    with pytest.raises(ThrottlingQuotaExceeded):
        quotas.mutation_quota("u", "c", 19, 6, NOW + 2 * IDLE_MS).record(1, NOW + 2 * IDLE_MS)


def test_measures_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.security.client_quotas.MOST_MEASURES", 100)
    quotas = with_quotas(QuotaEntity(None, DEFAULT))
    for n in range(1000):
        now = NOW + n * 1000
        of_client = quotas.measure(PRODUCE, "u", f"c{n}", now)
        assert of_client is not None
        of_client.record(1, now)
    assert len(quotas._measures[PRODUCE]) <= 100
    assert len(quotas._resolved) <= 100


def test_the_mutation_quota_of_a_client() -> None:
    quotas = ClientQuotas()
    quotas.mutation_quota("u", "c", 19, 7, NOW).record(10**6, NOW)
    quotas.put(QuotaEntity("u"), {MUTATION: 1})
    strict = quotas.mutation_quota("u", "c", 19, 7, NOW)
    strict.record(20, NOW)
    with pytest.raises(ThrottlingQuotaExceeded):
        quotas.mutation_quota("u", "other", 20, 6, NOW).record(1, NOW)
    older = quotas.mutation_quota("u", "c", 19, 5, NOW)
    older.record(1, NOW)
    assert older.throttle_ms(NOW) == 10_000


def test_quotas_that_were_put_are_returned() -> None:
    quotas = with_quotas(QuotaEntity("u"))
    assert quotas.quotas(QuotaEntity("u")) == {PRODUCE: 102}
    assert quotas.quotas(QuotaEntity("v")) == {}
