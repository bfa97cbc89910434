"""A Kafka cluster inside a test, and fixtures for pytest. docs/TESTING.md has examples.

    from leadline.testing import LocalCluster

    with LocalCluster(brokers=3) as cluster:
        cluster.produce("orders", ["one", ("anna", "two"), {"apples": 3}])
        assert cluster.values("orders") == [...]

The names below are imported when they are used: a test run that needs no broker does not pay for one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.testing.async_cluster import AsyncCluster
    from leadline.testing.cluster import LocalCluster
    from leadline.testing.errors import ClusterError
    from leadline.testing.local_broker import LocalBroker
    from leadline.testing.records import ConsumedRecord

__all__ = ["AsyncCluster", "ClusterError", "ConsumedRecord", "LocalBroker", "LocalCluster"]

_MODULES = {
    "AsyncCluster": "async_cluster",
    "ClusterError": "errors",
    "ConsumedRecord": "records",
    "LocalBroker": "local_broker",
    "LocalCluster": "cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
