"""THE TABLE of Kafka's own tools: what each flag is here. `kafka_form.py` explains the rows.

The flags are those of Kafka 3.8. Milliseconds of `--timeout` become seconds.
"""

import shlex
from collections.abc import Mapping, Sequence

from leadline.cli import COMMANDS
from leadline.cli.kafka_form import (
    Finish,
    KafkaCall,
    KafkaFormRefused,
    KafkaTool,
    by_action,
    flags_in,
    only_action,
    without_action,
)

COMMON = """
--bootstrap-server --broker-list = | --bootstrap-server {}
--command-config = | --command-config {}
--help -h | --help
--version | no leadline --version
--zookeeper --authorizer-properties --zk-tls-config-file = | no brokers are asked: --bootstrap-server HOST:PORT
--authorizer = | no brokers are asked: --bootstrap-server HOST:PORT
--bootstrap-controller = | no there are no KRaft controllers: --bootstrap-server HOST:PORT
--output = | --output {}
--json | --json
--yes | --yes
"""
TOPICS = """
--list | do list
--describe | do describe
--create | do create
--alter | do alter
--delete | do delete
--topic = | {}
--partitions = | --partitions {}
--replication-factor = | --replication-factor {}
--config = | --config {}
--delete-config = | --delete-config {}
--if-exists | --if-exists
--if-not-exists | --if-not-exists
--exclude-internal |
--under-replicated-partitions | --under-replicated-partitions
--under-min-isr-partitions | --under-min-isr-partitions
--at-min-isr-partitions | --at-min-isr-partitions
--unavailable-partitions | --unavailable-partitions
--topics-with-overrides | no leadline topics describe --output json | jq '.[] | select(.configs != {})'
--topic-id = | no topics are described by name: leadline topics describe NAME
--replica-assignment = | no create the topic, then: leadline reassign plan NAME --to 1,2,3 --out plan.json
--partition-size-limit-per-response = |
"""
GROUPS = """
--list | do list
--describe | do describe
--delete | do delete
--reset-offsets | do reset-offsets
--delete-offsets | no single offsets cannot be deleted; all of a group: leadline groups delete GROUP
--group = | {}
--all-groups |
--topic = | --topic {}
--all-topics | --all-topics
--to-earliest | --to-earliest
--to-latest | --to-latest
--to-current | --shift-by 0
--to-offset = | --to-offset {}
--shift-by = | --shift-by {}
--to-datetime = | --to-datetime {}
--by-duration = | --by-duration {}
--from-file = | --from-file {}
--dry-run | --dry-run
--execute | --execute
--export | --export
--members --offsets --state --verbose |
--type = | no groups of every type are listed: leadline groups list
--timeout = |
"""
CONFIGS = """
--describe | do describe
--alter | do alter
--all | --all
--topic --broker --broker-logger --user --client --ip = |
--broker-defaults --user-defaults --client-defaults --ip-defaults --entity-default |
--entity-type --entity-name = |
--add-config --delete-config = |
--add-config-file = | no name each setting: leadline configs alter --topic NAME --set KEY=VALUE
--force |
"""
ACLS = """
--add | do add
--remove | do remove
--list | do list
--allow-principal = | --allow-principal {}
--deny-principal = | --deny-principal {}
--allow-host = | --allow-host {}
--deny-host = | --deny-host {}
--principal = | --principal {}
--operation = | --operation {}
--topic = | --topic {}
--group = | --group {}
--cluster | --cluster
--transactional-id = | --transactional-id {}
--delegation-token = | --delegation-token {}
--user-principal = | --user-principal {}
--resource-pattern-type = | --resource-pattern-type {}
--producer | --producer
--consumer | --consumer
--idempotent | --idempotent
--force | --yes
"""
CONSUME = """
--topic = | {}
--from-beginning | --from-beginning
--max-messages = | --max {}
--group = | --group {}
--partition = | --partition {}
--offset = |
--isolation-level = | --isolation {}
--property = |
--consumer-property = | --property {}
--consumer.config = | --command-config {}
--timeout-ms = | no it ends at the end of the log with --to-end, or after N records with --max N
--to-end | --to-end
--include --whitelist = | no one topic at a time: leadline consume TOPIC
--formatter --formatter-config = | no records are printed as text, or as JSON: --output jsonl
--key-deserializer --value-deserializer = | no records are printed as text, or as JSON: --output jsonl
--enable-systest-events --skip-message-on-error |
"""
PRODUCE = """
--topic = | {}
--property = |
--producer-property = | --property {}
--producer.config = | --command-config {}
--request-required-acks = |
--compression-codec = | --compression {}
--batch-size = | --property batch.size={}
--timeout = | --property linger.ms={}
--request-timeout-ms = | --property request.timeout.ms={}
--message-send-max-retries = | --property retries={}
--retry-backoff-ms = | --property retry.backoff.ms={}
--socket-buffer-size = | --property socket.send.buffer.bytes={}
--metadata-expiry-ms = | --property metadata.max.age.ms={}
--max-block-ms --max-memory-bytes --max-partition-memory-bytes = |
--sync |
--line-reader --reader-config = | no lines are read as --help says: leadline produce TOPIC --key-separator :
"""
LEADER_ELECTION = """
--election-type = |
--topic --partition = |
--all-topic-partitions | --all
--path-to-json-file = | --file {}
--admin.config = | --command-config {}
"""
REASSIGN = """
--execute | do execute
--verify | do verify
--cancel | do cancel
--list | do list
--generate | no leadline reassign plan TOPIC ... --to 1,2,3 --out plan.json
--reassignment-json-file = | {}
--throttle = | --throttle {}
--topics-to-move-json-file = | no leadline reassign plan TOPIC ... --to 1,2,3 --out plan.json
--broker-list = | no ids of brokers go to a plan: leadline reassign plan TOPIC ... --to {} --out plan.json
--replica-alter-log-dirs-throttle = | no replicas cannot move between the directories of a broker
--additional --preserve-throttles --disable-rack-aware |
--timeout = |
"""
TRANSACTIONS = """
--transactional-id = | {}
--topic --partition = |
--broker-id = |
--start-offset = | --start-offset {}
--producer-id = | --producer-id {}
--producer-epoch = | --producer-epoch {}
--coordinator-epoch = | --coordinator-epoch {}
--max-transaction-timeout = | --max-transaction-timeout {}m
--duration-filter = |
"""
TOKENS = """
--create | do create
--describe | do list
--renew | no a token is named by its id: leadline tokens renew ID --period 1d
--expire | no a token is named by its id: leadline tokens expire ID
--owner-principal = | --owner {}
--renewer-principal = | --renewer {}
--max-life-time-period = |
--hmac --renew-time-period --expiry-time-period = | no a token is named by its id: leadline tokens renew ID --period 1d
"""
DUMP_LOG = """
--files = |
--deep-iteration | --deep
--print-data-log | --data
--index-sanity-check --verify-index-only | --check
--skip-record-metadata --max-message-size --max-bytes |
--offsets-decoder --transaction-log-decoder | no records are printed as they are: leadline dump-log --data FILE
--cluster-metadata-decoder --remote-log-metadata-decoder | no there are no such topics: leadline dump-log --data FILE
--value-decoder-class --key-decoder-class = | no records are printed as they are: leadline dump-log --data FILE
"""
PERF_PRODUCE = """
--topic = | {}
--num-records = | --records {}
--record-size = | --size {}
--throughput = |
--producer-props = | --property {}
--producer.config = | --command-config {}
--print-metrics |
--payload-file --payload-delimiter = | no values are made up: leadline perf produce TOPIC --size BYTES
--transactional-id --transaction-duration-ms = | no transactions are not measured: leadline perf produce TOPIC
"""
PERF_CONSUME = """
--topic = | {}
--messages = | --records {}
--consumer.config = | --command-config {}
--group --date-format --fetch-size --num-fetch-threads --reporting-interval --socket-buffer-size --threads --timeout = |
--from-latest | no it reads from the beginning: leadline perf consume TOPIC
--hide-header --print-metrics --show-detailed-stats |
"""
START = """
--override = | --set {}
-daemon | no it runs in the foreground: use a service of systemd (README.md), or leadline start FILE &
"""

# Tools without a command here, and what answers the same question.
CONNECT = "Kafka Connect's own works with these brokers; tables from topics: leadline pipeline table --help"
ANSWERS = {
    "kafka-server-stop": "Ctrl-C or SIGTERM stop a broker cleanly",
    "kafka-get-offsets": "the first and last offsets of partitions: leadline explain TOPIC",
    "kafka-log-dirs": "the sizes of replicas: leadline explain TOPIC",
    "kafka-broker-api-versions": "the versions of brokers: leadline migrate check --bootstrap-server HOST:PORT",
    "kafka-delete-records": "records are deleted by age: leadline configs alter --topic NAME --set retention.ms=1000",
    "kafka-client-metrics": "clients are not asked for metrics; of brokers: leadline start --metrics 127.0.0.1:9404",
    "kafka-jmx": "there is no JMX; metrics are served over HTTP: leadline start --metrics 127.0.0.1:9404",
    "kafka-metadata-shell": "there is no KRaft metadata: leadline explain TOPIC",
    "kafka-run-class": "there are no Java classes: leadline --help lists the commands",
    "kafka-streams-application-reset": "leadline groups reset-offsets GROUP --topic TOPIC --to-earliest",
    "kafka-cluster": "the brokers of a cluster: leadline topics describe, or leadline console",
    "kafka-features": "there are no features with levels: leadline start runs with ZooKeeper or alone",
    "kafka-metadata-quorum": "there is no KRaft quorum: leadline start runs with ZooKeeper or alone",
    "kafka-storage": "a directory needs no formatting: leadline start server.properties",
    "kafka-e2e-latency": "leadline perf latency TOPIC --records 1000",
    "kafka-mirror-maker": "leadline pipeline mirror --help",
    "kafka-replica-verification": "leadline pipeline audit --help",
    "kafka-verifiable-producer": "leadline perf produce TOPIC --records 1000",
    "kafka-verifiable-consumer": "leadline perf consume TOPIC --records 1000",
    "connect-standalone": CONNECT,
    "connect-distributed": CONNECT,
    "connect-plugin-path": CONNECT,
    "connect-mirror-maker": "leadline pipeline mirror --help",
    "zookeeper-server-start": "leadline cluster up starts a ZooKeeper and brokers",
    "zookeeper-server-stop": "leadline cluster up stops its ZooKeeper with its brokers, on Ctrl-C",
    "zookeeper-security-migration": "brokers set ACLs on what they write: leadline start --set zookeeper.set.acl=true",
    "zookeeper-shell": "leadline has no shell of ZooKeeper; ask the brokers: leadline explain TOPIC",
}


# Flags that need more than a row


def _timeout(call: KafkaCall) -> list[str]:
    """Kafka's are milliseconds."""
    return [word for text in call.values.get("--timeout", ()) for word in ("--timeout", f"{_number(text) / 1000:g}")]


def _number(text: str) -> int:
    if not text.isdigit():
        raise KafkaFormRefused(f"expected a number, not {text!r}")
    return int(text)


def _topics(call: KafkaCall) -> list[str]:
    """Kafka's tool takes patterns, except to create."""
    action = only_action(call, "kafka-topics", ["--list", "--describe", "--create", "--alter", "--delete"])
    names = call.values.get("--topic", [])
    if action == "list" and names:
        raise KafkaFormRefused(f"all topics are listed: leadline topics list | grep {shlex.quote(names[0])}")
    if any(set(name) & set("|*+?()[]^$\\") for name in names):
        raise KafkaFormRefused(f"topics are named, without patterns: leadline topics {action} NAME")
    return [action, *call.words, *call.arguments]


def _groups(call: KafkaCall) -> list[str]:
    action = only_action(call, "kafka-consumer-groups", ["--list", "--describe", "--delete", "--reset-offsets"])
    if action in ("delete", "reset-offsets") and not call.values.get("--group"):
        raise KafkaFormRefused(f"name the group: leadline groups {action} GROUP ...")
    if action == "list":  # --state may have a value
        states = [state for text in call.arguments for state in text.split(",")]
        return [action, *call.words, *(word for state in states for word in ("--state", state)), *_timeout(call)]
    return [action, *call.words, *call.arguments, *_timeout(call)]


def _reassign(call: KafkaCall) -> list[str]:
    action = only_action(call, "kafka-reassign-partitions", ["--execute", "--verify", "--cancel", "--list"])
    return [action, *call.words, *call.arguments, *_timeout(call)]


def _consume(call: KafkaCall) -> list[str]:
    words, printed = [*call.words, *call.arguments], list[str]()
    for text in call.values.get("--offset", ()):
        words += {"earliest": ["--from-beginning"], "latest": []}.get(text, ["--offset", text])
    for text in call.values.get("--property", ()):
        name, _, value = text.partition("=")
        field = name.removeprefix("print.")
        if name == "key.separator":
            words += ["--key-separator", value]
        elif name.startswith("print.") and field in ("key", "partition", "offset", "timestamp", "headers"):
            printed += [field] if value == "true" else []
        elif name != "print.value" or value != "true":
            raise KafkaFormRefused(f"--property {text}: leadline consume TOPIC --print key,offset, or --output jsonl")
    return [*words, *(["--print", ",".join(printed)] if printed else [])]


PRODUCE_PROPERTIES = {
    "headers.delimiter": "--headers-delimiter",
    "headers.separator": "--headers-separator",
    "headers.key.separator": "--headers-key-separator",
    "null.marker": "--null-marker",
}


def _produce(call: KafkaCall) -> list[str]:
    words = [*call.words, *call.arguments]
    for acks in call.values.get("--request-required-acks", ()):
        words += ["--acks", "all" if acks == "-1" else acks]
    properties = dict(text.partition("=")[::2] for text in call.values.get("--property", ()))
    separator = properties.pop("key.separator", "\\t")
    if properties.pop("parse.key", "false") == "true":
        words += ["--key-separator", separator]
    if properties.pop("parse.headers", "false") == "true":
        words.append("--parse-headers")
    for name, value in properties.items():
        if name not in PRODUCE_PROPERTIES:
            raise KafkaFormRefused(f"--property {name}={value}: leadline produce TOPIC --key-separator :")
        words += [PRODUCE_PROPERTIES[name], value]
    return words


def _partitions(call: KafkaCall) -> list[str]:
    """orders:0,2 of --topic orders --partition 0 --partition 2."""
    topics, partitions = call.values.get("--topic", []), call.values.get("--partition", [])
    if partitions and len(topics) != 1:
        raise KafkaFormRefused("--partition needs one --topic")
    return [f"{topic}:{','.join(partitions)}" if partitions else topic for topic in topics]


def _elect(call: KafkaCall) -> list[str]:
    kinds = [kind.lower() for kind in call.values.get("--election-type", ())]
    if len(kinds) != 1:
        raise KafkaFormRefused("--election-type preferred or --election-type unclean is needed")
    return [*kinds, *_partitions(call), *call.words]


def _transactions(call: KafkaCall) -> list[str]:
    if not call.arguments:
        raise KafkaFormRefused("one of list, describe, find-hanging and abort is needed")
    action, *rest = call.arguments
    if action == "describe-producers":
        return ["blocking", *_partitions(call), *call.words, *rest]
    if action == "forceTerminateTransaction":
        raise KafkaFormRefused("a transaction is aborted in a partition: leadline transactions abort TOPIC:PARTITION")
    partitions = _partitions(call)
    if action == "find-hanging":
        partitions = [word for partition in partitions for word in ("--topic", partition)]
    longer = [word for text in call.values.get("--duration-filter", ()) for word in ("--longer-than", f"{text}ms")]
    return [action, *partitions, *call.words, *longer, *rest, *(["--execute"] if action == "abort" else [])]


def _tokens(call: KafkaCall) -> list[str]:
    action = only_action(call, "kafka-delegation-tokens", ["--create", "--describe"])
    lifetimes = [text for text in call.values.get("--max-life-time-period", ()) if text != "-1"]
    return [action, *call.words, *(word for text in lifetimes for word in ("--lifetime", f"{_number(text)}ms"))]


def _dump_log(call: KafkaCall) -> list[str]:
    files = [file for text in call.values.get("--files", ()) for file in text.split(",")]
    return [*call.words, *files, *call.arguments]


def _perf_produce(call: KafkaCall) -> list[str]:
    """--producer-props has several values; a rate of -1 is no limit."""
    words = [*call.words, *(word for text in call.arguments for word in ("--property", text))]
    rates = [rate for rate in call.values.get("--throughput", ()) if rate != "-1"]
    return [*words, *(word for rate in rates for word in ("--rate", rate))]


# Settings of topics, brokers, loggers, users, clients and addresses

ENTITIES = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "users": "user",
    "clients": "client",
    "ips": "ip",
}
QUOTA_OPTIONS = {"user": "--user", "client": "--client-id", "ip": "--ip"}


def settings_in(text: str) -> dict[str, str]:
    """a=1,b=[x,y]: a list is in brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    pairs = (part.strip().partition("=") for part in parts if part.strip())
    return {name: value.removeprefix("[").removesuffix("]") for name, _, value in pairs}


def _entities(call: KafkaCall) -> dict[str, str | None]:
    """The names by kind. None: the default of all."""
    entities: dict[str, str | None] = {}
    kinds, names = call.values.get("--entity-type", []), [*call.values.get("--entity-name", [])]
    has_default = "--entity-default" in call.values
    for text in kinds:
        if text not in ENTITIES:
            raise KafkaFormRefused(f"--entity-type {text}: expected one of {', '.join(ENTITIES)}")
        if not names and not has_default:
            raise KafkaFormRefused(f"--entity-name is needed with --entity-type {text}")
        entities[ENTITIES[text]] = names.pop(0) if names else None
    for kind in ENTITIES.values():
        for name in call.values.get(f"--{kind}", ()):
            entities[kind] = name
        if f"--{kind}-defaults" in call.values:
            entities[kind] = None
    if not entities:
        raise KafkaFormRefused("whose settings? leadline configs describe --topic NAME")
    return entities


def _configs(call: KafkaCall) -> list[str]:
    action = only_action(call, "kafka-configs", ["--describe", "--alter"])
    entities = _entities(call)
    added = settings_in(",".join(call.values.get("--add-config", ())))
    deleted = [name for text in call.values.get("--delete-config", ()) for name in text.split(",")]
    if "topic" in entities or "broker" in entities:
        return ["configs", action, *_setting_words(entities, added, deleted), *call.words]
    if "broker-logger" in entities:
        return _logger_words(action, entities["broker-logger"], added, deleted, call)
    return _quota_words(action, entities, added, deleted, call)


def _setting_words(entities: Mapping[str, str | None], added: Mapping[str, str], deleted: Sequence[str]) -> list[str]:
    ((kind, name),) = entities.items()
    words = ["--broker-defaults"] if name is None else [f"--{kind}", name]
    words += [word for item in added.items() for word in ("--set", "=".join(item))]
    return words + [word for name in deleted for word in ("--delete", name)]


def _logger_words(
    action: str, broker: str | None, added: Mapping[str, str], deleted: Sequence[str], call: KafkaCall
) -> list[str]:
    others = [word for word in call.words if word != "--all"]
    of_broker = [] if broker is None else ["--broker", broker]
    if action == "describe":
        return ["log-levels", "list", *of_broker, *others]
    if added and deleted:
        raise KafkaFormRefused("one at a time: leadline log-levels set LOGGER=LEVEL, leadline log-levels reset LOGGER")
    if added:
        return ["log-levels", "set", *map("=".join, added.items()), *of_broker, *others]
    return ["log-levels", "reset", *deleted, *of_broker, *others]


def _quota_words(
    action: str, entities: Mapping[str, str | None], added: Mapping[str, str], deleted: Sequence[str], call: KafkaCall
) -> list[str]:
    for name in (*added, *deleted):
        if name.startswith("SCRAM-"):
            user = shlex.quote(entities.get("user") or "USER")
            verb = "remove" if name in deleted else "add"
            raise KafkaFormRefused(f"{name}: leadline users {verb} {user} --mechanism {name}")
    whose = [
        word
        for kind, name in entities.items()
        for word in ([f"{QUOTA_OPTIONS[kind]}-default"] if name is None else [QUOTA_OPTIONS[kind], name])
    ]
    if action == "describe":
        return ["quotas", "list", *whose, *call.words]
    if added and deleted:
        raise KafkaFormRefused("one at a time: leadline quotas set ... KEY=VALUE, leadline quotas remove ... KEY")
    if added:
        return ["quotas", "set", *map("=".join, added.items()), *whose, *call.words]
    return ["quotas", "remove", *deleted, *whose, *call.words]


def _tool(name: str, command: str, table: str, finish: Finish | None = None) -> tuple[str, KafkaTool]:
    flags = {**flags_in(COMMON), **flags_in(table)}
    return name, KafkaTool(name, command, flags, finish or by_action(name, flags_in(table)))


KAFKA_TOOLS = dict(
    [
        _tool("kafka-topics", "topics", TOPICS, _topics),
        _tool("kafka-consumer-groups", "groups", GROUPS, _groups),
        _tool("kafka-configs", "", CONFIGS, _configs),
        _tool("kafka-acls", "acls", ACLS),
        _tool("kafka-console-consumer", "consume", CONSUME, _consume),
        _tool("kafka-console-producer", "produce", PRODUCE, _produce),
        _tool("kafka-leader-election", "leader-election", LEADER_ELECTION, _elect),
        _tool("kafka-reassign-partitions", "reassign", REASSIGN, _reassign),
        _tool("kafka-transactions", "transactions", TRANSACTIONS, _transactions),
        _tool("kafka-delegation-tokens", "tokens", TOKENS, _tokens),
        _tool("kafka-dump-log", "dump-log", DUMP_LOG, _dump_log),
        _tool("kafka-producer-perf-test", "perf produce", PERF_PRODUCE, _perf_produce),
        _tool("kafka-consumer-perf-test", "perf consume", PERF_CONSUME, without_action),
        _tool("kafka-server-start", "start", START, without_action),
    ]
)

# Commands of ours that also take Kafka's flags: the tool, and the flags that mark a call in its form.
OWN_NAMES = {
    "topics": "kafka-topics",
    "groups": "kafka-consumer-groups",
    "configs": "kafka-configs",
    "acls": "kafka-acls",
    "consume": "kafka-console-consumer",
    "produce": "kafka-console-producer",
    "leader-election": "kafka-leader-election",
    "reassign": "kafka-reassign-partitions",
    "tokens": "kafka-delegation-tokens",
    "dump-log": "kafka-dump-log",
}
WITHOUT_SUBCOMMANDS = {
    "consume": "--topic",
    "produce": "--topic",
    "leader-election": "--election-type",
    "dump-log": "--files",
}


def translated(words: Sequence[str]) -> list[str] | None:
    """A call in the form of Kafka's tools, in ours. None: it is in our form. KafkaFormRefused."""
    if not words or (words[0] in COMMANDS and words[0] not in OWN_NAMES):
        return None
    first, rest = words[0], words[1:]
    name = first.removesuffix(".sh").removesuffix(".bat")
    if name not in OWN_NAMES:
        name = name if name.startswith(("connect-", "kafka-", "zookeeper-")) else f"kafka-{name}"
        if name in ANSWERS:
            raise KafkaFormRefused(f"there is no {name} here: {ANSWERS[name]}")
        return KAFKA_TOOLS[name].translated(rest) if name in KAFKA_TOOLS else None
    if first in WITHOUT_SUBCOMMANDS:
        mark = WITHOUT_SUBCOMMANDS[first]
        is_kafkas = any(word.partition("=")[0] == mark for word in rest)
    else:
        is_kafkas = bool(rest) and rest[0].startswith("--") and rest[0] != "--help"
    return KAFKA_TOOLS[OWN_NAMES[first]].translated(rest) if is_kafkas else None
