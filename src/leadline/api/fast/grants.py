"""What a connection was allowed, at one version of the ACLs: fast paths serve that, and nothing else.

Pure: remembers decisions.

A handler decides, and notes here what it allowed. A fast path that finds nothing here leaves the request to it.
    what was noted at one version of the ACLs is forgotten at the next
"""

MOST_TOPICS = 1024  # when there are more, all are forgotten


class Grants:
    __slots__ = ("_is_broker", "_version", "_writable")

    def __init__(self) -> None:
        self._version = -1  # of the ACLs
        self._writable: set[str] = set()
        self._is_broker = False

    def may_write(self, topic: str, version: int) -> bool:
        return self._version == version and topic in self._writable

    def is_broker(self, version: int) -> bool:
        """Whether it may ClusterAction, and so fetch as a follower."""
        return self._version == version and self._is_broker

    def note_write(self, topic: str, version: int) -> None:
        self._move_to(version)
        if len(self._writable) >= MOST_TOPICS:
            self._writable.clear()
        self._writable.add(topic)

    def note_broker(self, version: int) -> None:
        self._move_to(version)
        self._is_broker = True

    def _move_to(self, version: int) -> None:
        if self._version != version:
            self._version, self._is_broker = version, False
            self._writable.clear()
