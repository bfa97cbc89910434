"""Which jobs the topics of a cluster call for."""

from leadline.spark.jobs.topic_discovery import JobChanges, TopicEntry, job_changes


def changes(
    entries: list[TopicEntry[str]], existing: list[str], current: dict[str, str] | None = None
) -> JobChanges[str]:
    return job_changes(entries, existing, current or {}, lambda job: job)


NAMED = TopicEntry(("orders", "users"), None, lambda topic: f"/lake/{topic}")
SHOPS = TopicEntry((), "shop-.*", lambda topic: f"/raw/{topic}")


def test_named_topics_have_jobs_whether_they_exist_or_not() -> None:
    assert changes([NAMED], ["users"]).added == ["/lake/orders", "/lake/users"]


def test_topics_that_match_a_pattern_as_a_whole_get_jobs_when_they_appear() -> None:
    first = changes([NAMED, SHOPS], ["shop-b", "shop-a", "old-shop-c"])
    assert first.added == ["/lake/orders", "/lake/users", "/raw/shop-a", "/raw/shop-b"]
    current = dict.fromkeys(first.added, "")
    assert changes([NAMED, SHOPS], ["shop-b", "shop-a"], current) == JobChanges([], [], [])
    assert changes([NAMED, SHOPS], ["shop-b", "shop-z"], current) == JobChanges(["/raw/shop-z"], ["/raw/shop-a"], [])


def test_no_two_topics_get_the_same_table() -> None:
    one_table = TopicEntry((), "o.*", lambda topic: "/lake/all")
    result = changes([one_table], ["orders", "offers"])
    assert result.added == ["/lake/all"]
    assert result.conflicts == ["orders gets no table: /lake/all is the table of offers"]
