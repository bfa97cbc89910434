"""Faults on real processes under load, as `make fault` plays them: a few of each family that needs no disk of its own.

The rest is about the run itself: the same seed gives the same faults, and a broken promise is noticed.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from random import Random

import pytest

from leadline.model import TopicPartition
from leadline.simulation.client_history import Attempt
from tests.fault import __main__ as command
from tests.fault.injection import kinds
from tests.fault.injection.fault_cluster import FaultCluster
from tests.fault.injection.injected_fault import InjectedFault
from tests.fault.injection.limits import ClockAhead, DescriptorsExhausted
from tests.fault.injection.networks import CutOneWay, ZooKeeperKilled
from tests.fault.injection.processes import Kill
from tests.fault.injection.resources_of_brokers import ResourceHistory, is_flat
from tests.fault.injection.run import FaultRun, judged, missing_outputs
from tests.fault.injection.tally import Tally, results
from tests.fault.injection.workload import INPUT, NO_PLACE, OUTPUT, PARTITIONS, GroupReads, Notes, Workload
from tests.support import in_memory
from tests.support.namespaced_cluster import CLIENT, hosts_of
from tests.support.namespaces import namespaces

PLAYED: tuple[type[InjectedFault], ...] = (Kill, CutOneWay, ZooKeeperKilled, ClockAhead, DescriptorsExhausted)
IN, OUT = TopicPartition(INPUT, 0), TopicPartition(OUTPUT, 0)


@pytest.fixture
def run() -> Iterator[FaultRun]:
    for path in in_memory.directory():
        with namespaces(*hosts_of(3)) as net, net.inside(CLIENT), ExitStack() as stack:
            cluster = FaultCluster(path, net, stack, has_disks=False)
            for topic in (INPUT, OUTPUT):
                cluster.create(topic, PARTITIONS)
            workload = Workload(cluster.bootstrap, path)
            stack.callback(workload.stop)
            yield FaultRun(cluster, workload, lambda line: None)


def test_faults_of_several_kinds_break_no_promise(run: FaultRun) -> None:
    run.settle()
    for kind, chance in islice(kinds.plan(PLAYED, 1), len(PLAYED)):
        tally = run.play(kind(run.cluster, chance))
        assert not tally.violations, (kind.name, tally.violations)
        assert tally.acknowledged > 0
    assert not run.finish().violations
    assert {name: tally.faults for name, tally in run.tallies.items()} == {kind.name: 1 for kind in PLAYED}
    assert run.workload.committed_transactions() > 0


# The run itself


def draws(seed: int, count: int) -> list[tuple[str, float]]:
    return [(kind.name, chance.random()) for kind, chance in islice(kinds.plan(kinds.ALL, seed), count)]


def test_the_same_seed_gives_the_same_faults() -> None:
    count = 2 * len(kinds.ALL)
    assert draws(7, count) == draws(7, count)
    assert draws(7, count) != draws(8, count)


def test_each_round_of_a_plan_has_every_kind_once() -> None:
    names = [name for name, _ in draws(7, 2 * len(kinds.ALL))]
    assert sorted(names[: len(kinds.ALL)]) == sorted(names[len(kinds.ALL) :]) == sorted(kinds.BY_NAME)


def test_a_kind_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parser().parse_args(["--only", "kill,nonsense"])
    assert "no fault has the name nonsense" in capsys.readouterr().err


def attempt(number: int, offset: int | None) -> Attempt:
    return Attempt("p", number, b"p input-0 %d" % number, IN, offset)


@pytest.mark.parametrize(
    ("attempts", "values", "expected"),
    [
        ([(0, 0), (1, 1)], {0: 0, 1: 1}, (0, 0, 0)),
        ([(0, 0), (1, 1)], {0: 0}, (1, 0, 0)),
        ([(0, 0), (1, None)], {0: 0}, (0, 0, 0)),  # not acknowledged
        ([(0, 0), (1, NO_PLACE)], {0: 0, 5: 1}, (0, 0, 0)),  # acknowledged without an offset: it is there
        ([(0, 0), (1, NO_PLACE)], {0: 0}, (1, 0, 0)),
        ([(0, 0)], {0: 0, 1: 0}, (0, 1, 1)),
        ([(0, None), (1, None)], {0: 1, 1: 0}, (0, 0, 1)),
    ],
)
def test_what_is_lost_doubled_or_out_of_order_is_counted(
    attempts: list[tuple[int, int | None]], values: dict[int, int], expected: tuple[int, int, int]
) -> None:
    stored = {IN: {offset: b"p input-0 %d" % number for offset, number in values.items()}}
    tally = judged([attempt(number, offset) for number, offset in attempts], stored, stored)
    assert (tally.lost, tally.doubled, tally.reordered) == expected
    assert len(tally.violations) == sum(expected)


def test_a_record_that_no_transaction_wrote_to_the_output_is_lost() -> None:
    notes = Notes()
    notes.stored[IN] = {0: b"p input-0 0", 1: b"p input-0 1"}
    notes.done = {b"done: p input-0 0"}
    assert missing_outputs(notes) == ["lost transaction: b'p input-0 1' of input-0 @ 1 is not in the output"]


def test_a_group_that_goes_back_behind_its_commit_or_skips_is_noticed() -> None:
    notes = Notes()
    reads = GroupReads(notes)
    for offset in range(5):
        reads.polled(IN, offset, offset - 1 if offset else None)
    reads.will_commit({IN: 5})
    reads.committed({IN: 5})
    assert reads.floor(IN) == reads.read[IN] == 5
    reads.began(IN, 5, 5)
    assert notes.order == []
    reads.began(IN, 4, 5)
    reads.began(IN, 6, 5)
    reads.polled(IN, 8, 6)
    assert [line.split(":")[0] for line in notes.order] == ["lost commit", "skipped", "poll out of order"]


def test_the_table_has_a_row_for_each_kind_and_apaches_figures_where_there_are_some() -> None:
    leadline = {"kill": Tally(2, 300, unavailable_s=0.41), "memory": Tally(1, 100)}
    heading, kill, memory, total = results(leadline, {"kill": Tally(1, 50, unavailable_s=6.2)})
    assert heading.split()[:3] == ["fault", "faults", "acknowledged"]
    assert kill.split() == ["kill", "2", "300", "0", "0", "0", "0.4", "s", "1", "50", "0", "0", "0", "6.2", "s"]
    assert memory.split() == ["memory", "1", "100", "0", "0", "0", "0.0", "s"]
    assert total.split()[:3] == ["all", "3", "400"]


def test_what_grows_for_as_long_as_a_soak_lasts_is_not_flat() -> None:
    chance = Random(1)
    steady = [60 + chance.uniform(-3, 3) for _ in range(400)]
    warming_up = [40 + min(n, 90) / 90 * 25 for n in range(400)]
    leaking = [60 + n / 20 for n in range(400)]
    assert is_flat("memory MB", steady)
    assert is_flat("memory MB", warming_up)
    assert not is_flat("memory MB", leaking)
    history = ResourceHistory()
    for value in leaking:
        history.add(1, {"memory MB": value, "threads": 5})
    assert [line.split(" grow")[0] for line in history.violations()] == ["memory MB of broker 1"]
