"""The audit log: one line for each decision of the authorizer, Kafka's own, in the logger `kafka.authorizer.logger`.

    Principal = User:alice is Denied Operation = Write from host = 127.0.0.1 on resource = Topic:LITERAL:t
    for request = Produce with resourceRefCount = 1

Denied is INFO and allowed is DEBUG. What is denied only in that a list lacks it is TRACE. So is each decision about the
operations that a client may perform, if it asks for them: nothing is done by them.

A client in a loop must not fill the disk: the same denial is logged once in ten seconds, and a hundred different ones
in a second. The rest is counted.
    each denial is either logged or part of a count that is logged
    a record is one line: a name cannot break it
"""

import logging
import re
from typing import NamedTuple

from leadline.runtime.log_levels import TRACE
from leadline.security.acls import AclOperation, PatternType, ResourceType
from leadline.security.principal import Principal

AUDIT_LOGGER = "kafka.authorizer.logger"
log = logging.getLogger(AUDIT_LOGGER)

SAME_MS = 10_000  # in which the same denial is logged once
MOST_A_SECOND = 100
MOST_REMEMBERED = 10_000  # denials, so that each is logged once

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")


class AuditRecord(NamedTuple):
    principal: Principal
    allowed: bool
    operation: AclOperation
    host: str
    resource_type: ResourceType
    name: str
    request: str  # its name: Produce
    references: int = 1  # how often the request names the resource
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        resource = f"{self.resource_type.pascal}:{self.pattern_type.name}:{self.name}"
        text = (
            f"Principal = {self.principal} is {'Allowed' if self.allowed else 'Denied'} "
            f"Operation = {self.operation.pascal} from host = {self.host} on resource = {resource} "
            f"for request = {self.request} with resourceRefCount = {self.references}"
        )
        return _CONTROL.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


class DenialLimit:
    """Which denials are logged, and how many were not."""

    def __init__(self) -> None:
        self._last: dict[AuditRecord, list[int]] = {}  # when it was logged, and how often it came since
        self._second = self._in_second = self._left_out = 0

    def lines(self, record: AuditRecord, now_ms: int) -> list[str]:
        lines = self._close_second(now_ms)
        last = self._last.get(record)
        if last is not None and now_ms - last[0] < SAME_MS:
            last[1] += 1
            return lines
        if self._in_second >= MOST_A_SECOND:
            self._left_out += 1
            return lines
        self._in_second += 1
        repeated = f" ({last[1]} more since the last line)" if last is not None and last[1] else ""
        lines += self._remember(record, now_ms)
        return [*lines, f"{record}{repeated}"]

    def overdue(self, now_ms: int) -> list[str]:
        """Counts whose denial did not come again. Ask now and then."""
        lines = self._close_second(now_ms)
        for record, (at_ms, count) in list(self._last.items()):
            if now_ms - at_ms >= SAME_MS:
                del self._last[record]
                lines += _counted(record, count)
        return lines

    def _remember(self, record: AuditRecord, now_ms: int) -> list[str]:
        """Room is made by the one that was logged first; if it came again since, its count is a line."""
        self._last.pop(record, None)
        self._last[record] = [now_ms, 0]
        if len(self._last) <= MOST_REMEMBERED:
            return []
        oldest = next(iter(self._last))
        return _counted(oldest, self._last.pop(oldest)[1])

    def _close_second(self, now_ms: int) -> list[str]:
        second = now_ms // 1000
        if second == self._second:
            return []
        left_out, self._left_out = self._left_out, 0
        self._second, self._in_second = second, 0
        return [f"{left_out} further denials were not logged: more than {MOST_A_SECOND} a second"] if left_out else []


def _counted(record: AuditRecord, count: int) -> list[str]:
    return [f"{record} ({count} more since the last line)"] if count else []


class AuditLog:
    def __init__(self) -> None:
        self._limit = DenialLimit()

    @staticmethod
    def is_logged(allowed: bool, requested: bool = True) -> bool:
        """Whether a decision is a line. `requested`: the client named the resource; else it is part of a list."""
        return log.isEnabledFor(logging.DEBUG if allowed else logging.INFO if requested else TRACE)

    def allowed(self, record: AuditRecord) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", record)

    def denied(self, record: AuditRecord, now_ms: int) -> None:
        if log.isEnabledFor(logging.INFO):
            for line in self._limit.lines(record, now_ms):
                log.info("%s", line)

    def filtered(self, record: AuditRecord) -> None:
        """The decision only shaped an answer."""
        if log.isEnabledFor(TRACE):
            log.log(TRACE, "%s", record)

    def flush_counts(self, now_ms: int) -> None:
        if log.isEnabledFor(logging.INFO):
            for line in self._limit.overdue(now_ms):
                log.info("%s", line)
