"""What the client of one fetch may read: a consumer needs READ on each topic, a follower ClusterAction on the cluster.

Each fetch is decided by itself, also for partitions that an incremental fetch does not name. What the connection was
allowed before, at the same version of the ACLs, needs no decision: then there is no such object, as there is none
without an authorizer.
    a topic id is looked up first; whether the topic exists is not looked up without the right
    a follower without the right changes nothing: its position is not reported
    a fetch that waits is decided again once an ACL has changed: its topics may be denied by then
"""

from leadline.api.context import Context
from leadline.errors import TopicAuthorizationFailed
from leadline.security.authorizer import Authorizer

_REFUSED = "Topic authorization failed."


class FetchAccess:
    __slots__ = ("_authorizer", "_ctx", "_decisions", "_is_broker", "_version")

    def __init__(self, ctx: Context, authorizer: Authorizer) -> None:
        self._ctx, self._authorizer = ctx, authorizer
        self._version = -1  # of the ACLs, when it was decided

    def is_broker(self) -> bool:
        """Whether the client may fetch as a follower."""
        if self._version != self._authorizer.version:
            self._version = self._authorizer.version
            self._is_broker = self._ctx.permits("replica")
            if self._is_broker:
                self._ctx.note_broker()
        return self._is_broker

    def check_broker(self) -> None:
        """Before anything is looked up. A follower without the right is refused all partitions."""
        if not self.is_broker():
            raise TopicAuthorizationFailed(_REFUSED)

    def check_topic(self, topic: str) -> None:
        """Decided once in a fetch, as long as no ACL changes: each decision may be a line of the audit log."""
        if self._version != self._authorizer.version:
            self._version = self._authorizer.version
            self._decisions: dict[str, bool] = {}
        permitted = self._decisions.get(topic)
        if permitted is None:
            permitted = self._decisions[topic] = self._ctx.permits("topics", topic)
        if not permitted:
            raise TopicAuthorizationFailed(_REFUSED)
        self._ctx.note_read(topic)
