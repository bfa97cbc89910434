"""Sessions with the cluster that pages use one after another: a page that is polled does not connect each time."""

import argparse
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from leadline.admin.session import ClusterSession, cluster_session

MAX_IDLE = 4
MAX_AGE_S = 60.0  # brokers close idle connections after minutes


class SessionPool:
    """A session belongs to one thread at a time. One that failed is not used again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options  # those of a command that connects to a cluster
        self._idle: deque[tuple[float, ClusterSession]] = deque()

    @contextmanager
    def session(self) -> Iterator[ClusterSession]:
        session = self._take() or cluster_session(self.options)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        if len(self._idle) < MAX_IDLE:
            self._idle.append((time.monotonic(), session))
        else:
            session.close()

    def _take(self) -> ClusterSession | None:
        while self._idle:
            try:
                used_s, session = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if time.monotonic() - used_s > MAX_AGE_S:
                session.close()
                continue
            try:
                session.connection.restart_timeout()
                session.connection.refresh(session.connection.metadata(session.admin))
            except BaseException:
                session.close()
                raise
            return session
        return None

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()
