"""What a connection was allowed, at one version of the ACLs: fast paths serve that, and nothing else.

Pure: remembers decisions.

A handler decides, and notes here what it allowed. A fast path that finds nothing here leaves the request to it.
    notes of one version of the ACLs are forgotten at the next
"""

NO_ACLS = -1  # instead of their version: there is no authorizer, or nothing was noted yet
MOST_TOPICS = 1024  # when there are more, all are forgotten


class Grants:
    __slots__ = ("_is_broker", "_readable", "_version", "_writable")

    def __init__(self) -> None:
        self._version = NO_ACLS
        self._writable: set[str] = set()
        self._readable: set[str] = set()
        self._is_broker = False

    def may_write(self, topic: str, version: int) -> bool:
        return self._version == version and topic in self._writable

    def may_read(self, topic: str, version: int) -> bool:
        return self._version == version and topic in self._readable

    def is_broker(self, version: int) -> bool:
        """Whether it may ClusterAction, and so fetch as a follower."""
        return self._version == version and self._is_broker

    def note_write(self, topic: str, version: int) -> None:
        self._note(topic, self._writable, version)

    def note_read(self, topic: str, version: int) -> None:
        self._note(topic, self._readable, version)

    def note_broker(self, version: int) -> None:
        self._move_to(version)
        self._is_broker = True

    def _note(self, topic: str, topics: set[str], version: int) -> None:
        self._move_to(version)
        if len(topics) >= MOST_TOPICS:
            topics.clear()
        topics.add(topic)

    def _move_to(self, version: int) -> None:
        if self._version != version:
            self._version, self._is_broker = version, False
            self._writable.clear()
            self._readable.clear()
