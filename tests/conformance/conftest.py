"""One oracle and one broker for all tests of a run: a JVM takes longer to start than most of them to finish."""

from collections.abc import Iterator

import pytest

from tests.conformance.both import Both, both_brokers
from tests.conformance.kafka.oracle import Oracle


@pytest.fixture(scope="session")
def oracle_process() -> Iterator[Oracle]:
    with Oracle.start() as oracle:
        yield oracle


@pytest.fixture
def oracle(oracle_process: Oracle) -> Oracle:
    oracle_process.reset()
    return oracle_process


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_brokers(tmp_path_factory.mktemp("both")) as brokers:
        yield brokers
