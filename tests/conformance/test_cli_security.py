"""`leadline acls`, `users`, `quotas` and `tokens` against a real Kafka and against Leadline, beside Kafka's own tools.

Users log in by PLAIN; everybody else is User:ANONYMOUS, a super user. Leadline is a single node here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from leadline.cli import main
from leadline.config.properties import parse_properties, property_text
from tests.conformance.kafka.broker import _free_port, zookeeper
from tests.conformance.kafka.secured import LOGIN, PASSWORDS, secured_broker, secured_settings
from tests.conformance.kafka.tools import tool
from tests.support.broker import leadline
from tests.support.guided_broker import START, GuidedBroker
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

Run = Callable[..., str]


@dataclass
class SecuredCluster:
    name: str
    bootstrap: str  # for everybody
    users: str  # for those who log in
    folder: Path

    def login(self, user: str, password: str = "", mechanism: str = "PLAIN") -> list[str]:
        """The options of a user."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = property_text(f'username="{user}" password="{password or PASSWORDS[user]}"')
        file = self.folder / f"{self.name}-{user}-{mechanism}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={LOGIN}.{module} required {options};\n"
        )
        return ["--bootstrap-server", self.users, "--command-config", str(file)]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SecuredCluster]]:
    directory, port = tmp_path_factory.mktemp("secured"), _free_port()
    ours = {name: str(value).replace("$port", "0") for name, value in secured_settings(port).items()}
    with (
        zookeeper(directory / "zookeeper") as coordinator,
        secured_broker(directory / "kafka", coordinator, {}) as kafka,
        leadline(directory / "leadline", **ours) as us,
    ):
        yield {
            "Kafka": SecuredCluster("Kafka", kafka.bootstrap, f"127.0.0.1:{kafka.users_port}", directory),
            "Leadline": SecuredCluster("Leadline", us.bootstrap, f"127.0.0.1:{port}", directory),
        }


@pytest.fixture(params=["Kafka", "Leadline"])
def cluster(request: pytest.FixtureRequest, clusters: dict[str, SecuredCluster]) -> SecuredCluster:
    return clusters[request.param]


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuidedBroker]:
    broker = GuidedBroker(tmp_path_factory.mktemp("init"))
    broker.run("leadline security init secure")
    broker.run(START)
    yield broker
    broker.stop()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; what it printed, on stderr if it fails."""

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = main(list(arguments))
        shown = capsys.readouterr()
        assert ended == code, shown.err
        return shown.err if code else shown.out

    return run


def here(cluster: SecuredCluster, run: Run) -> Run:
    """As a super user."""

    def run_here(*arguments: str, code: int = 0) -> str:
        return run(*arguments, "--bootstrap-server", cluster.bootstrap, "--timeout", "60", code=code)

    return run_here


def listed(run: Run, *arguments: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in run("acls", "list", "--json", *arguments).splitlines()]


def test_applications_get_the_acls_that_kafkas_tool_gives(cluster: SecuredCluster, run: Run) -> None:
    admin = here(cluster, run)
    prefixed = ["--resource-pattern-type", "prefixed"]
    resources = ["--producer", "--consumer", "--idempotent", "--topic", "apps-", "--group", "apps-", *prefixed]
    kafkas = ["--bootstrap-server", cluster.bootstrap, "--add", "--allow-principal", "User:theirs", *resources]
    tool("acls", *kafkas, "--transactional-id", "apps-")
    admin("acls", "add", "--allow-principal", "User:ours", *resources, "--transactional-id", "apps-")
    theirs, ours = (listed(admin, "--principal", f"User:{name}") for name in ("theirs", "ours"))
    assert [acl | {"principal": ""} for acl in theirs] == [acl | {"principal": ""} for acl in ours]
    assert len(ours) == 8
    admin("acls", "remove", "--topic", "apps-", "--group", "apps-", "--transactional-id", "apps-", "--cluster")
    assert listed(admin, "--topic", "apps-") == []


def test_acls_are_added_explained_and_removed(cluster: SecuredCluster, run: Run) -> None:
    admin = here(cluster, run)
    admin("topics", "create", "orders", "--if-not-exists")
    rule = ["--allow-principal", "User:alice", "--operation", "read", "--topic", "orders"]
    shown = admin("acls", "add", *rule, "--dry-run")
    assert "User:alice  any   topic orders  now may  read, describe" in shown
    assert shown.endswith("Would add 1 ACL.\n")
    assert listed(admin, "--topic", "orders") == []
    assert admin("acls", "add", *rule) == "+ User:alice may read on topic orders from any host\nAdded 1 ACL.\n"
    assert "there already" in admin("acls", "add", *rule)
    why = ["acls", "why", "--principal", "User:alice", "--topic", "orders", "--operation"]
    allowed, denied = admin(*why, "describe"), admin(*why, "write")
    assert "an ACL allows read, which includes describe" in allowed
    assert "not seen" not in allowed
    assert "User:alice may not write on topic orders" in denied
    assert "not seen: super.users (set, and hidden by the brokers)" in denied
    assert "may write" in admin(*why, "write", "--super-users", "User:root;User:alice")
    assert run("topics", "list", *cluster.login("alice")) == "orders\n"
    refusal = run("acls", "list", *cluster.login("alice"), code=1)
    assert "you may not see the ACLs: Describe on the cluster is needed" in refusal
    removed = admin("acls", "remove", "--topic", "orders", "--dry-run")
    assert "no longer may  read, describe" in removed
    admin("acls", "remove", "--topic", "orders", "--yes")
    assert admin("acls", "list", "--topic", "orders") == "No ACLs.\n"


def test_kafkas_tool_sees_our_denials_and_we_its(cluster: SecuredCluster, run: Run) -> None:
    admin = here(cluster, run)
    ours = ["--deny-principal", "User:*", "--deny-host", "10.0.0.7", "--operation", "all"]
    admin("acls", "add", *ours, "--topic", "*")
    shown = tool("acls", "--bootstrap-server", cluster.bootstrap, "--list", "--topic", "*")
    assert "(principal=User:*, host=10.0.0.7, operation=ALL, permissionType=DENY)" in shown
    admin("acls", "remove", "--topic", "*", *ours)
    tool(
        *("acls", "--bootstrap-server", cluster.bootstrap, "--add", "--allow-principal", "User:y", "--operation"),
        *("CreateTokens", "--user-principal", "User:x"),
    )
    (acl,) = listed(admin, "--user-principal", "User:x")
    assert (acl["resource_type"], acl["operation"]) == ("USER", "CREATE_TOKENS")
    admin("acls", "remove", "--user-principal", "User:x")


def test_users_are_added_log_in_and_are_removed(cluster: SecuredCluster, run: Run, tmp_path: Path) -> None:
    admin = here(cluster, run)
    password = tmp_path / "password"
    password.write_text('p"w=1,2\n')
    add = ["users", "add", "eve", "--password-file", str(password)]
    assert admin(*add, "--dry-run") == "Would add user eve, by SCRAM-SHA-256 and SCRAM-SHA-512.\n"
    assert "there is no user eve" in admin("users", "list", "eve", code=1)
    admin(*add)
    described = tool("configs", "--bootstrap-server", cluster.bootstrap, "--describe", "--user", "eve")
    assert "SCRAM-SHA-256=iterations=8192" in described
    (user,) = (json.loads(line) for line in admin("users", "list", "eve", "--json").splitlines())
    assert user == {"user": "eve", "iterations": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}
    login = cluster.login("eve", 'p\\"w=1,2', "SCRAM-SHA-256")
    assert run("topics", "list", *login) == ""  # librdkafka is let in, and sees nothing
    until(lambda: "you may not see the ACLs" in run("acls", "list", *login, code=1))
    assert admin("users", "remove", "eve", "--yes") == "Removed user eve, by SCRAM-SHA-256 and SCRAM-SHA-512.\n"
    until(lambda: "SCRAM-SHA-256" in run("acls", "list", *login, code=1))  # a broker hears of it a little later
    assert "there is no user eve" in admin("users", "remove", "eve", "--yes", code=1)


def test_a_mechanism_that_a_broker_does_not_have_is_named_with_those_that_it_has(
    cluster: SecuredCluster, run: Run
) -> None:
    shown = run("acls", "list", *cluster.login("alice", "x", "SCRAM-SHA-512"), code=1)
    assert "refuses the login by SCRAM-SHA-512" in shown
    assert "PLAIN" in shown


def test_quotas_are_set_and_removed(cluster: SecuredCluster, run: Run) -> None:
    admin = here(cluster, run)
    change = [
        "quotas",
        "set",
        "--user",
        "u/1",
        "--client-id-default",
        "producer_byte_rate=1024",
        "request_percentage=12.5",
    ]
    assert "Would change the quotas of user u/1, client id <default>." in admin(*change, "--dry-run")
    assert admin("quotas", "list") == "No quotas.\n"
    admin(*change)
    admin("quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=7")
    described = tool(
        *("configs", "--bootstrap-server", cluster.bootstrap, "--describe"),
        *("--entity-type", "users", "--entity-name", "u/1", "--entity-type", "clients", "--entity-default"),
    )
    assert "producer_byte_rate=1024.0" in described
    lines = [json.loads(line) for line in admin("quotas", "list", "--json").splitlines()]
    assert {"entity": {"ip": "127.0.0.9"}, "quotas": {"connection_creation_rate": 7.0}} in lines
    pair = {"user": "u/1", "client-id": None}
    assert {"entity": pair, "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5}} in lines
    assert "must be a" in admin("quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=1.5", code=1)
    admin("quotas", "remove", "--ip", "127.0.0.9")
    admin("quotas", "remove", "--user", "u/1", "--client-id-default", "request_percentage")
    admin("quotas", "remove", "--user", "u/1", "--client-id-default")
    assert admin("quotas", "list") == "No quotas.\n"


def test_tokens_are_created_used_renewed_and_ended(cluster: SecuredCluster, run: Run, tmp_path: Path) -> None:
    alice = partial(_as, run, cluster.login("alice"))
    out = tmp_path / "token.properties"
    written = ["--out", str(out), "--mechanism", "SCRAM-SHA-256"]
    shown = alice("tokens", "create", "--renewer", "User:bob", "--lifetime", "2d", *written)
    (token,) = (json.loads(line) for line in alice("tokens", "list", "--json").splitlines())
    assert (token["owner"], token["renewers"]) == ("User:alice", ["User:bob"])
    assert f"Created token {token['token_id']} of User:alice." in shown
    assert "hmac" not in token
    assert token["max_timestamp"] - token["issue_timestamp"] == 2 * 86_400_000
    by_token = ["--bootstrap-server", cluster.users, "--command-config", str(out)]
    sees = run("acls", "why", *("--principal", "User:x", "--operation", "read", "--topic", "t"), *by_token, code=1)
    assert "you may not see the ACLs" in sees  # it is in, as alice
    assert "only given" in run("tokens", "create", *by_token, code=1)
    assert "librdkafka cannot log in with a delegation token" in run("topics", "list", *by_token, code=1)
    bob = partial(_as, run, cluster.login("bob"))
    bob("tokens", "renew", token["token_id"], "--period", "1h")
    (renewed,) = (json.loads(line) for line in bob("tokens", "list", "--json", "--owner", "User:alice").splitlines())
    assert renewed["expiry_timestamp"] < token["expiry_timestamp"]
    described = tool(
        *("delegation-tokens", "--bootstrap-server", cluster.users, "--describe"),
        *("--owner-principal", "User:alice", "--command-config", cluster.login("alice")[-1]),
    )
    assert token["token_id"] in described
    assert "Would end" in alice("tokens", "expire", token["token_id"], "--dry-run")
    alice("tokens", "expire", token["token_id"], "--yes")
    assert alice("tokens", "list") == "No tokens.\n"
    assert "there is no token" in alice("tokens", "renew", token["token_id"], code=1)


def _as(run: Run, login: list[str], *arguments: str, code: int = 0) -> str:
    return run(*arguments, *login, code=code)


@pytest.mark.parametrize("user", ["admin", "alice"])
def test_kafkas_tools_log_in_with_the_files_of_security_init(user: str, run: Run, guided: GuidedBroker) -> None:
    file = guided.secure / f"{user}.properties"
    servers = parse_properties(file.read_text())["bootstrap.servers"]
    if user == "admin":
        tool("topics", "--bootstrap-server", servers, "--command-config", file, "--create", "--topic", "of-java")
        run("acls", "add", "--allow-principal", "User:alice", "--consumer", "--topic", "of-java", "--group", "g",
            "--command-config", str(file))  # fmt: skip
    assert tool("topics", "--bootstrap-server", servers, "--command-config", file, "--list") == "of-java\n"
