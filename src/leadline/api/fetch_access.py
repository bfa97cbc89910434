"""What the client of one fetch may read: a consumer needs READ on each topic, a follower ClusterAction on the cluster.

Each fetch is decided by itself, also for partitions that an incremental fetch does not name. What the connection was
allowed before, at the same version of the ACLs, needs no decision. Without an authorizer there is no such object.
    a topic id is looked up first; whether the topic exists is not looked up without the right
    a follower without the right changes nothing: its position is not reported
    a fetch that waits is decided again once an ACL has changed: what it waits for may be denied by then
"""

from leadline.api.context import Context
from leadline.errors import TopicAuthorizationFailed
from leadline.security.acl_store import AclStore

_REFUSED = "Topic authorization failed."


def fetch_access(is_follower: bool, ctx: Context) -> "FetchAccess | None":
    acls = ctx.services.acls
    return None if acls is None else FetchAccess(is_follower, ctx, acls)


class FetchAccess:
    __slots__ = ("_authorizer", "_ctx", "_decisions", "_version", "is_broker")

    def __init__(self, is_follower: bool, ctx: Context, acls: AclStore) -> None:
        self._ctx, self._authorizer = ctx, acls.authorizer
        self._version = -1  # of the ACLs, when it was decided
        self.is_broker = is_follower and self._is_broker()

    def _is_broker(self) -> bool:
        self._version = self._authorizer.version
        if is_broker := self._ctx.permits("replica"):
            self._ctx.note_broker()
        return is_broker

    def check_broker(self) -> None:
        """Before anything is looked up. A follower without the right is refused all partitions."""
        if self._version != self._authorizer.version:
            self.is_broker = self._is_broker()
        if not self.is_broker:
            raise TopicAuthorizationFailed(_REFUSED)

    def check_topic(self, topic: str) -> None:
        version = self._authorizer.version
        if not self._ctx.client.grants.may_read(topic, version):
            self._decide(topic, version)

    def _decide(self, topic: str, version: int) -> None:
        """Once in a fetch, as long as no ACL changes: each decision may be a line of the audit log."""
        if self._version != version:
            self._version = version
            self._decisions: dict[str, bool] = {}
        permitted = self._decisions.get(topic)
        if permitted is None:
            permitted = self._decisions[topic] = self._ctx.permits("topics", topic)
        if not permitted:
            raise TopicAuthorizationFailed(_REFUSED)
        self._ctx.note_read(topic)
