"""What a connection was allowed is forgotten when an ACL changes, and when there is too much of it."""

from leadline.api.fast.grants import MOST_TOPICS, Grants


def test_nothing_is_granted_at_first() -> None:
    grants = Grants()
    assert not grants.may_write("t", 0)
    assert not grants.may_write("t", -1)
    assert not grants.may_read("t", 0)
    assert not grants.may_read("t", -1)
    assert not grants.is_broker(0)
    assert not grants.is_broker(-1)


def test_a_grant_holds_for_its_topic_and_its_version_of_the_acls() -> None:
    grants = Grants()
    grants.note_write("t", 3)
    assert grants.may_write("t", 3)
    assert not grants.may_write("u", 3)
    assert not grants.may_write("t", 4)
    assert not grants.may_read("t", 3)
    assert not grants.is_broker(3)
    grants.note_read("u", 3)
    assert grants.may_read("u", 3)
    assert not grants.may_write("u", 3)
    assert not grants.may_read("t", 3)


def test_the_next_version_forgets_everything() -> None:
    grants = Grants()
    grants.note_write("t", 3)
    grants.note_read("t", 3)
    grants.note_broker(3)
    assert grants.is_broker(3)
    grants.note_write("u", 4)
    assert not grants.may_write("t", 4)
    assert not grants.may_write("t", 3)
    assert not grants.may_read("t", 4)
    assert not grants.may_read("t", 3)
    assert not grants.is_broker(4)


def test_a_connection_that_writes_many_topics_starts_over() -> None:
    grants = Grants()
    for number in range(MOST_TOPICS + 1):
        grants.note_write(f"t{number}", 0)
    assert not grants.may_write("t0", 0)
    assert grants.may_write(f"t{MOST_TOPICS}", 0)
