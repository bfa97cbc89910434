"""Kafka's own nodes: their paths and their data, as Apache Kafka 3.8 writes them, byte for byte.

Pure: values in and bytes out, or the reverse.

    /controller                                 the controller's broker; ephemeral
    /controller_epoch                           a number: counts the controllers
    /brokers/ids/<id>                           a broker, ephemeral; its creation transaction is the broker's epoch
    /brokers/topics/<topic>                     id and assignment
    /brokers/topics/<topic>/partitions/<n>/state leader and ISR
    /brokers/seqid                              empty; its version is the source of generated broker ids
    /config/<type>/<entity>                     dynamic settings; <default>: for all entities of a type
    /config/changes/config_change_<sequence>    announces that the settings of an entity have changed
    /isr_change_notification/isr_change_<sequence>, /log_dir_event_notification/log_dir_event_<sequence>
    /admin/delete_topics/<topic>                empty: a topic to be deleted
    /admin/reassign_partitions, /admin/preferred_replica_election   requests of tools
    /cluster/id, /feature, /latest_producer_id_block
    /consumers/<group>/offsets/<topic>/<n>      a number: an offset of the oldest clients

Fields are written in the iteration order of Kafka's hash tables. Where the names of the fields never vary, the order is
spelled out here. Decoders accept older versions too. MalformedNode names the path.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

from leadline import hash_order
from leadline.coordination.node_json import Fields, MalformedNode, dumps, integer_of, loads
from leadline.hash_order import string_hash
from leadline.model import BrokerId, LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition, format_id, parse_id

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"  # create it sequential
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = f"{LOG_DIR_EVENTS}/log_dir_event_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"

# What Kafka writes to /feature at inter.broker.protocol.version 3.3 and later: it has no feature to finalize.
NO_FEATURES = dumps({"features": {}, "version": 2, "status": 1})

_SEQUENCE = re.compile(r"[0-9]{10,}$")

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"

# Each broker creates these at its start, empty, unless they exist.
PERSISTENT = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)


def broker_path(broker: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    return f"{partition_path(tp)}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def consumer_offset_path(group: str, tp: TopicPartition) -> str:
    return f"{CONSUMERS}/{group}/offsets/{tp.topic}/{tp.partition}"


def config_path(*entity: str) -> str:
    """config_path("topics", "t"), config_path("users", sanitize(user), "clients", DEFAULT_ENTITY)."""
    return "/".join((CONFIG, *entity))


def sanitize(name: str) -> str:
    """The name of a user or client as one step of a path."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(step: str) -> str:
    return unquote_plus(step)


def is_sequential(path: str) -> bool:
    return _SEQUENCE.search(path) is not None


def sequence(path: str) -> int:
    """The number of a sequential node: its last ten digits."""
    digits = _SEQUENCE.search(path)
    if not digits:
        raise MalformedNode(path, "its name does not end in a sequence number")
    return int(digits[0][-10:])


class ControllerNode(NamedTuple):
    broker: BrokerId
    timestamp_ms: int
    kraft_epoch: int = -1  # -1: ZooKeeper's, not that of a migration to KRaft


def encode_controller(controller: ControllerNode) -> bytes:
    broker, timestamp_ms, kraft_epoch = controller
    return dumps(
        {"version": 2, "brokerid": broker, "timestamp": str(timestamp_ms), "kraftControllerEpoch": kraft_epoch}
    )


def decode_controller(data: bytes) -> ControllerNode:
    fields = loads(CONTROLLER, data)
    return ControllerNode(
        fields.integer("brokerid"), fields.long("timestamp", "-1"), fields.integer("kraftControllerEpoch", -1)
    )


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    epoch = integer_of(data.decode("utf-8", "replace"))
    if epoch is None:
        raise MalformedNode(CONTROLLER_EPOCH, f"not a number: {data[:60]!r}")
    return epoch


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition, the preferred leader first, with those that a reassignment adds and removes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class TopicNode(NamedTuple):
    id: TopicId | None  # None: written before Kafka 2.8
    partitions: Mapping[int, ReplicaAssignment]


def encode_topic(topic: TopicNode) -> bytes:
    numbers = hash_order.mutable(map(str, topic.partitions), string_hash)
    assignments = {number: topic.partitions[int(number)] for number in numbers}
    adding = [number for number in numbers if assignments[number].adding]
    removing = [number for number in numbers if assignments[number].removing]
    id = {} if topic.id is None else {"topic_id": format_id(topic.id)}
    return dumps(
        {"partitions": {number: assignments[number].replicas for number in numbers}}
        | id
        | {
            "adding_replicas": {
                number: assignments[number].adding for number in hash_order.mutable(adding, string_hash)
            },
            "removing_replicas": {
                number: assignments[number].removing for number in hash_order.mutable(removing, string_hash)
            },
            "version": 3,
        }
    )


def decode_topic(name: str, data: bytes) -> TopicNode:
    fields = loads(topic_path(name), data)
    replicas, adding, removing = map(fields.fields, ("partitions", "adding_replicas", "removing_replicas"))
    partitions = {
        _partition(fields, number): ReplicaAssignment(
            replicas.integers(number),
            adding.integers(number) if number in adding else (),
            removing.integers(number) if number in removing else (),
        )
        for number in replicas.names()
    }
    return TopicNode(_topic_id(fields), partitions)


def _partition(fields: Fields, number: str) -> int:
    partition = integer_of(number)
    if partition is None or partition < 0 or str(partition) != number:
        raise fields.malformed(f"partitions.{number} is not named by a number")
    return partition


def _topic_id(fields: Fields) -> TopicId | None:
    if "topic_id" not in fields:
        return None
    try:
        return parse_id(fields.string("topic_id"))
    except ValueError as error:
        raise fields.malformed(f"topic_id is {error}") from None


class PartitionStateNode(NamedTuple):
    leader: BrokerId  # -1: none
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: int  # of the controller that wrote it
    recovering: bool = False  # elected by an unclean election, and not recovered yet


# What nearly all of them look like. A controller reads and writes hundreds of thousands.
_COMMON_STATE = re.compile(
    rb'{"controller_epoch":N,"leader":(-1|N),"version":1,"leader_epoch":N,"isr":\[(N(?:,N)*)\]}'.replace(
        b":N", rb":(N)"
    ).replace(b"N", rb"(?:0|[1-9][0-9]{0,8})")
)


def encode_state(state: PartitionStateNode) -> bytes:
    leader, leader_epoch, isr, controller_epoch, recovering = state
    recovery = '"leader_recovery_state":1,' if recovering else ""
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,{recovery}'
        f'"leader_epoch":{leader_epoch},"isr":[{",".join(map(str, isr))}]}}'
    ).encode()


def decode_state(tp: TopicPartition, data: bytes) -> PartitionStateNode:
    if (match := _COMMON_STATE.fullmatch(data)) is not None:
        controller_epoch, leader, leader_epoch, isr = match.groups()
        return PartitionStateNode(
            int(leader), int(leader_epoch), tuple(map(int, isr.split(b","))), int(controller_epoch)
        )
    fields = loads(state_path(tp), data)
    recovery = fields.integer("leader_recovery_state", 0)
    if recovery not in (0, 1):
        raise fields.malformed(f"leader_recovery_state {recovery} is neither 0, recovered, nor 1, recovering")
    return PartitionStateNode(
        fields.integer("leader"),
        fields.integer("leader_epoch"),
        fields.integers("isr"),
        fields.integer("controller_epoch"),
        recovery == 1,
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    return dumps({"version": 1, "config": {name: config[name] for name in hash_order.properties(config)}})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Returns {} for an empty node: that of a user with settings for some clients only."""
    if not data:
        return {}
    config = loads(path, data).fields("config")
    return {name: config.string(name) for name in config.names()}


def encode_config_change(entity: str) -> bytes:
    """`entity` is the path below /config: topics/t, users/<default>/clients/c."""
    return dumps({"version": 2, "entity_path": entity})


def decode_config_change(path: str, data: bytes) -> str:
    """The path, below /config, of the entity whose settings have changed."""
    fields = loads(path, data)
    version = fields.integer("version")
    if version == 1:
        entity = f"{fields.string('entity_type')}/{fields.string('entity_name')}"
    elif version == 2:
        entity = fields.string("entity_path")
    else:
        raise fields.malformed(f"version {version}, expected 1 or 2")
    kind, _, name = entity.partition("/")
    if kind not in CONFIG_TYPES or not name:
        raise fields.malformed(f"{entity!r} names no entity; one starts with {', '.join(CONFIG_TYPES)}")
    return entity


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    """The partitions of an ISR change, or of a preferred replica election."""
    items = loads(path, data).list_of_fields("partitions")
    return [TopicPartition(item.string("topic"), item.integer("partition")) for item in items]


def encode_reassignment(reassignment: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> bytes:
    items = [{"topic": tp.topic, "partition": tp.partition, "replicas": to} for tp, to in reassignment.items()]
    return dumps({"version": 1, "partitions": items})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    items = loads(REASSIGN_PARTITIONS, data).list_of_fields("partitions")
    return {
        TopicPartition(item.string("topic"), item.integer("partition")): item.integers("replicas") for item in items
    }


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """A log directory of this broker has failed. This is event 1, the only one."""
    return dumps({"version": 1, "broker": broker, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> BrokerId:
    return loads(path, data).integer("broker")


def encode_cluster_id(id: str) -> bytes:
    return dumps({"version": "1", "id": id})


def decode_cluster_id(data: bytes) -> str:
    return loads(CLUSTER_ID, data).string("id")


class ProducerIdBlock(NamedTuple):
    broker: BrokerId
    first: ProducerId
    last: ProducerId


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return dumps({"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)})


def decode_producer_id_block(data: bytes) -> ProducerIdBlock | None:
    """None if no block was assigned yet."""
    if not data:
        return None
    fields = loads(PRODUCER_ID_BLOCK, data)
    return ProducerIdBlock(fields.integer("broker"), fields.long("block_start"), fields.long("block_end"))


def encode_consumer_offset(offset: Offset) -> bytes:
    return str(offset).encode()


def decode_consumer_offset(path: str, data: bytes) -> Offset:
    try:
        return int(data)
    except ValueError:
        raise MalformedNode(path, "not a number") from None
