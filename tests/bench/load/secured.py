"""Produce and fetch over SASL_SSL with ACLs: large batches for the bytes, small ones for the requests.

Both brokers have the same key, TLS 1.3 with what they choose of it, and the same ACLs, among them some that deny. The
client logs in by PLAIN once; what is measured begins after that. One step on Leadline, then the same on Kafka.
"""

import socket
import ssl
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from leadline.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.bench.load.brokers import Broker, pairs
from tests.bench.load.client import Connection, Producer, Refused, create_topics, delete_topic, fetch_all
from tests.bench.load.steady import LARGE, SMALL, Load
from tests.bench.results import Goal, Row, Unit
from tests.bench.run import Run, in_turns
from tests.bench.sides import same
from tests.support.certificates import authority

USER, PASSWORD = "alice", "wonderland"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LESS_CPU = 1 / 0.7  # times: at most 0.7 of its CPU

QUANTITIES: dict[str, tuple[Unit, Goal | None]] = {
    "produce 1 x 100 B": ("/s", Goal(times=2)),
    "produce 1 x 100 B: CPU per request": ("us", Goal(times=2)),
    "produce 900 x 1 KB": ("MB/s", Goal(times=1)),
    "produce 900 x 1 KB: CPU": ("ms/MB", Goal(times=LESS_CPU)),
    "fetch 900 x 1 KB": ("MB/s", Goal(times=1)),
    "fetch 900 x 1 KB: CPU": ("ms/MB", Goal(times=LESS_CPU)),
}
Values = dict[str, float]


def settings(folder: Path) -> dict[str, str]:
    identity = authority().issue("localhost")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.write(folder / "server.pem")),
        "ssl.enabled.protocols": "TLSv1.3",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_{USER}="{PASSWORD}";',
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


def connect(port: int) -> Connection:
    """Over TLS, and logged in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().pem)

    def protect(sock: socket.socket) -> socket.socket:
        return context.wrap_socket(sock, server_hostname="localhost")

    connection = Connection(port, protect)
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    login = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
    if code := connection.ask(login, SaslAuthenticateResponse, 1).error_code:
        raise Refused(f"the login was answered with {code}")
    return connection


def create_acls(port: int) -> None:
    """The user may read and write the topics of the benchmark. Others, who never come, are denied that."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=PatternType.PREFIXED,
            principal=f"User:{principal}",
            host="*",
            operation=AclOperation.ALL,
            permission_type=permission,
        )
        for name in (SMALL.topic, LARGE.topic)
        for principal, permission in [
            (USER, AclPermission.ALLOW),
            *((f"user-{n}", AclPermission.DENY) for n in range(50)),
        ]
    ]
    with Connection(port) as connection:
        response = connection.ask(CreateAclsRequest(creations=creations), CreateAclsResponse, 1)
        if codes := {result.error_code for result in response.results} - {0}:
            raise Refused(f"creating ACLs was answered with {codes}")


class Round:
    """One broker in one round, with topics of its own."""

    def __init__(self, run: Run, broker: Broker, n: int) -> None:
        self.run, self.broker = run, broker
        self.topics = {load: f"{load.topic}-{n}" for load in (SMALL, LARGE)}
        create_topics(broker.port, {topic: load.partitions for load, topic in self.topics.items()})

    def count(self, load: Load) -> int:
        return self.run.sized(load.full, load.quick)

    def produce(self, load: Load) -> Values:
        count, what = self.count(load), f"produce {load.name}"
        topic, port = self.topics[load], self.broker.secure_port
        producer = Producer(port, topic, load.batch, records=load.records, partitions=load.partitions, connect=connect)
        with closing(producer):
            spent = self.broker.measure(partial(producer.send, count))
        if load is SMALL:
            return {what: count / spent.seconds, f"{what}: CPU per request": spent.cpu_seconds / count * 1e6}
        megabytes = count * len(load.batch) / 1e6
        return {what: megabytes / spent.seconds, f"{what}: CPU": spent.cpu_seconds * 1e3 / megabytes}

    def fetch(self, load: Load) -> Values:
        ends = [self.count(load) // load.partitions * load.records] * load.partitions
        topic, port, fetched = self.topics[load], self.broker.secure_port, list[int]()
        spent = self.broker.measure(lambda: fetched.append(fetch_all(port, topic, ends, connect)))
        same(f"bytes of {load.name} produced and fetched", self.count(load) * len(load.batch), fetched[0])
        megabytes, what = fetched[0] / 1e6, f"fetch {load.name}"
        return {what: megabytes / spent.seconds, f"{what}: CPU": spent.cpu_seconds * 1e3 / megabytes}

    def clean_up(self) -> None:
        for topic in self.topics.values():
            delete_topic(self.broker.port, topic)
        for topic in self.topics.values():
            self.broker.wait_until_gone(topic)


STEPS: tuple[Callable[[Round], Values], ...] = (
    lambda one: one.produce(SMALL),
    lambda one: one.produce(LARGE),
    lambda one: one.fetch(LARGE),
)


def measure(run: Run) -> list[Row]:
    samples: list[dict[str, list[float]]] = [defaultdict(list), defaultdict(list)]
    with pairs(run.folder, more=settings(run.folder)) as (pair,):
        brokers = list(pair)
        for broker in brokers:
            create_acls(broker.port)
        for n in run.each_round("secured"):
            rounds = [Round(run, broker, n) for broker in brokers]
            for step, side in in_turns(STEPS, brokers):
                for what, value in step(rounds[side]).items():
                    samples[side][what] += [value] if n else []
            for one in rounds:
                one.clean_up()
    ours, theirs = samples
    return [Row(what, unit, goal, ours[what], theirs[what]) for what, (unit, goal) in QUANTITIES.items()]
