"""The JAAS file of KAFKA_OPTS: its sections, and what is wrong with it."""

import pytest

from leadline.broker.jaas_file import jaas_sections
from leadline.config.java_options import LOGIN_CONFIG
from leadline.config.values import InvalidSetting

TEXT = b'Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="a" password="b"; };'


def test_without_a_file_there_are_no_sections() -> None:
    assert jaas_sections({}, lambda path: pytest.fail("nothing is to be read")) == {}


def test_the_sections_are_those_of_the_named_file() -> None:
    paths: list[str] = []

    def read(path: str) -> bytes:
        paths.append(path)
        return TEXT

    (module,) = jaas_sections({LOGIN_CONFIG: "/etc/jaas"}, read)["Client"]
    assert paths == ["/etc/jaas"]
    assert module.options["username"].reveal_text() == "a"


def missing(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (missing, "No such file or directory"),
        (lambda path: b"\xff", "'utf-8' codec"),
        (lambda path: b"Client {", "the section Client of a JAAS file does not end"),
    ],
    ids=["missing", "not text", "incomplete"],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(read: object, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{LOGIN_CONFIG}=/etc/jaas: {reason}"):
        jaas_sections({LOGIN_CONFIG: "/etc/jaas"}, read)  # type: ignore[arg-type]
