"""Samples the lag of all groups, so that a page of a group has a past when it is opened."""

import threading
from contextlib import suppress

from leadline.admin.errors import Failure, client_errors
from leadline.admin.group_progress import lags
from leadline.admin.kafka_python.groups import list_groups
from leadline.console.lag_history import MAX_GROUPS
from leadline.console.page import Console, now_ms

INTERVAL_S = 10.0


class LagSampler:
    """A thread. A cluster that does not answer is asked again after the next interval: its pages say what is wrong."""

    def __init__(self, console: Console, interval_s: float = INTERVAL_S) -> None:
        self._console, self._interval_s = console, interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag-sampler", daemon=True)

    def __enter__(self) -> "LagSampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Without waiting for a request that is under way."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(Failure, *client_errors()):
                sample(self._console)
            self._stopped.wait(self._interval_s)


def sample(console: Console) -> None:
    with console.pool.session() as session:
        names = [group.group_id for group in list_groups(session.client)[:MAX_GROUPS]]
        for group, lag in lags(session.connection, session.admin, names).items():
            console.lag.add(group, now_ms(), lag)
