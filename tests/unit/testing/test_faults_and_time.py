"""Faults and time in the hand of a test: brokers, links, requests and the clock of a cluster."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer  # type: ignore[import-untyped]

from leadline.testing import ClusterError, LocalCluster

POLL_S = 60.0


def deliver(cluster: LocalCluster, topic: str, value: str, partition: int = 0, **settings: Any) -> str:
    """The outcome of one produce by librdkafka: "" or the name of an error."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 5, "log_level": 0, **settings}
    )
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(POLL_S) == 0
    return outcomes[0].name() if outcomes[0] is not None else ""


# Brokers


def test_another_broker_leads_when_the_leader_is_killed_and_nothing_is_lost(three: LocalCluster) -> None:
    topic = three.create_topic("killed")
    three.produce(topic, ["before"])
    leader = three.leader(topic)
    assert leader is not None
    three.broker(leader).kill()
    three.wait_for(lambda: three.leader(topic) not in (None, leader), "another leader")
    three.produce(topic, ["after"])
    three.broker(leader).start()
    three.wait_for(lambda: three.in_sync(topic) == [1, 2, 3], "all replicas are in sync")
    assert three.values(topic) == ["before", "after"]
    explained = three.explain(topic)
    assert "in sync" in explained
    assert f"replica {leader} holds all records" in explained


def test_a_broker_that_stops_hands_over_and_comes_back_on_its_port(three: LocalCluster) -> None:
    topic = three.create_topic("stopped")
    leader = three.leader(topic)
    assert leader is not None
    address = three.broker(leader).address
    three.broker(leader).stop()
    assert three.leader(topic) != leader
    with pytest.raises(ClusterError, match=f"broker {leader} is stopped: start it"):
        three.broker(leader).pause()
    three.broker(leader).start()
    assert three.broker(leader).address == address
    with pytest.raises(ClusterError, match=f"broker {leader} is running already"):
        three.broker(leader).start()


def test_a_paused_leader_is_replaced_once_its_silence_is_long_enough(three: LocalCluster) -> None:
    topic = three.create_topic("paused")
    leader = three.leader(topic)
    assert leader is not None
    three.broker(leader).pause()
    with pytest.raises(ClusterError, match=f"broker {leader} is paused: resume it"):
        three.broker(leader).run(str)
    three.clock.advance(minutes=1)
    three.wait_for(lambda: three.leader(topic) not in (None, leader), "another leader")
    three.broker(leader).resume()
    three.wait_for(lambda: three.in_sync(topic) == [1, 2, 3], "all replicas are in sync")


def test_a_broker_that_is_cut_off_leads_no_longer_and_comes_back(three: LocalCluster) -> None:
    topic = three.create_topic("cut-off", partitions=3)
    three.network.isolate(1)
    three.clock.advance(minutes=1)
    three.wait_for(
        lambda: all(three.leader(topic, partition) in (2, 3) for partition in range(3)), "leaders on the other side"
    )
    three.network.heal()
    three.wait_for(
        lambda: all(three.in_sync(topic, partition) == [1, 2, 3] for partition in range(3)), "all replicas are in sync"
    )


def test_a_follower_behind_a_cut_link_leaves_the_isr(three: LocalCluster) -> None:
    topic = three.create_topic("cut-link", configs={"min.insync.replicas": 1})
    leader = three.leader(topic)
    assert leader is not None
    controller = three.controller.id  # it would replace a leader that it does not hear
    follower = next(id for id in three.ids if id not in (leader, controller))
    three.network.cut(leader, follower)
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, "acks": 1})
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(POLL_S) == 0
    three.clock.advance(minutes=2)
    three.wait_for(lambda: follower not in three.in_sync(topic), "the follower has left")
    three.network.heal(leader, follower)
    three.wait_for(lambda: three.in_sync(topic) == [1, 2, 3], "all replicas are in sync")


def test_links_are_named_by_their_ends(three: LocalCluster) -> None:
    with pytest.raises(ValueError, match='9 is not an end of a link: the brokers are 1, 2, 3, and the tree is "tree"'):
        three.network.cut(1, 9)
    with pytest.raises(ValueError, match="a link has two ends, and both are 1"):
        three.network.cut(1, 1)
    three.network.cut(1, 2, one_way=True)
    assert (three.network.is_cut(1, 2), three.network.is_cut(2, 1)) == (True, False)
    three.network.heal(1)
    assert three.network.is_whole


# Requests


def test_an_error_is_retried_by_the_client_and_counted_by_the_rule(one: LocalCluster) -> None:
    topic = one.create_topic("errors", partitions=2)
    with one.requests.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0, times=2) as rule:
        assert deliver(one, topic, "other partition", 1) == ""
        assert rule.hits == 0
        assert deliver(one, topic, "retried") == ""
    assert rule.hits == 2
    assert one.values(topic) == ["retried", "other partition"]
    with one.requests.fail("Produce", error=29, client_id="shop"):
        assert deliver(one, topic, "x", 0, **{"client.id": "shop"}) == "TOPIC_AUTHORIZATION_FAILED"
        assert deliver(one, topic, "of another client") == ""


def test_of_a_produce_only_the_named_partition_fails(one: LocalCluster) -> None:
    topic = one.create_topic("some-fail", partitions=2)
    with one.requests.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", topic=topic, partition=1, times=1) as rule:
        producer = KafkaProducer(bootstrap_servers=one.bootstrap_servers, linger_ms=200, retry_backoff_ms=10)
        sent = [producer.send(topic, str(partition).encode(), partition=partition) for partition in (0, 1)]
        assert [future.get(POLL_S).offset for future in sent] == [0, 0]
        producer.close()
    assert rule.hits == 1
    assert one.values(topic) == ["0", "1"]


def test_a_lost_response_leaves_no_duplicate_of_an_idempotent_producer(one: LocalCluster) -> None:
    topic = one.create_topic("lost-response")
    with one.requests.drop("Produce", response=True, topic=topic, times=1) as lost:
        assert deliver(one, topic, "once", **{"enable.idempotence": True}) == ""
    with one.requests.drop("Produce", topic=topic, times=1) as dropped:
        assert deliver(one, topic, "twice sent") == ""
    assert (lost.hits, dropped.hits) == (1, 1)
    assert one.values(topic) == ["once", "twice sent"]


@pytest.mark.parametrize(("is_idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_request_that_arrives_twice_is_stored_twice_unless_it_is_idempotent(
    one: LocalCluster, is_idempotent: bool, copies: int
) -> None:
    topic = one.create_topic(f"twice-{copies}")
    with one.requests.duplicate("Produce", topic=topic, times=1):
        assert deliver(one, topic, "x", **{"enable.idempotence": is_idempotent}) == ""
    assert one.values(topic) == ["x"] * copies


def test_a_delayed_request_is_served_when_its_time_has_come(one: LocalCluster) -> None:
    topic = one.create_topic("delayed")
    producer = Producer({"bootstrap.servers": one.bootstrap_servers})
    with one.requests.delay("Produce", seconds=1000, topic=topic) as rule:
        producer.produce(topic, b"late")
        one.wait_for(lambda: producer.poll(0) == 0 and rule.hits, "the request has come")
        assert one.values(topic) == []
        one.clock.advance(seconds=1001)
        assert producer.flush(POLL_S) == 0
    assert one.values(topic) == ["late"]


def test_a_reader_survives_an_error_in_each_request_that_it_sends(one: LocalCluster) -> None:
    topic = one.create_topic("read-with-errors")
    one.produce(topic, ["read"])
    errors = {
        "Metadata": "LEADER_NOT_AVAILABLE",
        "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
        "SyncGroup": "REBALANCE_IN_PROGRESS",
        "ListOffsets": "NOT_LEADER_OR_FOLLOWER",
        "Fetch": "NOT_LEADER_OR_FOLLOWER",
    }
    rules = [one.requests.fail(api, error=error, times=1, client_id="reader") for api, error in errors.items()]
    consumer = Consumer(
        {
            "bootstrap.servers": one.bootstrap_servers,
            "group.id": "read-with-errors",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "retry.backoff.ms": 5,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(POLL_S)
    consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"read")
    assert [rule.hits for rule in rules] == [1] * len(rules)
    assert "NOT_LEADER_OR_FOLLOWER  (fail)" in one.story()
    (first, *_) = one.requests.recent("Fetch", client_id="reader", topic=topic)
    assert first.parts[0].topic == topic


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (lambda requests: requests.fail("Prduce", error=6), "there is no request 'Prduce': did you mean Produce\\?"),
        (lambda requests: requests.fail("Produce", error="NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER\\?"),
        (lambda requests: requests.fail("Produce", error=4711), "there is no error code 4711"),
        (lambda requests: requests.drop("Produce", broker=4), "there is no broker 4: the brokers are \\[1\\]"),
        (lambda requests: requests.drop("Produce", partition=0), "a rule for a partition needs its topic"),
        (
            lambda requests: requests.drop("Produce", topik="x"),
            "a rule has no filter topik: the filters are broker, client_id",
        ),
        (lambda requests: requests.delay("Produce", seconds=0), "a delay has more than 0 seconds"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(one: LocalCluster, add: Callable[[object], object], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        add(one.requests)


# Time


def test_retention_deletes_what_is_old_by_the_clock_of_the_cluster(one: LocalCluster) -> None:
    topic = one.create_topic("old", configs={"retention.ms": 3_600_000})
    one.produce(topic, ["old"])
    one.clock.advance(hours=2)
    one.wait_for(lambda: one.start_offsets(topic) == {0: 1}, "the record is deleted")
    one.produce(topic, ["new"])
    assert one.values(topic) == ["new"]
    assert one.records(topic)[0].timestamp_ms >= one.clock.now_ms() - 3_600_000


def test_an_open_transaction_is_aborted_after_its_timeout(one: LocalCluster) -> None:
    topic = one.create_topic("open-transaction")
    producer = Producer(
        {"bootstrap.servers": one.bootstrap_servers, "transactional.id": "slow", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(POLL_S)
    producer.begin_transaction()
    producer.produce(topic, b"never committed")
    assert producer.flush(POLL_S) == 0
    assert one.end_offsets(topic) == {0: 0}
    one.clock.advance(minutes=2)
    one.wait_for(lambda: one.end_offsets(topic) == {0: 2}, "the record and the marker of its abort")
    assert one.values(topic) == []
    with pytest.raises(Exception, match=r"fenced|newer instance|epoch"):
        producer.commit_transaction(POLL_S)


def test_a_member_of_a_group_is_removed_after_its_session(one: LocalCluster) -> None:
    topic = one.create_topic("session")
    settings = {"session.timeout.ms": 1_000_000, "heartbeat.interval.ms": 900_000, "max.poll.interval.ms": 1_000_000}
    consumer = Consumer({"bootstrap.servers": one.bootstrap_servers, "group.id": topic, "log_level": 0, **settings})
    admin = AdminClient({"bootstrap.servers": one.bootstrap_servers})

    def state() -> str:
        return str(admin.describe_consumer_groups([topic])[topic].result(POLL_S).state.name)

    consumer.subscribe([topic])
    one.wait_for(lambda: consumer.poll(0.01) or consumer.assignment(), "the member has its partition")
    assert state() == "STABLE"
    one.clock.advance(seconds=1001)
    one.wait_for(lambda: state() == "EMPTY", "the member is removed")
    consumer.close()


def test_a_produce_that_waits_for_a_follower_fails_after_its_timeout(three: LocalCluster) -> None:
    topic = three.create_topic("waits", partitions=3)
    controller = three.controller.id  # it would replace a broker that it does not hear
    partition = next(n for n in range(3) if three.leader(topic, n) != controller)
    leader = three.leader(topic, partition)
    assert leader is not None
    follower = next(id for id in three.ids if id not in (leader, controller))
    settings = {"acks": "all", "request.timeout.ms": 4000, "retries": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": three.bootstrap_servers, **settings})
    outcomes: list[KafkaError | None] = []
    three.network.cut(leader, follower)
    producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    three.wait_for(lambda: producer.poll(0) == 0 and three.requests.recent("Produce", topic=topic), "it has come")
    three.clock.advance(seconds=5)  # before the silence of a broker counts
    assert producer.flush(POLL_S) == 0
    three.network.heal()
    assert [error.name() for error in outcomes if error is not None] == ["REQUEST_TIMED_OUT"]
    three.wait_for(lambda: three.in_sync(topic, partition) == [1, 2, 3], "all replicas are in sync")


def test_replicas_stay_in_sync_and_connected_through_a_long_advance(three: LocalCluster) -> None:
    topic = three.create_topic("advanced", partitions=3)
    three.produce(topic, [("a", "1"), ("b", "2"), ("c", "3")])
    three.wait_for(lambda: all(three.in_sync(topic, partition) == [1, 2, 3] for partition in range(3)))
    leaders = [three.leader(topic, partition) for partition in range(3)]
    three.clock.advance(days=3)
    assert [three.leader(topic, partition) for partition in range(3)] == leaders
    assert [three.in_sync(topic, partition) for partition in range(3)] == [[1, 2, 3]] * 3
    assert "instead of" not in three.explain(topic)
    three.produce(topic, ["still"], partition=0)
