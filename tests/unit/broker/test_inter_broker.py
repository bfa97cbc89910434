"""Three brokers that reach each other over SASL_SSL, with an authorizer: who is let in, and who may do what."""

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.broker.inter_broker import InterBroker
from leadline.broker.ports import Ports
from leadline.cluster import failure_detector
from leadline.cluster.broker_client import PeerLocked, PeerLost, TcpBrokerClient
from leadline.cluster.broker_login import PeerSecurity
from leadline.cluster.failure_detector import FailureDetector, ProbeOutcome, Reachability
from leadline.config.broker import broker_settings
from leadline.config.live_settings import LiveSettings
from leadline.config.security import UNSECURED_HANDLER, UNSECURED_LOGIN_HANDLER
from leadline.controller.state import RegisteredBroker
from leadline.coordination.registration import RegisteredEndpoint
from leadline.coordination.tree import Tree
from leadline.model import TopicPartition
from leadline.runtime.network import TcpNetwork
from leadline.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator
from leadline.security.scram import ScramClient
from leadline.security.scram_credentials import ScramMechanism
from leadline.security.secret import Secret
from leadline.wire import messages as m
from tests.support.certificates import client_context
from tests.support.in_process_cluster import cluster_in_process
from tests.support.logs import batch
from tests.support.secured import BROKER, PASSWORDS, STRANGER, ClusterSecurity
from tests.support.waiting import eventually

PATIENCE_S = 400  # more than `eventually` has, which says what did not happen
SILENCE_S = 0.5
ALLOWED = re.compile(r"Principal = (User:\w+) is Allowed Operation = ClusterAction .* for request = (\w+)")
OwnSettings = Callable[[ClusterSecurity], Mapping[str, str]]
TP = TopicPartition("orders", 0)
LOGIN_MODULES = "org.apache.kafka.common.security"
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "100",
    "controlled.shutdown.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.flush.interval.messages": "1000000",
}


@asynccontextmanager
async def cluster(
    path: Path,
    of_last: OwnSettings,
    of_others: OwnSettings = ClusterSecurity.settings,
    scram: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
    **settings: str,
) -> AsyncIterator[list[Broker]]:
    """`of_last`: what sets the last of the brokers apart."""
    security = ClusterSecurity(path / "security", scram)

    def settings_of(id: int) -> dict[str, str]:
        own = of_last(security) if id == 2 else of_others(security)
        return SETTINGS | {name.replace("__", "."): text for name, text in settings.items()} | dict(own)

    async def create_users(tree: Tree) -> None:
        for node, data in security.user_nodes().items():
            await tree.create(node, data, make_parents=True)

    async with asyncio.timeout(PATIENCE_S), cluster_in_process(path, settings_of, prepare=create_users) as brokers:
        yield brokers


async def create_topic(brokers: list[Broker], replicas: list[int]) -> None:
    await eventually(lambda: all(len(broker.metadata.brokers) == 3 for broker in brokers[:2]))
    assignment = m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = m.CreateTopicsRequest.CreatableTopic(
        name=TP.topic, num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    response = await brokers[1].peers.ask(0, request, m.CreateTopicsResponse, 5, PATIENCE_S)
    assert [topic.error_code for topic in response.topics] == [0]
    await eventually(lambda: all(TP in brokers[id].replicas.hosted for id in replicas))
    await eventually(lambda: TP.topic in brokers[0].metadata.topics)


async def produce(broker: Broker, leader: int, *, acks: int = -1) -> None:
    """Acknowledged by all that are in sync, or by the leader."""
    part = m.ProduceRequest.PartitionProduceData(index=0, records=batch(3))
    topic = m.ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[part])
    request = m.ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[topic])
    response = await broker.peers.ask(leader, request, m.ProduceResponse, 9, PATIENCE_S)
    assert response.responses[0].partition_responses[0].error_code == 0


def isr(broker: Broker) -> set[int]:
    return set(broker.metadata.topics[TP.topic].partitions[0].isr)


def log_end(broker: Broker) -> int:
    return broker.dirs.logs[TP].log_end if TP in broker.dirs.logs else -1


# Every way to protect the listener between brokers


def by_certificate(security: ClusterSecurity) -> Mapping[str, str]:
    return security.settings() | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
    }


def by_sasl(mechanism: str, protocol: str, line: str) -> OwnSettings:
    def settings(security: ClusterSecurity) -> Mapping[str, str]:
        return security.settings() | {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SECURE:{protocol}",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"listener.name.secure.{mechanism.lower()}.sasl.jaas.config": f"{LOGIN_MODULES}.{line};",
        }

    return settings


def by_token(security: ClusterSecurity) -> Mapping[str, str]:
    line = f'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{BROKER}"'
    prefix = "listener.name.secure.oauthbearer.sasl"
    return dict(by_sasl("OAUTHBEARER", "SASL_SSL", line)(security)) | {
        f"{prefix}.server.callback.handler.class": UNSECURED_HANDLER,
        f"{prefix}.login.callback.handler.class": UNSECURED_LOGIN_HANDLER,
    }


PLAIN_LINE = (
    f'plain.PlainLoginModule required username="{BROKER}" password="{PASSWORDS[BROKER]}" '
    f'user_{BROKER}="{PASSWORDS[BROKER]}"'
)
PROTECTIONS: dict[str, tuple[OwnSettings, ScramMechanism]] = {
    "SSL with certificates": (by_certificate, ScramMechanism.SCRAM_SHA_512),
    "SASL_PLAINTEXT with PLAIN": (by_sasl("PLAIN", "SASL_PLAINTEXT", PLAIN_LINE), ScramMechanism.SCRAM_SHA_512),
    "SASL_SSL with SCRAM-SHA-256": (ClusterSecurity.settings, ScramMechanism.SCRAM_SHA_256),
    "SASL_SSL with OAUTHBEARER": (by_token, ScramMechanism.SCRAM_SHA_512),
}


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_cluster_replicates_obeys_its_controller_and_fails_over_however_it_is_protected(
    protection: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, scram = PROTECTIONS[protection]
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with cluster(tmp_path, settings, settings, scram) as brokers:
            await create_topic(brokers, [1, 0, 2])
            await produce(brokers[0], 1)
            await eventually(lambda: all(log_end(broker) == 3 for broker in brokers))
            await brokers[1].stop()
            await eventually(lambda: leader(brokers[0]) == leader(brokers[2]) == 0)
            await produce(brokers[2], 0)
            await eventually(lambda: [log_end(brokers[id]) for id in (0, 2)] == [6, 6])

    asyncio.run(main())
    served = {request for principal, request in ALLOWED.findall(caplog.text) if principal == f"User:{BROKER}"}
    assert served >= {"Fetch", "LeaderAndIsr", "UpdateMetadata"}


def leader(broker: Broker) -> int:
    return broker.metadata.topics[TP.topic].partitions[0].leader


def test_brokers_replicate_over_logins_that_have_an_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with cluster(tmp_path, ClusterSecurity.settings, connections__max__reauth__ms="3000") as brokers:
            await create_topic(brokers, [1, 0, 2])
            logins = caplog.text.count("logged in over listener SECURE")
            records = 0
            while caplog.text.count("logged in over listener SECURE") < logins + 6:
                await produce(brokers[0], 1)
                records += 3
                await asyncio.sleep(0.1)
            await eventually(
                lambda: all(log_end(broker) == records for broker in brokers),
                lambda: f"{records} records on all of {[log_end(broker) for broker in brokers]}",
            )
            await eventually(lambda: isr(brokers[0]) == {0, 1, 2}, lambda: f"all in sync: {isr(brokers[0])}")

    asyncio.run(main())
    for password in PASSWORDS.values():
        assert password not in caplog.text


def test_a_broker_without_cluster_action_is_refused_until_it_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs in and obeys the controller, but its fetches are refused."""
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with cluster(tmp_path, lambda security: security.settings(user=STRANGER)) as brokers:
            await create_topic(brokers, [1, 0, 2])
            await produce(brokers[0], 1)
            assert log_end(brokers[2]) == 0
            await eventually(lambda: isr(brokers[0]) == {0, 1})
            denied = "Principal = User:stranger is Denied Operation = ClusterAction from host = 127.0.0.1"
            assert f"{denied} on resource = Cluster:LITERAL:kafka-cluster for request = Fetch" in caplog.text
            needs = "the user of this broker needs ClusterAction on the cluster"
            assert caplog.text.count(f"broker 1 refuses fetches: {needs}") == 1
            await allow_cluster_action(brokers)
            await eventually(lambda: log_end(brokers[2]) == 3)
            await eventually(lambda: isr(brokers[0]) == {0, 1, 2})

    asyncio.run(main())


async def allow_cluster_action(brokers: list[Broker]) -> None:
    creation = m.CreateAclsRequest.AclCreation(
        resource_type=ResourceType.CLUSTER,
        resource_name="kafka-cluster",
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{STRANGER}",
        host="*",
        operation=AclOperation.CLUSTER_ACTION,
        permission_type=AclPermission.ALLOW,
    )
    request = m.CreateAclsRequest(creations=[creation])
    response = await brokers[0].peers.ask(1, request, m.CreateAclsResponse, 3, PATIENCE_S)
    assert [result.error_code for result in response.results] == [0]


def test_a_broker_with_a_wrong_password_logs_it_once_per_peer_and_harms_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(security: ClusterSecurity) -> Mapping[str, str]:
        return security.settings(user=BROKER, password="not-the-password")

    async def main() -> None:
        async with cluster(tmp_path, wrong) as brokers:
            await create_topic(brokers, [1, 0, 2])
            await produce(brokers[0], 1)
            await eventually(lambda: isr(brokers[0]) == {0, 1})
            assert log_end(brokers[2]) <= 0
            ports = {broker.addresses["SECURE"].port for broker in brokers[:2]}
            failures = [
                record.getMessage() for record in caplog.records if record.name == "leadline.cluster.broker_login"
            ]
            assert {f"127.0.0.1:{port}" for port in ports} >= {message.split(": ")[0] for message in failures}
            assert len(failures) == len(set(failures)) <= 2
            assert all("over listener SECURE failed: Authentication failed" in message for message in failures)

    asyncio.run(main())
    assert "not-the-password" not in caplog.text


def test_the_controller_and_brokers_reach_each_other_on_the_control_plane_if_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records then go over PLAINTEXT, where everybody is ANONYMOUS."""
    caplog.set_level(logging.DEBUG)

    def separate(security: ClusterSecurity) -> Mapping[str, str]:
        return security.settings() | {
            "inter.broker.listener.name": "PLAINTEXT",
            "control.plane.listener.name": "SECURE",
            "super.users": "User:broker;User:ANONYMOUS",
        }

    async def main() -> None:
        async with cluster(tmp_path, separate, separate) as brokers:
            await create_topic(brokers, [1, 0, 2])
            await produce(brokers[0], 1)
            await eventually(lambda: all(log_end(broker) == 3 for broker in brokers))

    asyncio.run(main())
    by_request = {request: principal for principal, request in re.findall(ALLOWED, caplog.text)}
    assert {by_request[name] for name in ("LeaderAndIsr", "UpdateMetadata")} == {"User:broker"}
    assert by_request["Fetch"] == "User:ANONYMOUS"


def test_a_broker_without_the_listener_is_reached_on_no_other() -> None:
    settings = LiveSettings(broker_settings({"listeners": "PLAINTEXT://:9092"}))
    brokers = InterBroker(settings, 1, TcpNetwork(), {})
    endpoints = (RegisteredEndpoint("OTHER", "localhost", 9093, "PLAINTEXT"),)
    client = brokers.controlled(RegisteredBroker(2, 7, endpoints), lambda: None)
    with pytest.raises(PeerLost, match="broker 2 does not listen on PLAINTEXT"):
        asyncio.run(client.ask(m.ApiVersionsRequest(), m.ApiVersionsResponse, 0, 1.0))
    client.close()


def test_a_leader_without_cluster_action_cannot_alter_its_isr(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its follower is cut off; the controller refuses to take it out of the ISR until the leader has the right."""

    async def main() -> None:
        async with cluster(tmp_path, lambda security: security.settings(user=STRANGER)) as brokers:
            await create_topic(brokers, [2, 1])
            assert isr(brokers[0]) == {1, 2}
            await brokers[1].replicas.stop()
            await produce(brokers[0], 2, acks=1)  # the follower lacks it
            refusal = "refuses AlterPartitionRequest: the user of this broker needs ClusterAction on the cluster"
            await eventually(lambda: refusal in caplog.text)
            assert isr(brokers[0]) == {1, 2}
            await allow_cluster_action(brokers)
            await eventually(lambda: isr(brokers[0]) == {2})
            assert caplog.text.count(refusal) == 1

    asyncio.run(main())


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_without_a_certificate_learns_why_it_is_not_let_in(newest: ssl.TLSVersion, tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path / "security")
    settings = security.settings() | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
        "ssl.client.auth": "required",
        "log.dirs": str(tmp_path / "data"),
    }
    context = client_context(tmp_path)
    context.maximum_version = newest

    async def main() -> None:
        broker = Broker(broker_settings(settings), Ports())
        await broker.start()
        client = TcpBrokerClient(
            ("127.0.0.1", broker.addresses["SECURE"].port),
            "me",
            TcpNetwork(),
            security=PeerSecurity(listener="SECURE", tls=context),
        )
        try:
            with pytest.raises(PeerLocked, match=r"(?i)alert.(certificate.required|handshake.failure)"):
                await client.ask(m.ApiVersionsRequest(), m.ApiVersionsResponse, 0, PATIENCE_S)
        finally:
            client.close()
            await broker.stop()

    asyncio.run(main())


def test_brokers_whose_logins_fail_everywhere_go_on_leading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, if their password changes. A refused login is an answer: nobody is cut off from the others."""
    monkeypatch.setattr(failure_detector, "LEAST_SILENCE_S", SILENCE_S)
    locked_s: dict[FailureDetector, list[float]] = {}
    judge = FailureDetector.judge

    def note(detector: FailureDetector, outcome: ProbeOutcome, now_s: float) -> Reachability:
        if outcome is ProbeOutcome.LOCKED:
            locked_s.setdefault(detector, []).append(now_s)
        return judge(detector, outcome, now_s)

    monkeypatch.setattr(FailureDetector, "judge", note)

    def wrong_login(host: str) -> SaslClientAuthenticator:
        client = ScramClient(ScramMechanism.SCRAM_SHA_512, BROKER, Secret.of("not-the-password"), "nonce")
        return SaslClientAuthenticator("SCRAM-SHA-512", client)

    async def main() -> None:
        async with cluster(
            tmp_path,
            ClusterSecurity.settings,
            connections__max__reauth__ms="2000",
            zookeeper__session__timeout__ms="1000",
        ) as brokers:
            await eventually(lambda: all(len(broker.metadata.brokers) == 3 for broker in brokers))
            for broker in brokers:
                broker.securities.between_brokers["SECURE"].new_login = wrong_login
            await eventually(lambda: caplog.text.count("over listener SECURE failed: Authentication failed") >= 6)
            refused_s = 3 * SILENCE_S  # after which others would count as silent
            await eventually(lambda: sum(times[-1] - times[0] > refused_s for times in locked_s.values()) >= 6)
            monitors = [broker.services.peer_monitor for broker in brokers if broker.services.peer_monitor is not None]
            assert len(monitors) == 3
            await eventually(
                lambda: not any(monitor.silent or monitor.is_isolated for monitor in monitors)
            )  # a busy machine is late

    asyncio.run(main())
