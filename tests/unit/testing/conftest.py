"""Clusters that the tests of this folder share. Each test puts in order what it disturbs."""

from collections.abc import Iterator

import pytest

from leadline.testing import LocalCluster


@pytest.fixture(scope="session")
def shared_one() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def one(shared_one: LocalCluster) -> Iterator[LocalCluster]:
    yield shared_one
    shared_one.recover()


@pytest.fixture(scope="session")
def shared_three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def three(shared_three: LocalCluster) -> Iterator[LocalCluster]:
    yield shared_three
    shared_three.recover()
