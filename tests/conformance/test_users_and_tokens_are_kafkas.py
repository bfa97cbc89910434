"""Credentials of SCRAM and delegation tokens: the same requests and tools to a real Kafka and to Leadline.

Users log in by SASL/PLAIN. Leadline is a single node here, and keeps everything in its own tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from leadline.wire import messages as m
from tests.conformance.both import Both, Side
from tests.conformance.kafka.broker import _free_port, zookeeper
from tests.conformance.kafka.secured import secured_broker, secured_settings
from tests.conformance.kafka.tools import tool
from tests.support.broker import leadline

pytestmark = pytest.mark.conformance

DELETION = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
UPSERTION = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SHA_256, SHA_512 = 1, 2
UNEXPECTED = -1  # Kafka says nothing then


@dataclass
class Secured:
    both: Both
    users_ports: dict[str, int]  # by side


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory, port = tmp_path_factory.mktemp("users"), _free_port()
    ours = {name: str(value).replace("$port", "0") for name, value in secured_settings(port).items()}
    del ours["delegation.token.secret.key"]
    with (
        zookeeper(directory / "zookeeper") as coordinator,
        secured_broker(directory / "kafka", coordinator, {}) as kafka,
        leadline(directory / "leadline", **ours) as us,
    ):
        both = Both(
            Side("Kafka", "127.0.0.1", kafka.broker.port, [str(kafka.broker.log_dir)]),
            Side("Leadline", "127.0.0.1", us.port, [str(us.directory)]),
        )
        yield Secured(both, {"Kafka": kafka.users_port, "Leadline": port})
        for side in both.sides:
            side.connection.close()


# Credentials of SCRAM


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> UPSERTION:
    return UPSERTION(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"the salt", salted_password=bytes(range(32))
    )


ALTERATIONS: dict[str, list[UPSERTION | DELETION]] = {
    "of nobody": [],
    "new ones": [upsertion("anna"), upsertion("anna", SHA_512, 16_384), upsertion("bert", SHA_512), upsertion("c/d e")],
    "another in its place": [upsertion("anna", SHA_256, 8192)],
    "one goes and one comes": [DELETION(name="bert", mechanism=SHA_512), upsertion("bert", SHA_256)],
    "the same one goes and comes": [DELETION(name="bert", mechanism=SHA_256), upsertion("bert", SHA_256)],
    "twice": [upsertion("anna"), upsertion("anna"), upsertion("emil")],
    "no name": [upsertion(""), DELETION(name="", mechanism=SHA_256)],
    "unheard-of mechanisms": [
        upsertion("f", 0),
        upsertion("g", 3),
        upsertion("h", -1),
        DELETION(name="i", mechanism=9),
    ],
    "iterations": [upsertion("few", iterations=4095), upsertion("many", iterations=16_385), upsertion("j")],
    "a bad entry after a good one": [upsertion("k"), upsertion("k", SHA_512, 1), upsertion("l")],
    "illegal and twice": [upsertion("n", iterations=1), upsertion("n", iterations=1), upsertion("n", 7)],
    "illegal in two ways": [
        DELETION(name="p", mechanism=9),
        upsertion("p", iterations=1),
        upsertion("q", 7),
        upsertion("q", iterations=1),
    ],
    "what is not there": [DELETION(name="nobody", mechanism=SHA_256), DELETION(name="emil", mechanism=SHA_512)],
    "what is not there, and what is": [DELETION(name="l", mechanism=SHA_512), DELETION(name="l", mechanism=SHA_256)],
    "strange names": [upsertion("ümlaut"), upsertion("<default>"), upsertion("a,b=c")],
    "a name that no node can have": [upsertion(".")],
    "no salt": [UPSERTION(name="o", mechanism=SHA_256, iterations=4096, salt=b"", salted_password=b"x")],
    "no salted password": [UPSERTION(name="r", mechanism=SHA_256, iterations=4096, salt=b"x", salted_password=b"")],
}
DESCRIPTIONS: list[list[str] | None] = [
    None, [], ["anna"], ["bert", "anna", "nobody", ""], ["anna", "bert", "anna", "nobody", "nobody"], ["<default>", "o"]
]  # fmt: skip


def test_credentials_are_altered_and_described_as_kafka_does(secured: Secured) -> None:
    for name, entries in ALTERATIONS.items():
        request = m.AlterUserScramCredentialsRequest(
            deletions=[entry for entry in entries if isinstance(entry, DELETION)],
            upsertions=[entry for entry in entries if isinstance(entry, UPSERTION)],
        )
        try:
            compare_words(secured.both, m.AlterUserScramCredentialsResponse, request)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    for names in DESCRIPTIONS:
        users = None if names is None else [m.DescribeUserScramCredentialsRequest.UserName(name=it) for it in names]
        compare_words(
            secured.both, m.DescribeUserScramCredentialsResponse, m.DescribeUserScramCredentialsRequest(users=users)
        )


def compare_words(
    both: Both,
    kind: type[m.AlterUserScramCredentialsResponse] | type[m.DescribeUserScramCredentialsResponse],
    request: m.AlterUserScramCredentialsRequest | m.DescribeUserScramCredentialsRequest,
) -> None:
    """Field by field, and word by word where Kafka expects the error."""
    theirs, ours = answers = [side.ask(kind, request, 0) for side in both.sides]
    both.compare(answers, 0)
    words = {result.user: result.error_message for result in ours.results}
    assert {it.user: it.error_message for it in theirs.results if it.error_code != UNEXPECTED}.items() <= words.items()


def test_kafkas_tool_manages_the_credentials_of_both(secured: Secured) -> None:
    def session(side: Side) -> list[str]:
        def configs(*arguments: str) -> str:
            return tool("configs", "--bootstrap-server", side.bootstrap, *arguments)

        zoe = ("--entity-type", "users", "--entity-name", "zoe")
        return [
            configs("--alter", *zoe, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=zoe-secret]"),
            configs("--alter", *zoe, "--add-config", "SCRAM-SHA-512=[password=zoe-secret]"),
            configs("--alter", *zoe, "--delete-config", "SCRAM-SHA-512"),
        ]

    theirs, ours = secured.both.map(session)
    assert ours == theirs
