"""What the client of a fetch may read: decided once for each version of the ACLs."""

from types import SimpleNamespace
from typing import cast

import pytest

from leadline.api.context import Context
from leadline.api.fetch_access import FetchAccess
from leadline.errors import TopicAuthorizationFailed
from leadline.security.authorizer import Authorizer


class Client:
    """A context that notes what is decided and remembered."""

    def __init__(self, *permitted: str) -> None:
        self.permitted, self.decisions, self.notes = set(permitted), list[str](), list[str]()

    def permits(self, part: str, name: str = "cluster") -> bool:
        self.decisions.append(name)
        return name in self.permitted

    def note_read(self, topic: str) -> None:
        self.notes.append(topic)

    def note_broker(self) -> None:
        self.notes.append("broker")


def access_of(client: Client) -> tuple[FetchAccess, SimpleNamespace]:
    authorizer = SimpleNamespace(version=1)
    return FetchAccess(cast(Context, client), cast(Authorizer, authorizer)), authorizer


def test_a_topic_is_decided_once_until_an_acl_changes() -> None:
    client = Client("orders")
    access, authorizer = access_of(client)
    for _ in range(3):
        access.check_topic("orders")
    assert (client.decisions, client.notes) == (["orders"], ["orders"] * 3)
    authorizer.version += 1
    client.permitted.clear()
    with pytest.raises(TopicAuthorizationFailed):
        access.check_topic("orders")
    assert client.decisions == ["orders", "orders"]


def test_each_topic_is_decided_by_itself() -> None:
    client = Client("orders")
    access, _ = access_of(client)
    access.check_topic("orders")
    with pytest.raises(TopicAuthorizationFailed, match=r"^Topic authorization failed\.$"):
        access.check_topic("users")
    assert client.notes == ["orders"]


def test_a_follower_needs_the_right_of_a_broker() -> None:
    client = Client("cluster")
    access, authorizer = access_of(client)
    access.check_broker()
    access.check_broker()
    assert (client.decisions, client.notes) == (["cluster"], ["broker"])
    authorizer.version += 1
    client.permitted.clear()
    assert not access.is_broker()
    with pytest.raises(TopicAuthorizationFailed):
        access.check_broker()
    assert client.notes == ["broker"]
