"""Holes that brokers and their clients have had, one sentence each, and the test that this broker does not have them.

Most are tried here, on a running broker over its sockets. Others need a part alone; `ELSEWHERE` names their tests.
Holes of ZooKeeper itself are closed by its releases; all tests run one of those.
"""

import ast
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import pack

import psutil
import pytest

from leadline.cli import main
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from leadline.wire import messages as m
from leadline.wire.frames import request_frame
from tests.conformance.both import Closed, Connection
from tests.conformance.kafka import jars
from tests.support import in_memory
from tests.support.brokers import joined
from tests.support.logs import batch, records_in
from tests.support.secured_broker import (
    LISTENERS,
    SCRAM,
    SecuredBroker,
    authenticate,
    handshake,
    log_in_plain,
    log_in_scram,
    secured_broker,
)

HERE = Path(__file__).parents[1]
FAILED_LOGIN, TOPIC_REFUSED, TXN_REFUSED, INVALID_CONFIG, INVALID_REQUEST = 58, 29, 53, 40, 42
BOMBS = "test_a_batch_that_becomes_large_takes_little_memory_and_holds_nobody_up"
ELSEWHERE = {
    # Connect showed secrets in the settings of tasks.
    "CVE-2019-12399": ("fuzz/test_no_secret_is_shown.py", "test_a_run_at_debug_shows_no_secret"),
    # SASL messages, salts and HMACs of tokens stood in logs at DEBUG.
    "CVE-2026-33558": ("fuzz/test_no_secret_is_shown.py", "test_a_run_at_debug_shows_no_secret"),
    # The time of a comparison told how much of a password was right.
    "CVE-2021-38153": (
        "unit/security/test_plain.py",
        "test_cve_2021_38153_a_password_is_compared_in_constant_time_also_for_unknown_users",
    ),
    # Clients without a login made brokers allocate what they announced.
    "CVE-2022-34917": (
        "fuzz/test_floods_before_login.py",
        "test_strangers_cost_little_memory_and_the_client_hardly_notices",
    ),
    # A header of countless tagged fields held a thread, before any login.
    "CVE-2026-111115": (
        "fuzz/test_floods_before_login.py",
        "test_strangers_cost_little_memory_and_the_client_hardly_notices",
    ),
    # Arrays were allocated by the count that a request announced.
    "CVE-2026-111108": (
        "fuzz/test_announced_counts.py",
        "test_a_request_takes_memory_for_what_it_sends_and_not_for_what_it_announces",
    ),
    # Manual and code disagreed on the operation that a request needs.
    "CVE-2026-41115": ("unit/api/test_enforcement.py", "test_a_row_is_enforced"),
    # Requests of transactions were served without a right.
    "CVE-2023-50976": ("unit/api/test_enforcement.py", "test_a_row_is_enforced"),
    # URLs of OAuth read files and reached into the network.
    "CVE-2025-27817": ("unit/security/test_jwks.py", "test_cve_2025_27817_other_endpoints_are_refused"),
    # The default validator of tokens checked no signature.
    "CVE-2026-33557": (
        "unit/security/test_oauthbearer.py",
        "test_cve_2026_33557_a_validator_without_signatures_must_be_named",
    ),
    # Without a source of keys nothing was checked.
    "CVE-2026-110985": (
        "unit/security/test_jwks.py",
        "test_cve_2026_110985_without_a_source_of_keys_the_broker_does_not_start",
    ),
    # A token that names no algorithm was accepted.
    "CVE-2021-22160": (
        "unit/security/test_oauthbearer.py",
        "test_cve_2021_22160_only_a_signature_of_the_key_set_counts",
    ),
    # A client did as many iterations of SCRAM as a server asked for.
    "CVE-2026-10143": (
        "unit/security/test_scram.py",
        "test_cve_2026_10143_the_client_does_not_do_as_many_iterations_as_a_server_likes",
    ),
    # A client allocated what a server announced.
    "CVE-2026-10142": ("unit/cluster/test_broker_login.py", "test_a_peer_that_is_not_known_yet_cannot_announce_much"),
    "CVE-2026-10142, the pipeline": (
        "unit/spark/client/test_connection.py",
        "test_a_peer_that_is_not_known_yet_cannot_announce_much",
    ),
    # A few compressed bytes became gigabytes.
    "CVE-2023-34455": (
        "unit/records/test_compression.py",
        "test_a_bomb_of_1_gb_takes_little_more_memory_than_the_limit",
    ),
    "CVE-2023-34453": ("fuzz/test_bombs.py", BOMBS),
    "CVE-2023-34454": ("fuzz/test_bombs.py", BOMBS),
    "CVE-2023-43642": ("fuzz/test_bombs.py", BOMBS),
    "CVE-2026-106453": ("fuzz/test_bombs.py", BOMBS),
}


def listening_ports() -> set[int]:
    connections = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


@pytest.fixture(scope="module")
def ports_of_others() -> set[int]:
    """Those that this process listens on, for other tests, before the broker starts."""
    return listening_ports()


@pytest.fixture(scope="module")
def broker(ports_of_others: set[int]) -> Iterator[SecuredBroker]:
    for folder in in_memory.directory():
        with secured_broker(folder) as running:
            running.add_scram_user()
            yield running


@pytest.fixture
def admin(broker: SecuredBroker) -> Iterator[Connection]:
    with closing(broker.connect()) as connection:
        yield connection


@pytest.fixture
def alice(broker: SecuredBroker) -> Iterator[Connection]:
    with closing(broker.connect("SASL_PLAINTEXT")) as connection:
        assert log_in_plain(connection).error_code == 0
        yield connection


def create(admin: Connection, topic: str, partitions: int = 1, **configs: str) -> None:
    named = m.CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            m.CreateTopicsRequest.CreateableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ],
    )
    response = admin.ask(m.CreateTopicsResponse, m.CreateTopicsRequest(topics=[named], timeout_ms=60_000), 7)
    assert response.topics[0].error_code == 0, response


def produce(connection: Connection, topic: str, *data: bytes, transactional_id: str | None = None) -> list[int]:
    """To one partition after the other; the error codes."""
    parts = [m.ProduceRequest.PartitionProduceData(index=at, records=records) for at, records in enumerate(data)]
    request = m.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=parts)],
    )
    response = connection.ask(m.ProduceResponse, request, 9)
    return [part.error_code for part in response.responses[0].partition_responses]


def fetched(connection: Connection, topic: str, version: int = 12, **fields: object) -> m.FetchResponse.PartitionData:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    named = m.FetchRequest.FetchTopic(topic=topic, partitions=[part])
    if version >= 13:
        named = m.FetchRequest.FetchTopic(topic_id=fields.pop("topic_id"), partitions=[part])  # type: ignore[arg-type]
    request = m.FetchRequest(max_wait_ms=0, max_bytes=1 << 24, topics=[named], **fields)  # type: ignore[arg-type]
    return connection.ask(m.FetchResponse, request, version).responses[0].partitions[0]


def change_acls(admin: Connection, topic: str, *acls: tuple[AclOperation, AclPermission]) -> None:
    creations = [
        m.CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=permission,
        )
        for operation, permission in acls
    ]
    response = admin.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=creations), 3)
    assert all(result.error_code == 0 for result in response.results), response


def alter(admin: Connection, kind: int, name: str, **changes: str) -> m.IncrementalAlterConfigsResponse:
    configs = [
        m.IncrementalAlterConfigsRequest.AlterableConfig(name=key.replace("__", "."), config_operation=0, value=value)
        for key, value in changes.items()
    ]
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    return admin.ask(m.IncrementalAlterConfigsResponse, request, 1)


# Logins


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM", "token"])
def test_cve_2017_12610_nobody_logs_in_for_another(broker: SecuredBroker, mechanism: str) -> None:
    """An authorization id that was not the user's own was honoured."""
    with closing(broker.connect("SASL_PLAINTEXT")) as connection:
        if mechanism == "PLAIN":
            response = log_in_plain(connection, authzid="bob")
        else:
            handshake(connection, SCRAM.mechanism_name)
            extension = b",tokenauth=true" if mechanism == "token" else b""
            response = authenticate(connection, b"n,a=bob,n=alice,r=nonce" + extension)
        assert response.error_code == FAILED_LOGIN
        assert connection.receive() is Closed


@pytest.mark.parametrize(("old", "new"), [(b"r=nonce", b"r=ecnon"), (b"c=biws", b"c=eSws")])
def test_cve_2024_56128_the_nonce_and_the_channel_binding_are_checked(
    broker: SecuredBroker, old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A final message of SCRAM with another nonce was accepted."""
    sent: list[bytes] = []

    def altered(connection: Connection, message: bytes) -> m.SaslAuthenticateResponse:
        sent.append(message.replace(old, new) if message.startswith(b"c=") else message)
        response = authenticate(connection, sent[-1])
        if response.error_code:
            raise PermissionError(response.error_code)
        return response

    monkeypatch.setattr("tests.support.secured_broker.authenticate", altered)
    with closing(broker.connect("SASL_PLAINTEXT")) as connection, pytest.raises(PermissionError, match="58"):
        log_in_scram(connection)
    assert len(sent) == 2
    assert new in sent[1]


@pytest.mark.parametrize("name", ["nobody", "root"])
def test_a_login_does_not_tell_whether_there_is_such_a_user(broker: SecuredBroker, name: str) -> None:
    """An unknown user was refused at once, a known one after its password. Names could be probed."""

    def shown(user: str) -> tuple[int, bytes]:
        """The length of the salt, and the iterations."""
        with closing(broker.connect("SASL_PLAINTEXT")) as connection:
            handshake(connection, SCRAM.mechanism_name)
            answer = authenticate(connection, f"n,,n={user},r=nonce".encode())
        _, salt, iterations = bytes(answer.auth_bytes).split(b",")
        return len(salt), iterations

    assert shown(name) == shown("alice")


# Rights


@pytest.mark.parametrize("version", range(17))
def test_cve_2018_1288_only_brokers_fetch_as_followers(
    broker: SecuredBroker, admin: Connection, alice: Connection, version: int
) -> None:
    """Any client could fetch in the name of a follower, and so move the high watermark."""
    topic = f"follower-{version}"
    create(admin, topic)
    change_acls(admin, topic, (AclOperation.READ, AclPermission.ALLOW))
    assert produce(admin, topic, bytes(batch(3))) == [0]
    fields: dict[str, object] = {"topic_id": broker.broker.metadata.topics[topic].id} if version >= 13 else {}
    if version >= 15:
        fields["replica_state"] = m.FetchRequest.ReplicaState(replica_id=2, replica_epoch=-1)
    else:
        fields["replica_id"] = 2
    part = fetched(alice, topic, version, **fields)
    assert part.error_code == TOPIC_REFUSED
    assert not part.records


def test_cve_2018_17196_records_of_a_transaction_need_its_id(admin: Connection, alice: Connection) -> None:
    """The right to a transactional id was not asked for where the first batch was an ordinary one."""
    create(admin, "transactional", 2)
    change_acls(admin, "transactional", (AclOperation.WRITE, AclPermission.ALLOW))
    ordinary, hidden = bytes(batch(1)), bytes(batch(1, producer_id=7, transactional=True))
    assert produce(alice, "transactional", ordinary, hidden) == [TXN_REFUSED] * 2
    assert produce(alice, "transactional", ordinary, hidden, transactional_id="of another") == [TXN_REFUSED] * 2
    assert not fetched(admin, "transactional").records


def test_cve_2024_27309_the_other_acls_hold_when_one_is_removed(admin: Connection, alice: Connection) -> None:
    """When one of several ACLs was removed, only one of the others was left in force."""
    create(admin, "three")
    allow, deny = AclPermission.ALLOW, AclPermission.DENY
    change_acls(admin, "three", (AclOperation.READ, allow), (AclOperation.WRITE, deny), (AclOperation.ALL, allow))
    removed = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter="three",
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.READ,
        permission_type=allow,
    )
    response = admin.ask(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=[removed]), 3)
    assert [len(result.matching_acls) for result in response.filter_results] == [1]
    assert produce(alice, "three", bytes(batch(1))) == [TOPIC_REFUSED]
    assert fetched(alice, "three").error_code == 0


# Settings


@pytest.mark.parametrize(
    "module", ["com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule", "a.B"]
)
def test_cve_2023_25194_2025_27818_2025_27819_only_known_login_modules(admin: Connection, module: str) -> None:
    """Login modules of JNDI and LDAP were loaded from settings, also from those that a client alters."""
    (result,) = alter(
        admin, 4, "1001", listener__name__sasl_plaintext__plain__sasl__jaas__config=f"{module} required password=x;"
    ).responses
    assert result.error_code in (INVALID_CONFIG, INVALID_REQUEST), result


@pytest.mark.parametrize("reference", ["${file:/etc/passwd:root}", "${env:PATH}", "${directory:/etc:passwd}"])
def test_cve_2024_31141_references_are_texts(admin: Connection, reference: str) -> None:
    """Config providers in settings read files and the environment."""
    (result,) = alter(admin, 4, "1001", listener__name__ssl__ssl__keystore__location=reference).responses
    assert result.error_code == INVALID_REQUEST
    assert "root:" not in (result.error_message or "")
    assert reference in (result.error_message or "")


def test_cve_2025_27817_urls_of_keys_do_not_change_at_run_time(admin: Connection) -> None:
    """A URL in settings that a client alters read files and reached into the network."""
    url = "file:///etc/passwd"
    (result,) = alter(admin, 4, "1001", sasl__oauthbearer__jwks__endpoint__url=url).responses
    assert result.error_code in (INVALID_CONFIG, INVALID_REQUEST), result


@pytest.mark.parametrize(
    "changes",
    [
        {"ssl.keystore.locatoin": "/x"},
        {"listener.name.sasl_ssl.plain.sasl.jaas.confg": "x"},
        {"listener.name.sasl_ssl.ssl.keystore.typ": "PEM"},
        {"listener.name.ssl.ssl.client.auth": "yes"},
        {"sasl.enabled.mechanism": "PLAIN"},
        {"ssl.client.auth": "true"},
    ],
)
def test_cve_2023_30450_a_setting_of_protection_that_is_wrong_stops_the_start(changes: dict[str, str]) -> None:
    """A block of TLS settings of the wrong type was ignored, and the listener was open."""
    for folder in in_memory.directory():
        with pytest.raises(InvalidSetting), secured_broker(folder, changes):
            pytest.fail("it has started")


@pytest.mark.parametrize("connect", ["kafka:hush-hush@zoo:2181", "zoo:2181,kafka:hush-hush@zoo:2182/kafka"])
def test_cve_2026_24308_credentials_before_a_host_of_zookeeper_are_neither_taken_nor_shown(
    connect: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper wrote secrets of its settings to the log."""
    caplog.set_level(1)
    with pytest.raises(InvalidSetting) as refused:
        broker_settings({"zookeeper.connect": connect})
    assert main(["start", "--set", f"zookeeper.connect={connect}"]) != 0
    output = capfd.readouterr()
    assert "zookeeper.connect" in output.err
    assert "hush-hush" not in f"{refused.value} {output.out} {output.err} {caplog.text}"


def test_cve_2023_44981_2024_23944_2026_24308_no_test_runs_a_zookeeper_with_known_holes() -> None:
    """A quorum could be joined without a login, watches told names of hidden nodes, and secrets were logged."""
    (version,) = re.findall(r"zookeeper-(\d+)\.(\d+)\.(\d+)\.jar", " ".join(os.listdir(jars.libs())))
    numbers = tuple(map(int, version))
    assert (3, 8, 6) <= numbers < (3, 9, 0) or numbers >= (3, 9, 5)


def test_cve_2026_82266_2026_123270_nothing_listens_but_the_listeners(
    broker: SecuredBroker, ports_of_others: set[int]
) -> None:
    """A second port, for administration, was open by default, and whoever came was the superuser."""
    named = {broker.broker.addresses[listener].port for listener in LISTENERS}
    assert listening_ports() - ports_of_others == named


# Requests


def test_cve_2026_111073_telemetry_of_clients_is_not_served(broker: SecuredBroker, admin: Connection) -> None:
    """What clients pushed as telemetry was decompressed without a limit."""
    versions = admin.ask(m.ApiVersionsResponse, m.ApiVersionsRequest(), 0)
    assert not {71, 72} & {key.api_key for key in versions.api_keys}
    for key in (71, 72):
        with closing(broker.connect()) as connection:
            body = pack(">hhih", key, 0, 1, -1) + bytes(100)
            connection.socket.sendall(pack(">i", len(body)) + body)
            assert connection.receive() is Closed


def test_cve_2026_35554_no_byte_of_one_connection_reaches_another(broker: SecuredBroker, admin: Connection) -> None:
    """A buffer was used again while it was in flight, and records came into the wrong topic."""
    create(admin, "mine")
    create(admin, "cut")
    mine, cut = bytes(batch(1, key="mine")), bytes(batch(1, key="cut"))
    part = m.ProduceRequest.PartitionProduceData(index=0, records=cut)
    topics = [m.ProduceRequest.TopicProduceData(name="cut", partition_data=[part])]
    request = m.ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics)
    frame = joined(request_frame(request, 9, 1, "cut"))
    for at in range(1, len(frame)):
        with socket.create_connection(("127.0.0.1", broker.broker.addresses["PLAINTEXT"].port)) as stranger:
            stranger.sendall(frame[:at])
            assert produce(admin, "mine", mine) == [0]
    part_of_mine = fetched(admin, "mine")
    assert isinstance(part_of_mine.records, bytes | bytearray | memoryview)
    assert {record.key for record in records_in(bytes(part_of_mine.records))} == {b"mine0"}
    assert not fetched(admin, "cut").records


@pytest.mark.parametrize("cve", ELSEWHERE)
def test_what_is_tried_elsewhere_is_tried(cve: str) -> None:
    path, name = ELSEWHERE[cve]
    tree = ast.parse((HERE / path).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
