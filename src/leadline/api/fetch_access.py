"""What the client of one fetch may read: a consumer needs READ on each topic, a follower ClusterAction on the cluster.

Each fetch is decided by itself, also for partitions that an incremental fetch does not name.
    a topic id is looked up first; whether the topic exists is not looked up without the right
    a follower without the right changes nothing: its position is not reported
"""

from leadline.api.context import Context
from leadline.errors import TopicAuthorizationFailed

_REFUSED = "Topic authorization failed."


class FetchAccess:
    __slots__ = ("_by_topic", "_ctx", "_is_decided", "is_broker", "is_refused")

    def __init__(self, is_follower: bool, ctx: Context) -> None:
        self._ctx = ctx
        self.is_broker = is_follower and ctx.permits("replica")
        self.is_refused = is_follower and not self.is_broker  # for all partitions
        self._is_decided = is_follower or ctx.services.acls is None
        self._by_topic: dict[str, bool] = {}
        if self.is_broker:
            ctx.note_broker()

    def check_any(self) -> None:
        """Before anything is looked up."""
        if self.is_refused:
            raise TopicAuthorizationFailed(_REFUSED)

    def check_topic(self, topic: str) -> None:
        if self._is_decided:
            return
        permitted = self._by_topic.get(topic)
        if permitted is None:
            permitted = self._by_topic[topic] = self._ctx.permits("topics", topic)
        if not permitted:
            raise TopicAuthorizationFailed(_REFUSED)
