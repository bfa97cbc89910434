"""Sends lineage events, in a thread of its own: to a file, one JSON object a line, or to a server by HTTP.

A commit never waits for it. If the place is away, events wait here and are tried again with longer and longer pauses;
beyond MAX_EVENTS the oldest are dropped, and counted. A stop tries for a moment to send what is left.
"""

import json
import os
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from leadline.spark.errors import JobFailed
from leadline.spark.jobs.backoff import BackOff
from leadline.spark.jobs.lineage import Event

MAX_EVENTS = 10_000
TIMEOUT_S = 10.0
ENDPOINT = "/api/v1/lineage"  # as OpenLineage's servers have it
API_KEY = "OPENLINEAGE_API_KEY"  # the variable of OpenLineage's own clients
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

Send = Callable[[Event], None]


class LineageSender:
    """`add` events; in the end `stop`."""

    def __init__(self, send: Send, report: Callable[[str], None]) -> None:
        """`report` is called with a line when the place does not take events, and when it does again."""
        self._send, self._report = send, report
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="leadline-lineage", daemon=True)
        self._thread.start()

    def add(self, events: Sequence[Event]) -> None:
        with self._changed:
            self._events.extend(events)
            while len(self._events) > MAX_EVENTS:
                self._events.popleft()
                self.dropped += 1
            self._changed.notify_all()

    def stop(self, timeout_s: float = TIMEOUT_S) -> int:
        """Returns the number of events that were not sent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        with self._changed:
            return len(self._events) + self.dropped

    def _run(self) -> None:
        back_off = BackOff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while (event := self._next()) is not None:
            try:
                self._send(event)
            except (OSError, ValueError) as error:
                if not back_off.failures:
                    self._report(f"lineage: {error}. Events wait, and commits continue")
                pause_s = back_off.failed()
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, pause_s):
                        return
                continue
            if back_off.failures:
                self._report("lineage: events are taken again")
            back_off.succeeded()
            with self._changed:
                if self._events and self._events[0] is event:  # it may have been dropped in the meantime
                    self._events.popleft()

    def _next(self) -> Event | None:
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._stopping)
            return self._events[0] if self._events else None


def sender_to(place: str, environment: Mapping[str, str] = os.environ) -> Send:
    """A URL, or the path of a file."""
    if place.startswith(("http://", "https://")):
        url = place if urlsplit(place).path.strip("/") else place.rstrip("/") + ENDPOINT
        headers = {"Content-Type": "application/json"}
        if key := environment.get(API_KEY):
            headers["Authorization"] = f"Bearer {key}"
        return lambda event: _post(url, headers, event)
    if "://" in place:
        raise JobFailed(f"--lineage {place}: expected http://, https:// or the path of a file")
    return lambda event: _append(Path(place), event)


def _post(url: str, headers: Mapping[str, str], event: Event) -> None:
    request = urllib.request.Request(url, json.dumps(event).encode(), dict(headers), method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        answer.read()


def _append(path: Path, event: Event) -> None:
    with path.open("a") as file:
        file.write(json.dumps(event) + "\n")
