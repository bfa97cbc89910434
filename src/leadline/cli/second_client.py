"""What librdkafka cannot ask a cluster for: transactions, the producers of a partition, to forget one offset, moves of
partitions between brokers, and what their disks hold.

The client here is kafka-python's, which has no types: what it answers becomes ours in this file. It is reached with the
same properties as librdkafka; what it has no word for, of all that concerns security, is refused by name.
"""
# mypy: disable-error-code="import-untyped"

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from leadline.cli.client import LEAST_S, ClusterConnection, Failure
from leadline.cli.explanation import Explanation
from leadline.cli.known_groups import CONSUMER, GroupDescription, GroupListing, MemberDescription
from leadline.cli.open_transactions import OpenTransaction, TransactionDescription
from leadline.cli.reassignment_plan import OngoingReassignment
from leadline.cli.terminal import host_text
from leadline.model import BrokerId, LeaderEpoch, Offset, TopicPartition

T = TypeVar("T")

RETRY_S = 0.1
GROUP, TRANSACTION = 0, 1  # Kafka's types of coordinators
EXPLANATION = "leadline.replication."
AT_ONCE = 500  # partitions in one request
NAMES = {
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
SECURITY = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")


def settings_for(properties: Mapping[str, str]) -> dict[str, object]:
    """Properties of librdkafka in kafka-python's words. How it batches and caches does not concern this one."""
    found: dict[str, object] = {}
    for name, value in properties.items():
        if name in NAMES:
            found[NAMES[name]] = value.upper() if name == "security.protocol" else value
        elif name == HOSTNAME_CHECK:
            found["ssl_check_hostname"] = value.lower() != "none"
        elif name.startswith(SECURITY):
            raise Failure(f"{name}: this command cannot use it; it can use {', '.join(NAMES)} and {HOSTNAME_CHECK}")
    return found


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class LogDirReplica(NamedTuple):
    """A replica in a log directory."""

    path: str
    size_bytes: int
    lag: int  # records that it lacks, as far as its broker knows
    is_future: bool  # on its way to this directory


class ElectionResult(NamedTuple):
    elected: list[TopicPartition]
    not_needed: list[TopicPartition]
    failed: dict[TopicPartition, str]  # why


@contextmanager
def kafka_python_admin(connection: ClusterConnection) -> Iterator["KafkaPythonAdmin"]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what goes wrong is told once, by the command
    client = _started(connection)
    try:
        yield KafkaPythonAdmin(client, connection)
    finally:
        client.close()


def _started(connection: ClusterConnection) -> Any:
    """A client that found the cluster, through the broker that answered before: others may be silent."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    at = connection.answered
    servers = connection.servers.split(",") if at is None else f"{host_text(at.host)}:{at.port}"
    for timeout_s in (connection.left_s / 2, None):  # its first attempt may hang where its second does not
        try:
            return KafkaAdminClient(
                bootstrap_servers=servers,
                request_timeout_ms=round(connection.left_s * 1000),
                bootstrap_timeout_ms=round((timeout_s or connection.left_s) * 1000),
                **settings_for(connection.properties),
            )
        except (KafkaError, ValueError, AssertionError) as error:
            if timeout_s is None or not isinstance(error, KafkaError):
                raise Failure(f"cannot reach {connection.servers}: {error}") from None
    raise AssertionError


class KafkaPythonAdmin:
    """Never asks a broker that is known to be silent: it would be waited for."""

    def __init__(self, admin: object, connection: ClusterConnection) -> None:
        from kafka import KafkaAdminClient

        assert isinstance(admin, KafkaAdminClient)
        self._admin, self._connection = admin, connection
        for broker in self.answering[:1]:  # where any broker will do, it asks one that it is connected to
            self._connect(broker)

    @property
    def answering(self) -> list[BrokerId]:
        return sorted(self._connection.brokers.keys() - self._connection.silent.keys())

    def _connect(self, broker: BrokerId) -> None:
        from kafka.errors import KafkaError

        manager = self._admin._manager

        async def connect() -> None:
            await manager.get_connection(broker)

        with suppress(KafkaError):  # what is wrong with it is told by who asks it
            manager.run(connect)

    def _asked(self, what: str, ask: Callable[[], T], broker: BrokerId | None = None) -> T:
        """The answer, also if it takes some attempts: a coordinator may be loading, a leader may be on its way.

        `broker`: who alone can tell, if that is known.
        """
        from kafka.errors import KafkaError

        if broker in (silent := self._connection.silent):
            raise Failure(f"{what}: {silent[broker]}")
        while True:
            try:
                return ask()
            except KafkaError as error:
                if not error.retriable or self._connection.left_s <= LEAST_S:
                    raise Failure(f"{what}: {error_text(error)}") from None
            time.sleep(RETRY_S)

    def _asked_controller(self, what: str, ask: Callable[[], T]) -> T:
        return self._asked(f"{what}, which the controller tells", ask, self._connection.controller)

    def _asked_each(self, what: str, ask: Callable[[BrokerId], T], brokers: Iterable[BrokerId]) -> dict[BrokerId, T]:
        """What each of some brokers answers; of those that are silent nothing.

        One after the other, which costs little, as all of them answer: requests of several threads at once may stay
        unanswered by this client (kafka-python 3.0.12).
        """
        return {
            broker: self._asked(f"{what} of broker {broker}", partial(ask, broker))
            for broker in brokers
            if broker not in self._connection.silent
        }

    def transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """What every broker knows as coordinator; no filter: everything."""
        answers = self._asked_each(
            "transactions",
            lambda broker: self._admin.list_transactions(
                broker_ids=[broker],
                state_filters=list(states),
                producer_id_filters=list(producer_ids),
                duration_filter_ms=longer_than_ms,
            ),
            self.answering,
        )
        found = [
            TransactionListing(each.transactional_id, broker, each.producer_id, each.state.value)
            for answer in answers.values()
            for broker, listings in answer.items()
            for each in listings
        ]
        return sorted(found, key=lambda each: each.transactional_id)

    def transaction(self, transactional_id: str) -> TransactionDescription | None:
        """As its coordinator describes it; None if that does not know it."""
        from kafka.errors import TransactionalIdNotFoundError

        def ask() -> TransactionDescription | None:
            try:
                answer = self._admin.describe_transactions([transactional_id])[transactional_id]
            except TransactionalIdNotFoundError:
                return None
            return TransactionDescription(
                transactional_id=transactional_id,
                coordinator=answer.coordinator_id,
                state=answer.state.value,
                producer_id=answer.producer_id,
                epoch=answer.producer_epoch,
                timeout_ms=answer.transaction_timeout_ms,
                started_ms=answer.transaction_start_time_ms if answer.transaction_start_time_ms >= 0 else None,
                partitions=frozenset(TopicPartition(tp.topic, tp.partition) for tp in answer.topic_partitions),
            )

        what = f"transactional id {transactional_id}"
        coordinator = self._coordinator(what, transactional_id, TRANSACTION)
        return self._asked(what, ask, coordinator)

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
        """The transactions that are open in these partitions, as their leaders know them."""
        found: list[OpenTransaction] = []
        for n in range(0, len(partitions), AT_ONCE):
            found += self._open_transactions(partitions[n : n + AT_ONCE])
        return sorted(found, key=lambda each: (each.tp, each.start_offset))

    def _open_transactions(self, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
        from kafka import TopicPartition as Theirs

        asked = [Theirs(*tp) for tp in partitions]
        answers = self._asked("producers", lambda: self._admin.describe_producers(asked))
        return [
            OpenTransaction(
                tp=TopicPartition(theirs.topic, theirs.partition),
                producer_id=each.producer_id,
                epoch=each.producer_epoch,
                coordinator_epoch=each.coordinator_epoch,
                start_offset=each.current_transaction_start_offset,
                last_ms=each.last_timestamp,
            )
            for theirs, state in answers.items()
            for each in state.active_producers
            if each.current_transaction_start_offset >= 0
        ]

    def abort(self, tp: TopicPartition, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Write an abort marker into a partition."""
        from kafka import TopicPartition as Theirs
        from kafka.admin import AbortTransactionSpec

        marker = AbortTransactionSpec(Theirs(*tp), producer_id, epoch, coordinator_epoch)
        self._asked(f"{tp}", lambda: self._admin.abort_transaction(marker))

    def forget_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[str]:
        """Delete what a group has committed for some partitions; what went wrong, one line a partition."""
        from kafka import TopicPartition as Theirs
        from kafka.errors import NoError

        asked = [Theirs(*tp) for tp in partitions]
        answers = self._asked(f"group {group}", lambda: self._admin.delete_group_offsets(group, asked))
        return [
            f"{tp.topic}-{tp.partition}: {error_text(error())}" for tp, error in answers.items() if error is not NoError
        ]

    def elect(self, partitions: Collection[TopicPartition], *, unclean: bool) -> ElectionResult:
        """Elect leaders: the preferred ones, or where nobody leads any that is there.

        confluent-kafka has a call for it, which fails before it asks (2.16: SystemError).
        """
        from kafka.errors import ElectionNotNeededError, NoError, NotControllerError, for_code

        asked: dict[str, list[int]] = {}
        for tp in partitions:
            asked.setdefault(tp.topic, []).append(tp.partition)

        def ask() -> ElectionResult:
            try:
                answer = self._admin.elect_leaders(int(unclean), asked, raise_errors=False)
            except RuntimeError as error:  # whom it took for the controller is not, twice
                raise NotControllerError(str(error)) from None
            found = ElectionResult([], [], {})
            for topic in answer.replica_election_results:
                for part in topic.partition_result:
                    tp, wrong = TopicPartition(topic.topic, part.partition_id), for_code(part.error_code)
                    if wrong is NoError:
                        found.elected.append(tp)
                    elif wrong is ElectionNotNeededError:
                        found.not_needed.append(tp)
                    else:
                        found.failed[tp] = f"{part.error_message or wrong.description} ({wrong.message})"
            return found

        return self._asked_controller("elections", ask)

    def racks(self) -> dict[BrokerId, str | None]:
        """The brokers that are there, and the rack of each."""
        found = self._asked("the cluster", self._admin.describe_cluster)
        return {broker["broker_id"]: broker["rack"] for broker in found["brokers"]}

    def reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        """All partitions that are on their way to other brokers."""
        answers = self._asked_controller("reassignments", self._admin.list_partition_reassignments)
        return {
            TopicPartition(tp.topic, tp.partition): OngoingReassignment(
                each["replicas"], each["adding_replicas"], each["removing_replicas"]
            )
            for tp, each in sorted(answers.items())
        }

    def reassign(self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]) -> list[str]:
        """Send partitions to other brokers, or, with None, back; what went wrong, one line a partition."""
        from kafka import TopicPartition as Theirs

        asked = {Theirs(*tp): None if replicas is None else list(replicas) for tp, replicas in targets.items()}
        answers = self._asked_controller("reassignments", lambda: self._admin.alter_partition_reassignments(asked))
        return [
            f"{tp.topic}-{tp.partition}: {error_text(error())}"
            for tp, error in sorted(answers.items())
            if error is not None
        ]

    def on_disk(self, brokers: Collection[BrokerId]) -> dict[BrokerId, dict[TopicPartition, list[LogDirReplica]]]:
        """What the log directories of brokers hold. A directory that failed holds nothing; nor does a silent broker."""
        answers = self._asked_each(
            "log directories", lambda broker: self._admin.describe_log_dirs(brokers=[broker]), brokers
        )
        found: dict[BrokerId, dict[TopicPartition, list[LogDirReplica]]] = {}
        for answer in (answer for answer_of_one in answers.values() for answer in answer_of_one):
            held = found.setdefault(answer["broker"], {})
            for log_dir in answer["log_dirs"]:
                for topic in log_dir["topics"]:
                    for part in topic["partitions"]:
                        tp = TopicPartition(topic["name"], part["partition_index"])
                        held.setdefault(tp, []).append(
                            LogDirReplica(
                                log_dir["log_dir"], part["partition_size"], part["offset_lag"], part["is_future_key"]
                            )
                        )
        return found

    def explanations(
        self, held: Mapping[BrokerId, Collection[TopicPartition]]
    ) -> dict[BrokerId, dict[TopicPartition, Explanation]]:
        """What brokers tell of their partitions. Leadline's do, others tell nothing; silent ones are left out."""
        from kafka.admin import ConfigResource, ConfigResourceType

        names = {broker: {f"{EXPLANATION}{tp}": tp for tp in partitions} for broker, partitions in held.items()}

        def ask(broker: BrokerId) -> dict[TopicPartition, Explanation]:
            asked = [ConfigResource(ConfigResourceType.BROKER, str(broker), list(names[broker]))]
            entries = self._admin.describe_configs(asked, config_filter="all")["broker"][str(broker)]
            return {tp: json.loads(entries[name]["value"]) for name, tp in names[broker].items() if name in entries}

        here = [broker for broker in held if broker in self._connection.brokers]
        return self._asked_each("what it tells", ask, here)

    def _coordinator(self, what: str, key: str, kind: int) -> BrokerId:
        manager = self._admin._manager
        return int(self._asked(what, partial(manager.run, self._admin._find_coordinator_id, key, kind)))

    # Groups

    def groups(self, states: Collection[str] = ()) -> list[GroupListing]:
        """Of all protocol types, as their coordinators list them; by name."""
        answers = self._asked_each(
            "groups",
            lambda broker: self._admin.list_groups(broker_ids=[broker], states_filter=list(states) or None),
            self.answering,
        )
        found = [
            GroupListing(each["group_id"], each.get("group_state") or "Unknown", each["protocol_type"], broker)
            for broker, listings in answers.items()
            for each in listings
        ]
        return sorted(found, key=lambda each: each.group_id)

    def group(self, group_id: str) -> GroupDescription:
        """As its coordinator describes it; one that there is not is Dead, and has no members."""
        from kafka.errors import NoError, for_code
        from kafka.protocol.admin import DescribeGroupsRequest

        what = f"group {group_id}"
        coordinator = self._coordinator(what, group_id, GROUP)
        manager = self._admin._manager

        def ask() -> GroupDescription:
            answer = manager.run(manager.send, DescribeGroupsRequest(groups=[group_id]), coordinator)
            (told,) = answer.groups
            if (error := for_code(told.error_code)) is not NoError:
                raise error()
            members = [_member(each, told.protocol_type) for each in told.members]
            return GroupDescription(
                group_id, told.group_state, told.protocol_type, told.protocol_data, coordinator, members
            )

        return self._asked(what, ask, coordinator)

    def leader_epochs(self, topic: str) -> dict[TopicPartition, LeaderEpoch]:
        """Of each partition, as any broker knows it."""
        (found,) = self._asked(f"topic {topic}", lambda: self._admin.describe_topics([topic]))
        return {TopicPartition(topic, part["partition_index"]): part["leader_epoch"] for part in found["partitions"]}

    def epoch_starts(
        self, tp: TopicPartition, leader: BrokerId, epoch: LeaderEpoch, log_start: Offset
    ) -> list[tuple[LeaderEpoch, Offset]]:
        """The epochs that the leader's log knows, the oldest first, and where each starts.

        There is no call for it. A leader tells its followers where an epoch ends, or the last one before it: asked
        again and again, from its own epoch down, it tells all.
        """
        from kafka.protocol.consumer import OffsetForLeaderEpochRequest

        wanted_in = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        manager, ends = self._admin._manager, []
        while epoch >= 0:
            wanted = wanted_in.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=-1, leader_epoch=epoch
            )
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[wanted_in(topic=tp.topic, partitions=[wanted])]
            )
            answer = self._asked(str(tp), partial(manager.run, manager.send, request, leader), leader)
            told = answer.topics[0].partitions[0]
            if told.error_code or told.leader_epoch < 0:
                break
            ends.append((told.leader_epoch, told.end_offset))
            epoch = told.leader_epoch - 1
        starts = [*(end for _, end in ends[1:]), log_start]
        return [(found, start) for (found, _), start in zip(ends, starts, strict=False)][::-1]


def _member(told: Any, protocol_type: str) -> MemberDescription:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    assignment, partitions = bytes(told.member_assignment or b""), []
    if assignment and protocol_type == CONSUMER:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        partitions = [
            TopicPartition(topic.topic, number) for topic in decoded.assigned_partitions for number in topic.partitions
        ]
    return MemberDescription(
        told.member_id, told.client_id, told.client_host, told.group_instance_id, sorted(partitions), assignment
    )


def error_text(error: Exception) -> str:
    """What went wrong, with the name by which it can be looked up."""
    from kafka.errors import BrokerResponseError, NodeNotReadyError

    if isinstance(error, NodeNotReadyError):
        return f"broker {error.args[0] if error.args else ''} does not answer"
    if isinstance(error, BrokerResponseError):
        return f"{error.description.rstrip('.')} ({error.message})"
    return str(error)
