"""Calls in the form of Kafka's own tools run as they are meant, or are answered with the form that works here."""

import re

import pytest

from leadline.cli import main, parse
from leadline.cli.kafka_form import KafkaFormRefused
from leadline.cli.kafka_tools import ANSWERS, KAFKA_TOOLS, settings_in, translated
from tests.support.leaf_commands import leaf_commands

# The flags of Kafka 3.8.0, as --help of each tool lists them.
FLAGS = {
    "kafka-topics": """
        alter at-min-isr-partitions bootstrap-server command-config config create delete delete-config describe
        exclude-internal help if-exists if-not-exists list partition-size-limit-per-response partitions
        replica-assignment replication-factor topic topic-id topics-with-overrides unavailable-partitions
        under-min-isr-partitions under-replicated-partitions version""",
    "kafka-consumer-groups": """
        all-groups all-topics bootstrap-server by-duration command-config delete delete-offsets describe dry-run execute
        export from-file group help list members offsets reset-offsets shift-by state timeout to-current to-datetime
        to-earliest to-latest to-offset topic type verbose version""",
    "kafka-configs": """
        add-config add-config-file all alter bootstrap-controller bootstrap-server broker broker-defaults broker-logger
        client client-defaults command-config delete-config describe entity-default entity-name entity-type force help
        ip ip-defaults topic user user-defaults version zk-tls-config-file zookeeper""",
    "kafka-acls": """
        add allow-host allow-principal authorizer authorizer-properties bootstrap-server cluster command-config consumer
        delegation-token deny-host deny-principal force group help idempotent list operation principal producer remove
        resource-pattern-type topic transactional-id user-principal version zk-tls-config-file""",
    "kafka-console-producer": """
        batch-size bootstrap-server broker-list compression-codec help line-reader max-block-ms max-memory-bytes
        max-partition-memory-bytes message-send-max-retries metadata-expiry-ms producer-property producer.config
        property reader-config request-required-acks request-timeout-ms retry-backoff-ms socket-buffer-size sync timeout
        topic version""",
    "kafka-console-consumer": """
        bootstrap-server consumer-property consumer.config enable-systest-events formatter formatter-config
        from-beginning group help include isolation-level key-deserializer max-messages offset partition property
        skip-message-on-error timeout-ms topic value-deserializer version whitelist""",
    "kafka-leader-election": """
        admin.config all-topic-partitions bootstrap-server election-type help partition path-to-json-file topic
        version""",
    "kafka-reassign-partitions": """
        additional bootstrap-server broker-list cancel command-config disable-rack-aware execute generate help list
        preserve-throttles reassignment-json-file replica-alter-log-dirs-throttle throttle timeout
        topics-to-move-json-file verify version""",
    "kafka-producer-perf-test": """
        topic num-records payload-delimiter throughput producer-props producer.config print-metrics transactional-id
        transaction-duration-ms record-size payload-file help""",
    "kafka-consumer-perf-test": """
        bootstrap-server broker-list consumer.config date-format fetch-size from-latest group help hide-header messages
        num-fetch-threads print-metrics reporting-interval show-detailed-stats socket-buffer-size threads timeout topic
        version""",
}

# What is typed, and what it is here.
CALLS = """
topics --list --bootstrap-server b:1 -> topics list --bootstrap-server b:1
topics --describe --topic x --bootstrap-server=b:1 -> topics describe x --bootstrap-server b:1
topics --create --topic x --partitions 3 --config a=b -> topics create x --partitions 3 --config a=b
topics --alter --topic x --partitions 6 -> topics alter x --partitions 6
topics --delete --topic x --if-exists -> topics delete x --if-exists
topics --describe --under-replicated-partitions --output json -> topics describe --under-replicated-partitions --output json
kafka-topics --list --exclude-internal -> topics list
kafka-topics.sh --list -> topics list
groups --list --state Empty,Dead -> groups list --state Empty --state Dead
groups --describe --group g --members --verbose -> groups describe g
groups --describe --all-groups --timeout 5000 -> groups describe --timeout 5
groups --delete --group g -> groups delete g
groups --reset-offsets --group g --topic x:0,1 --to-earliest --execute -> groups reset-offsets g --topic x:0,1 --to-earliest --execute
kafka-consumer-groups --reset-offsets --group g --all-topics --to-current --dry-run -> groups reset-offsets g --all-topics --shift-by 0 --dry-run
configs --alter --entity-type topics --entity-name x --add-config a=b,c=[d,e] -> configs alter --topic x --set a=b --set c=d,e
configs --alter --topic x --delete-config a,b -> configs alter --topic x --delete a --delete b
configs --describe --entity-type brokers --entity-name 1 --all -> configs describe --broker 1 --all
configs --describe --entity-type brokers --entity-default -> configs describe --broker-defaults
configs --describe --broker-logger 1 -> log-levels list --broker 1
configs --alter --entity-type broker-loggers --entity-name 1 --add-config a.b=DEBUG -> log-levels set a.b=DEBUG --broker 1
configs --alter --broker-logger 1 --delete-config a.b -> log-levels reset a.b --broker 1
configs --describe --entity-type users --entity-name u --entity-type clients --entity-default -> quotas list --user u --client-id-default
configs --alter --user u --add-config producer_byte_rate=1 -> quotas set producer_byte_rate=1 --user u
configs --alter --ip 10.0.0.7 --delete-config connection_creation_rate -> quotas remove connection_creation_rate --ip 10.0.0.7
acls --add --allow-principal User:a --operation Read --topic x -> acls add --allow-principal User:a --operation Read --topic x
acls --add --allow-principal User:a --producer --topic x --idempotent -> acls add --allow-principal User:a --producer --topic x --idempotent
acls --remove --topic x --force -> acls remove --topic x --yes
acls --list --principal User:a -> acls list --principal User:a
consume --topic x --from-beginning --max-messages 5 -> consume x --from-beginning --max 5
console-consumer --topic x --property print.key=true --property key.separator=: -> consume x --key-separator : --print key
kafka-console-consumer --topic x --partition 0 --offset earliest -> consume x --partition 0 --from-beginning
kafka-console-consumer --topic x --consumer-property a=b --consumer.config f --isolation-level read_committed -> consume x --property a=b --command-config f --isolation read_committed
produce --broker-list b:1 --topic x --property parse.key=true --property key.separator=: -> produce --bootstrap-server b:1 x --key-separator :
kafka-console-producer --topic x --request-required-acks -1 --compression-codec lz4 -> produce x --compression lz4 --acks all
leader-election --election-type PREFERRED --topic x --partition 2 -> leader-election preferred x:2
kafka-leader-election --election-type unclean --all-topic-partitions -> leader-election unclean --all
reassign --execute --reassignment-json-file p.json --throttle 5 -> reassign execute p.json --throttle 5
reassign --verify --reassignment-json-file p.json --preserve-throttles -> reassign verify p.json
kafka-transactions --bootstrap-server b:1 list -> transactions list --bootstrap-server b:1
kafka-transactions describe --transactional-id t -> transactions describe t
kafka-transactions abort --topic x --partition 0 --start-offset 4 -> transactions abort x:0 --start-offset 4 --execute
kafka-transactions find-hanging --topic x --max-transaction-timeout 15 -> transactions find-hanging --topic x --max-transaction-timeout 15m
kafka-transactions describe-producers --topic x --partition 0 -> transactions blocking x:0
tokens --create --renewer-principal User:a --max-life-time-period -1 -> tokens create --renewer User:a
tokens --create --max-life-time-period 1000 -> tokens create --lifetime 1000ms
tokens --describe --owner-principal User:a -> tokens list --owner User:a
kafka-dump-log --files a.log,b.index --print-data-log --index-sanity-check -> dump-log --data --check a.log b.index
kafka-producer-perf-test --topic x --num-records 5 --record-size 9 --throughput -1 --producer-props a=b c=d -> perf produce x --records 5 --size 9 --property a=b --property c=d
kafka-consumer-perf-test --topic x --messages 5 --broker-list b:1 -> perf consume x --records 5 --bootstrap-server b:1
kafka-server-start server.properties --override broker.id=3 -> start --set broker.id=3 server.properties
""".strip().splitlines()  # noqa: E501  one call a line

REFUSALS = """
topics --list --topic x -> leadline topics list | grep x
topics --describe --topic a.* -> leadline topics describe NAME
topics --topic x -> needs one of --list, --describe, --create, --alter, --delete
topics --describe --zookeeper z:2181 -> --bootstrap-server HOST:PORT
topics --describ -> did you mean --describe?
topics --describe --topic -> --topic needs a value
groups --delete --all-groups -> leadline groups delete GROUP
groups --delete-offsets --group g --topic x -> leadline groups delete GROUP
configs --alter --user u --add-config SCRAM-SHA-256=[password=p] -> leadline users add u --mechanism SCRAM-SHA-256
configs --describe -> leadline configs describe --topic NAME
configs --describe --entity-type tables --entity-name x -> expected one of topics, brokers
consume --topic x --timeout-ms 5 -> --to-end
reassign --generate -> leadline reassign plan TOPIC ... --to 1,2,3 --out plan.json
reassign --broker-list 1,2 --execute -> leadline reassign plan TOPIC ... --to 1,2 --out plan.json
tokens --renew --hmac x -> leadline tokens renew ID
kafka-get-offsets --topic x -> leadline explain TOPIC
kafka-server-stop -> SIGTERM
kafka-storage format -> leadline start server.properties
""".strip().splitlines()


@pytest.mark.parametrize("row", CALLS)
def test_a_call_of_kafkas_tool_is_translated_to_one_that_parses_here(row: str) -> None:
    typed, _, expected = row.partition(" -> ")
    words = translated(typed.split())
    assert words == expected.split()
    assert callable(parse(words).run)


@pytest.mark.parametrize("row", REFUSALS)
def test_what_does_not_work_is_answered_with_what_does(row: str, capsys: pytest.CaptureFixture[str]) -> None:
    typed, _, answer = row.partition(" -> ")
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leadline: ")
    assert answer in line


@pytest.mark.parametrize("tool", FLAGS)
def test_each_flag_of_kafkas_tool_has_a_row(tool: str) -> None:
    assert [flag for flag in FLAGS[tool].split() if f"--{flag}" not in KAFKA_TOOLS[tool].flags] == []


def test_each_refusal_shows_what_works() -> None:
    refusals = {flag.refusal for tool in KAFKA_TOOLS.values() for flag in tool.flags.values() if flag.refusal}
    assert [text for text in refusals if not re.search(r"leadline |--[a-z]|cannot", text)] == []


def test_calls_in_our_own_form_stay_as_they_are() -> None:
    lines = [
        re.split(r" {3,}| [|<>] ", line.strip())[0]
        for parser in leaf_commands().values()
        for line in (parser.epilog or "").splitlines()
    ]
    calls = [line.split()[1:] for line in lines if line.startswith("leadline ")]
    assert len(calls) > 100
    assert [words for words in calls if translated(words) is not None] == []


def test_a_setting_may_be_a_list() -> None:
    assert settings_in("a=1, b=[x,y],c=[z],d=") == {"a": "1", "b": "x,y", "c": "z", "d": ""}


def test_an_unknown_tool_is_no_tool() -> None:
    assert translated(["strat"]) is None
    assert translated([]) is None
    with pytest.raises(KafkaFormRefused):
        translated(["topics", "--bogus"])


# bin/*.sh of Kafka 3.8.0, without trogdor, which tests Kafka itself
SCRIPTS = """
    connect-distributed connect-mirror-maker connect-plugin-path connect-standalone kafka-acls kafka-broker-api-versions
    kafka-client-metrics kafka-cluster kafka-configs kafka-console-consumer kafka-console-producer kafka-consumer-groups
    kafka-consumer-perf-test kafka-delegation-tokens kafka-delete-records kafka-dump-log kafka-e2e-latency
    kafka-features kafka-get-offsets kafka-jmx kafka-leader-election kafka-log-dirs kafka-metadata-quorum
    kafka-metadata-shell kafka-mirror-maker kafka-producer-perf-test kafka-reassign-partitions
    kafka-replica-verification kafka-run-class kafka-server-start kafka-server-stop kafka-storage
    kafka-streams-application-reset kafka-topics kafka-transactions kafka-verifiable-consumer kafka-verifiable-producer
    zookeeper-security-migration zookeeper-server-start zookeeper-server-stop zookeeper-shell""".split()


def test_each_script_of_kafka_is_known_or_answered() -> None:
    assert sorted(KAFKA_TOOLS.keys() | ANSWERS.keys()) == sorted(SCRIPTS)
    with pytest.raises(KafkaFormRefused, match="there is no connect-standalone here: Kafka Connect's own works"):
        translated(["connect-standalone.sh", "worker.properties"])
