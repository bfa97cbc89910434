"""Counters of topics: their sum never goes back, also when a topic leaves the broker."""

from leadline.replication.topic_metrics import BrokerTopicMetrics


def test_each_topic_has_its_own_counters() -> None:
    metrics = BrokerTopicMetrics()
    metrics.of("orders").bytes_in += 5
    metrics.of("users").bytes_in += 7
    assert metrics.of("orders").bytes_in == 5
    assert metrics.all_topics().bytes_in == 12


def test_the_sum_keeps_what_topics_counted_that_are_no_longer_here() -> None:
    metrics = BrokerTopicMetrics()
    metrics.of("orders").messages_in += 5
    metrics.of("users").messages_in += 7
    metrics.keep({"users"})
    assert list(metrics.by_topic) == ["users"]
    assert metrics.all_topics().messages_in == 12
    metrics.of("orders").messages_in += 1
    assert (metrics.of("orders").messages_in, metrics.all_topics().messages_in) == (1, 13)


def test_every_counter_is_part_of_the_sum() -> None:
    metrics = BrokerTopicMetrics()
    topic = metrics.of("orders")
    for number, name in enumerate(topic.__slots__):
        setattr(topic, name, number)
    total = metrics.all_topics()
    assert [getattr(total, name) for name in topic.__slots__] == list(range(len(topic.__slots__)))
