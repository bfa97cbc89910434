"""A tree in each of its homes, as the tests of `coordination` have it."""

from tests.unit.coordination.conftest import home, in_zookeeper, run, server, tree

__all__ = ["home", "in_zookeeper", "run", "server", "tree"]
