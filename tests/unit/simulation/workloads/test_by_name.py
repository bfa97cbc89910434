"""The name of a client says which workload it runs."""

from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest

from leadline.simulation.client import SimulatedClient
from leadline.simulation.workloads.by_name import KINDS, workload_of
from leadline.simulation.workloads.workload import Workload, WorkloadContext


def test_no_two_workloads_share_a_prefix() -> None:
    assert set(Counter(kind.prefix for kind in KINDS).values()) == {1}
    assert "" not in {kind.prefix for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_runs_the_workload_of_its_prefix(kind: type[Workload], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "__init__", lambda self, client, world: None)
    client = cast(SimulatedClient, SimpleNamespace(name=f"{kind.prefix}-3"))
    assert type(workload_of(client, cast(WorkloadContext, None))) is kind
