"""The settings of several brokers of one host, derived from one file."""

import pytest

from leadline.cli.start.derived_settings import MAX_BROKERS, derived_brokers, port_step
from leadline.config.values import InvalidSetting

FILE = {
    "broker.id": "3",
    "listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/disk1/logs,/disk2/logs",
    "zookeeper.connect": "zk:2181",
}


def test_brokers_differ_in_id_port_and_directories_alone() -> None:
    first, second = derived_brokers(FILE, 2, "host")
    assert first.own == {
        "broker.id": "3",
        "listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/disk1/logs/broker_3,/disk2/logs/broker_3",
        "broker.rack": "host",
    }
    assert second.own == {
        "broker.id": "4",
        "listeners": "PLAINTEXT://localhost:9093",
        "log.dirs": "/disk1/logs/broker_4,/disk2/logs/broker_4",
        "broker.rack": "host",
    }
    assert second.settings.broker.broker_id == second.id == 4
    assert second.settings.broker.zookeeper_connect == "zk:2181"
    assert second.settings.storage.log_dirs == ("/disk1/logs/broker_4", "/disk2/logs/broker_4")


def test_each_listener_and_each_advertised_one_gets_ports_of_its_own() -> None:
    file = FILE | {
        "listeners": "PLAINTEXT://:9092,SSL://[::1]:9093,SASL_SSL://:0",
        "advertised.listeners": "PLAINTEXT://a.example:19092,SSL://a.example:19093,SASL_SSL://a.example:29092",
        "ssl.keystore.location": "/k",
    }
    _, second, third = derived_brokers(file, 3, "host")
    assert second.own["listeners"] == "PLAINTEXT://:9094,SSL://[::1]:9095,SASL_SSL://:0"
    assert second.own["advertised.listeners"] == (
        "PLAINTEXT://a.example:19094,SSL://a.example:19095,SASL_SSL://a.example:29094"
    )
    assert third.own["listeners"] == "PLAINTEXT://:9096,SSL://[::1]:9097,SASL_SSL://:0"


@pytest.mark.parametrize(
    ("ports", "step"),
    [
        ([9092], 1),
        ([], 1),
        ([0, 0], 1),
        ([9092, 9092], 1),
        ([9092, 9093], 2),
        ([9092, 9093, 9094], 3),
        ([9092, 9094], 3),
        ([9092, 9092 + MAX_BROKERS], 1),
        ([9092, 9091 + MAX_BROKERS], 2),
        ([9092, 19092], 1),
    ],
)
def test_the_step_between_ports_is_the_smallest_with_which_no_brokers_meet(ports: list[int], step: int) -> None:
    assert port_step([ports]) == step
    taken = [{port + n * step for port in ports if port} for n in range(MAX_BROKERS)]
    assert len(set().union(*taken)) == sum(map(len, taken))


def test_the_rack_and_the_other_name_of_the_id_are_those_of_the_file() -> None:
    file = {name: value for name, value in FILE.items() if name != "broker.id"}
    (_, second) = derived_brokers(file | {"node.id": "7", "broker.rack": "a"}, 2, "host")
    assert (second.own["broker.id"], second.own["node.id"], second.own["broker.rack"]) == ("8", "8", "a")


def test_more_brokers_change_nothing_for_the_first_ones() -> None:
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"}
    file = FILE | protocols | {"listeners": "PLAINTEXT://:9092,EXTERNAL://:9096"}
    few, many = derived_brokers(file, 2, "host"), derived_brokers(file, 20, "host")
    assert [broker.own for broker in many[:2]] == [broker.own for broker in few]


@pytest.mark.parametrize(
    ("change", "count", "message"),
    [
        (
            {"zookeeper.connect": ""},
            4,
            r"zookeeper.connect is not set: .*`leadline cluster up --brokers 4` starts a Zoo",
        ),
        ({"broker.id": "-1"}, 2, r"broker.id is not set: --brokers counts from it\. .*--set broker.id=0"),
        ({"broker.id": "1000"}, 2, r"broker.id=1001: must be between -1 and reserved.broker.max.id=1000"),
        ({"listeners": "PLAINTEXT://:65535"}, 2, "listeners=PLAINTEXT://:65536: a port of the last broker would be"),
        ({"log.dirs": " "}, 2, "log.dirs=: must name at least one directory"),
        ({"listeners": "nonsense"}, 2, "listeners=nonsense: nonsense must be NAME://host:port"),
        ({}, MAX_BROKERS + 1, f"--brokers {MAX_BROKERS + 1}: at most {MAX_BROKERS} brokers of one host"),
    ],
)
def test_what_cannot_be_several_brokers_is_refused_with_the_setting(
    change: dict[str, str], count: int, message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        derived_brokers(FILE | change, count, "host")
