"""One oracle and one pair of brokers for all tests of this folder: a JVM takes longer to start than most to finish.

They end with the last test of the folder that a process runs: an idle Kafka takes a tenth of a core.
"""

from collections.abc import Iterator

import pytest

from tests.conformance.both import Both, both_brokers
from tests.conformance.kafka.oracle import Oracle


@pytest.fixture(scope="package")
def oracle_process() -> Iterator[Oracle]:
    with Oracle.start() as oracle:
        yield oracle


@pytest.fixture
def oracle(oracle_process: Oracle) -> Oracle:
    oracle_process.reset()
    return oracle_process


@pytest.fixture(scope="package")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_brokers(tmp_path_factory.mktemp("both")) as brokers:
        yield brokers
