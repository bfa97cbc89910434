"""Elections and Kafka's own rules, side by side, for every case that three brokers can be in."""

from collections.abc import Callable
from itertools import chain, combinations, permutations

import pytest

from leadline.controller import elections
from leadline.replication.partition import LeaderAndIsr
from tests.conformance.kafka.oracle import Oracle

pytestmark = pytest.mark.conformance

BROKERS = (1, 2, 3)
SETS = list(chain.from_iterable(combinations(BROKERS, count) for count in range(len(BROKERS) + 1)))
ASSIGNED = [BROKERS, (3, 1), (2,)]
Rule = Callable[[LeaderAndIsr, tuple[int, ...], tuple[int, ...]], LeaderAndIsr | None]

RULES: list[tuple[dict[str, object], Rule]] = [
    ({"kind": "offline", "unclean": False}, elections.offline),
    (
        {"kind": "offline", "unclean": True},
        lambda now, assigned, alive: elections.offline(now, assigned, alive, unclean=True),
    ),
    ({"kind": "preferred"}, elections.preferred),
    ({"kind": "reassigned"}, elections.reassigned),
    (
        {"kind": "shutdown", "shutting_down": (1,)},
        lambda now, assigned, alive: elections.controlled_shutdown(now, assigned, alive, (1,)),
    ),
]


@pytest.mark.parametrize(("election", "rule"), RULES, ids=["offline", "unclean", "preferred", "reassigned", "shutdown"])
def test_the_same_one_is_elected(oracle: Oracle, election: dict[str, object], rule: Rule) -> None:
    orders = [order for members in SETS if members for order in permutations(members)]
    for assigned in ASSIGNED:
        for isr in orders:
            for alive in SETS:
                elected = rule(LeaderAndIsr(1, 0, isr), assigned, alive)
                theirs = oracle.ask("elect", assigned=assigned, isr=isr, alive=alive, **election)
                assert (None if elected is None else elected.leader) == theirs, (assigned, isr, alive)
