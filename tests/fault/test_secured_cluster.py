"""Three brokers over SASL_SSL, with SCRAM and ACLs: a user's records replicate, and outlive leaders and controllers.

Sessions last a minute: a killed broker is noticed by its connections, as without TLS.
"""

import re
from functools import partial
from pathlib import Path

from leadline.security.acls import ResourceType
from leadline.wire import messages as m
from tests.fault.load import PARTITIONS, Load, running
from tests.support.cluster import Cluster, cluster
from tests.support.secured import LATER, PASSWORDS, ClusterSecurity, acl, read
from tests.support.waiting import until

PRODUCER: dict[str, str | bool] = {"enable.idempotence": True, "acks": "all", "request.timeout.ms": "4000"}
LONGEST_GAP_S = 20.0  # without an acknowledgement: a third of the time that a session takes to end
STEPS = "kill leader, start it, settle, kill controller, start it, settle, stop leader, start it"


def allow(served: Cluster, user: str) -> None:
    assert served.security is not None
    creations = [acl(ResourceType.TOPIC, "*", user), acl(ResourceType.GROUP, "*", user)]
    port = int(served.bootstrap.split(",")[0].split(":")[1])
    response = served.security.ask(port, m.CreateAclsRequest(creations=creations), m.CreateAclsResponse, 3)
    assert [result.error_code for result in response.results] == [0, 0]


def log_of(directory: Path, partition: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((directory / partition).glob("*.log")))


def is_identical(served: Cluster, partition: str) -> bool:
    return len({log_of(broker.directory, partition) for broker in served.brokers.values()}) == 1


def test_a_secured_cluster_replicates_and_fails_over(scratch: Path) -> None:
    security = ClusterSecurity(scratch / "security")
    with cluster(scratch, security=security, zookeeper_session_timeout_ms=60_000) as served:
        allow(served, "alice")
        served.create("orders", PARTITIONS)
        load = Load(served, "orders", "load", PRODUCER | security.client("alice"), pause_s=0.05)
        with running(load):
            until(lambda: len(load.acked) > 100)
            served.run_steps(STEPS)
            served.settle()
            more = len(load.acked) + 100
            until(lambda: len(load.acked) > more, "acknowledgements")
        assert load.longest_gap_s < LONGEST_GAP_S
        values = read(served.client | security.client("alice"), "orders", "readers", load.sent)
        assert len(values) == len(set(values)) == load.sent
        for number in range(PARTITIONS):
            until(partial(is_identical, served, f"orders-{number}"), "identical replicas")
        assert sum(broker.output().count("is the controller, with epoch") for broker in served.brokers.values()) > 1
        for broker in served.brokers.values():
            assert not re.search("|".join((*PASSWORDS.values(), *LATER.values())), broker.output())
