"""The quotas of users and client ids: which one applies to a client, and which clients share its measurement.

Pure: settings, names and times in, measures out.

The first that is set applies, for each kind of quota by itself:

    1  users/U/clients/C    2  users/U/clients/<default>     3  users/U
    4  users/<default>/clients/C    5  users/<default>/clients/<default>    6  users/<default>
    7  clients/C    8  clients/<default>

1, 2, 4 and 5 give each pair of user and client id a measure of its own; 3 and 6 one to each user; 7 and 8 one to each
client id of any user. A user is the name of a principal, without its type.
    without any quota nothing is recorded; once a node of a user or a client id was seen, everything can be, as in Kafka
    a changed quota applies at once, also to values that were recorded before
    a client without an id counts as one with an empty id, and the default covers it: it cannot escape

What is recorded for clients to whom no quota applies counts if they get one. A measure that is idle is dropped.
"""

from collections.abc import Mapping
from enum import Enum, Flag, auto
from typing import Final, NamedTuple

from leadline.security.rates import DEFAULT_SAMPLE_MS, DEFAULT_SAMPLES, INT_MAX, Rate
from leadline.security.token_bucket import MutationQuota, TokenBucket, is_strict

IDLE_MS = 3_600_000
MOST_MEASURES = 50_000  # of a kind; beyond that, the idle ones are dropped early


class DefaultEntity(Enum):
    """In place of a name: all that have no quota of their own."""

    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.value


DEFAULT: Final = DefaultEntity.DEFAULT
EntityName = str | DefaultEntity


class QuotaEntity(NamedTuple):
    """The entity of a quota. None: any user, any client id. At least one of them is not None."""

    user: EntityName | None = None
    client_id: EntityName | None = None


class QuotaKind(Enum):
    __hash__ = object.__hash__  # that of Enum is a call of Python, in each lookup

    PRODUCER_BYTE_RATE = "producer_byte_rate"  # bytes of Produce requests a second
    CONSUMER_BYTE_RATE = "consumer_byte_rate"  # bytes of Fetch responses a second
    REQUEST_PERCENTAGE = "request_percentage"  # of one thread
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"  # partitions created and deleted a second


KINDS = {kind.value: kind for kind in QuotaKind}


class _Levels(Flag):
    """The levels of which a node exists: with a single one, Kafka always measures at that level."""

    NONE = 0
    CLIENT_ID = auto()
    USER = auto()
    USER_CLIENT_ID = auto()


class _MeasureKey(NamedTuple):
    """The clients that share a measurement: a pair, all of a user, or all of a client id."""

    user: str | None
    client_id: str | None


class ClientMeasure:
    """The measurement of clients that share a quota, and the quota, if there is one. Look it up for each request."""

    __slots__ = ("bound", "bucket", "key", "rate")

    def __init__(self, key: _MeasureKey, rate: Rate, bucket: TokenBucket) -> None:
        self.key, self.rate, self.bucket = key, rate, bucket
        self.bound: float | None = None  # None: no limit

    def record(self, value: float, now_ms: int) -> None:
        self.rate.record(value, now_ms)

    def record_and_throttle_ms(self, value: float, now_ms: int, at_most_ms: int = INT_MAX) -> int:
        """First recorded, then measured."""
        self.rate.record(value, now_ms)
        return 0 if self.bound is None else self.rate.throttle_ms(self.bound, now_ms, at_most_ms)

    def is_idle(self, now_ms: int, idle_ms: int = 0) -> bool:
        """Whether its last use is so long ago that a new measure would measure the same."""
        then_ms = now_ms - idle_ms
        return self.rate.is_idle(then_ms) and (self.bound is None or self.bucket.is_full(self.bound, then_ms))


class ClientQuotas:
    """`put` each node of /config/users and /config/clients; then ask for the measure of a client."""

    def __init__(
        self,
        samples: int = DEFAULT_SAMPLES,
        sample_ms: int = DEFAULT_SAMPLE_MS,
        mutation_samples: int = DEFAULT_SAMPLES,
        mutation_sample_ms: int = DEFAULT_SAMPLE_MS,
    ) -> None:
        self.samples, self.sample_ms = samples, sample_ms
        self._mutation_window = mutation_samples, mutation_sample_ms
        self.are_enabled = False  # whether anything is recorded
        self.is_any_set = False  # there is a quota, or was one: until then, nothing has to be recorded
        self._levels = _Levels.NONE
        self._bounds: dict[QuotaKind, dict[QuotaEntity, float]] = {kind: {} for kind in QuotaKind}
        self._measures: dict[QuotaKind, dict[_MeasureKey, ClientMeasure]] = {kind: {} for kind in QuotaKind}
        self._resolved: dict[tuple[QuotaKind, str, str], ClientMeasure] = {}  # by user and client id

    def put(self, entity: QuotaEntity, quotas: Mapping[QuotaKind, float]) -> None:
        """All quotas of an entity, in place of those before; none of them: its node has none, or is gone."""
        self.are_enabled = True
        self.is_any_set = self.is_any_set or len(quotas) > 0
        if entity.user is None:
            self._levels |= _Levels.CLIENT_ID
        else:
            self._levels |= _Levels.USER if entity.client_id is None else _Levels.USER_CLIENT_ID
        for kind, bounds in self._bounds.items():
            if kind in quotas:
                bounds[entity] = quotas[kind]
            else:
                bounds.pop(entity, None)
        self._resolved.clear()  # each measure gets its new bound when it is next used

    def quotas(self, entity: QuotaEntity) -> dict[QuotaKind, float]:
        """The quotas that were set."""
        return {kind: bounds[entity] for kind, bounds in self._bounds.items() if entity in bounds}

    def measure(self, kind: QuotaKind, user: str, client_id: str | None, now_ms: int) -> ClientMeasure | None:
        """None: nothing has to be recorded."""
        if not self.are_enabled:
            return None
        resolving = kind, user, client_id or ""
        measure = self._resolved.get(resolving)
        if measure is None:
            if len(self._resolved) >= MOST_MEASURES:
                self._resolved.clear()
            measure = self._resolved[resolving] = self._measure(kind, self._key(*resolving), now_ms)
        return measure

    def mutation_quota(
        self, user: str, client_id: str | None, api_key: int | None, version: int, now_ms: int
    ) -> MutationQuota:
        """The quota for one request. An api key of None stands for a request that creates something on the way."""
        measure = self.measure(QuotaKind.CONTROLLER_MUTATION_RATE, user, client_id, now_ms)
        strict = is_strict(api_key, version)
        if measure is None:
            return MutationQuota(None, None, strict=strict)
        return MutationQuota(measure.bucket, measure.bound, strict=strict)

    def measures(self, kind: QuotaKind) -> list[ClientMeasure]:
        """The measures of all clients that were measured lately."""
        return list(self._measures[kind].values())

    def drop_idle(self, now_ms: int, idle_ms: int = IDLE_MS) -> None:
        """Measures of clients that are gone. What they would measure now is what new ones would."""
        for kind, measures in self._measures.items():
            for key, measure in list(measures.items()):
                measure.bound = self._bound(kind, key)
                if measure.is_idle(now_ms, idle_ms):
                    del measures[key]
        self._resolved.clear()

    def _measure(self, kind: QuotaKind, key: _MeasureKey, now_ms: int) -> ClientMeasure:
        measures = self._measures[kind]
        measure = measures.get(key)
        if measure is None:
            if len(measures) >= MOST_MEASURES:
                self.drop_idle(now_ms, 0)
            rate, bucket = Rate(self.samples, self.sample_ms), TokenBucket(*self._mutation_window)
            measure = measures[key] = ClientMeasure(key, rate, bucket)
        measure.bound = self._bound(kind, key)
        return measure

    def _key(self, kind: QuotaKind, user: str, client_id: str) -> _MeasureKey:
        pair, of_user, of_client = _MeasureKey(user, client_id), _MeasureKey(user, None), _MeasureKey(None, client_id)
        match self._levels:
            case _Levels.CLIENT_ID:
                return of_client
            case _Levels.USER:
                return of_user
            case _Levels.USER_CLIENT_ID:
                return pair
        bounds = self._bounds[kind]
        for entity, key in (
            (QuotaEntity(user, client_id), pair),
            (QuotaEntity(user, DEFAULT), pair),
            (QuotaEntity(user), of_user),
            (QuotaEntity(DEFAULT, client_id), pair),
            (QuotaEntity(DEFAULT, DEFAULT), pair),
            (QuotaEntity(DEFAULT), of_user),
        ):
            if entity in bounds:
                return key
        return of_client

    def _bound(self, kind: QuotaKind, key: _MeasureKey) -> float | None:
        bounds = self._bounds[kind]
        users = (None,) if key.user is None else (key.user, DEFAULT)
        client_ids = (None,) if key.client_id is None else (key.client_id, DEFAULT)
        for user in users:
            for client_id in client_ids:
                if (bound := bounds.get(QuotaEntity(user, client_id))) is not None:
                    return bound
        return None
