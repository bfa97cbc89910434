"""Lines of the audit log: Kafka's words and levels, and no more of them than a disk can bear."""

import logging

import pytest

from leadline.runtime.log_levels import TRACE
from leadline.security.acls import AclOperation, PatternType, ResourceType
from leadline.security.audit import MOST_A_SECOND, MOST_REMEMBERED, SAME_MS, AuditLog, AuditRecord, DenialLimit
from leadline.security.principal import Principal

DENIED = AuditRecord(
    Principal("User", "alice"), False, AclOperation.WRITE, "127.0.0.1", ResourceType.TOPIC, "t", "Produce"
)
LINE = (
    "Principal = User:alice is Denied Operation = Write from host = 127.0.0.1 on resource = Topic:LITERAL:t "
    "for request = Produce with resourceRefCount = 1"
)


def test_the_line_is_kafkas() -> None:
    assert str(DENIED) == LINE
    prefixed = DENIED._replace(
        allowed=True,
        operation=AclOperation.DESCRIBE_CONFIGS,
        resource_type=ResourceType.TRANSACTIONAL_ID,
        pattern_type=PatternType.PREFIXED,
        references=3,
    )
    assert str(prefixed) == (
        "Principal = User:alice is Allowed Operation = DescribeConfigs from host = 127.0.0.1 "
        "on resource = TransactionalId:PREFIXED:t for request = Produce with resourceRefCount = 3"
    )


def test_a_name_cannot_forge_a_second_line() -> None:
    forged = str(DENIED._replace(name="t\r\nPrincipal = User:root\x1b[2J\u2028x"))
    assert forged.isprintable()
    assert r"t\u000d\u000aPrincipal" in forged


@pytest.mark.parametrize(("level", "lines"), [(logging.INFO, 1), (logging.DEBUG, 2), (TRACE, 3)])
def test_denied_is_info_allowed_is_debug_and_what_was_filtered_below(
    caplog: pytest.LogCaptureFixture, level: int, lines: int
) -> None:
    caplog.set_level(level, "kafka.authorizer.logger")
    audit = AuditLog()
    audit.denied(DENIED, 0)
    audit.allowed(DENIED._replace(allowed=True))
    audit.filtered(DENIED)
    assert len(caplog.records) == lines
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.DEBUG, TRACE][:lines]


def test_the_same_denial_is_logged_once_in_a_while_with_the_count_of_the_others() -> None:
    limit = DenialLimit()
    assert limit.lines(DENIED, 0) == [LINE]
    assert [limit.lines(DENIED, at) for at in (1, 500, SAME_MS - 1)] == [[], [], []]
    assert limit.lines(DENIED, SAME_MS) == [f"{LINE} (3 more since the last line)"]
    assert limit.lines(DENIED, 2 * SAME_MS) == [LINE]


def test_a_count_is_logged_even_if_the_denial_does_not_come_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    audit = AuditLog()
    for at in range(5):
        audit.denied(DENIED, at)
    audit.flush_counts(SAME_MS - 1)
    assert caplog.messages == [LINE]
    audit.flush_counts(SAME_MS)
    audit.flush_counts(2 * SAME_MS)
    assert caplog.messages == [LINE, f"{LINE} (4 more since the last line)"]


def test_different_denials_are_limited_and_every_one_is_logged_or_counted() -> None:
    limit = DenialLimit()
    lines = [line for n in range(500) for line in limit.lines(DENIED._replace(name=f"t{n}"), 999)]
    assert len(lines) == MOST_A_SECOND
    (counted, line) = limit.lines(DENIED, 1000)
    assert counted == f"{500 - MOST_A_SECOND} further denials were not logged: more than {MOST_A_SECOND} a second"
    assert line == LINE
    assert limit.overdue(2000) == []


def test_what_is_remembered_is_bounded_and_no_count_is_lost() -> None:
    limit = DenialLimit()
    lines = limit.lines(DENIED, 0) + limit.lines(DENIED, 1)
    for n in range(MOST_REMEMBERED):
        lines += limit.lines(DENIED._replace(name=f"t{n}"), (n // MOST_A_SECOND + 1) * 1000)
    assert len(limit._last) == MOST_REMEMBERED
    assert f"{LINE} (1 more since the last line)" in lines
