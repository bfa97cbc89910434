"""The fixtures of the pytest plugin, in test runs of their own."""

import subprocess
import sys

import pytest

PLUGIN = ("-p", "leadline.testing.pytest_plugin", "-p", "no:cacheprovider", "-q")
RUN_S = 300.0


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*PLUGIN, *options, timeout=RUN_S)


def test_tests_share_a_broker_but_no_topics_and_no_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        used = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_one(kafka, number):
            used.append(kafka)
            assert kafka.topics == []
            topic = kafka.topic("orders")
            assert topic.startswith(f"orders-test_one-{number}")
            kafka.produce(topic, ["x"])
            kafka.requests.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
            kafka.broker(1).kill()

        def test_they_shared_it(kafka):
            assert used == [kafka, kafka]
            assert kafka.broker(1).is_running

        @pytest.mark.kafka(settings={"num.partitions": 4})
        def test_a_mark_gives_another_one(kafka):
            assert kafka is not used[0]
            kafka.produce("orders", ["x"])
            assert len(kafka.end_offsets("orders")) == 4

        def test_three_brokers(kafka_cluster):
            assert len(kafka_cluster.ids) == 3
        """
    )
    run(pytester).assert_outcomes(passed=5)


def test_options_change_who_shares(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        used, clusters = [], []

        @pytest.mark.parametrize("number", [1, 2])
        def test_one(kafka, kafka_cluster, number):
            used.append(kafka)
            clusters.append(kafka_cluster)

        def test_they_did_not_share_it():
            assert used[0] is not used[1]
            assert clusters[0] is clusters[1]
        """
    )
    run(pytester, "--kafka-isolated", "--kafka-cluster-shared").assert_outcomes(passed=3)


def test_the_report_of_a_failure_has_what_the_brokers_saw(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka import Producer

        def test_fails(kafka):
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "shop"})
            producer.produce("orders", b"x")
            producer.flush(60)
            assert kafka.values("orders") == ["y"]
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*what the Kafka brokers saw*",
            "<cluster of 1: 1 running>*",
            "last requests:",
            "*Produce v* from shop  orders-0*",
        ]
    )


def test_workers_of_xdist_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_one(kafka, number):
            kafka.produce("orders", [str(number)])
            assert kafka.values("orders") == [str(number)]
        """
    )
    run(pytester, "-n", "2").assert_outcomes(passed=4)


def test_a_mark_that_cannot_be_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(broker=3)
        def test_one(kafka):
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.kafka has no argument broker: it has brokers, isolated, *"])


def test_the_plugin_imports_nothing_of_a_broker() -> None:
    code = "import sys, leadline.testing.pytest_plugin; print([it for it in sys.modules if 'leadline.broker' in it])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
