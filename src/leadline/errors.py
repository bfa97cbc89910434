"""Errors that say whose fault it is.

`WireError` is an answer for a client: it carries Kafka's own code. Everything else here is the disk's fault or a
file's, and never reaches a client as it is.
"""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple


class WireError(Exception):
    """The response to a client: Kafka's error code, and a message with the value, the limit and the setting."""

    code: ClassVar[int]
    retriable: ClassVar[bool] = False
    default_message: ClassVar[str] = ""  # Kafka's message where it gives no reason


class UnknownServerError(WireError):
    code = -1
    default_message = "The server experienced an unexpected error when processing the request."


class OffsetOutOfRange(WireError):
    code = 1


class CorruptMessage(WireError):
    code, retriable = 2, True


class UnknownTopicOrPartition(WireError):
    code, retriable = 3, True
    default_message = "This server does not host this topic-partition."


class LeaderNotAvailable(WireError):
    code, retriable = 5, True


class NotLeaderOrFollower(WireError):
    code, retriable = 6, True


class RequestTimedOut(WireError):
    code, retriable = 7, True


class BrokerNotAvailable(WireError):
    code = 8


class RecordTooLarge(WireError):
    code = 10


class StaleControllerEpoch(WireError):
    code = 11


class OffsetMetadataTooLarge(WireError):
    code = 12


class NetworkException(WireError):
    """The connection broke before an answer came."""

    code, retriable = 13, True


class CoordinatorLoadInProgress(WireError):
    code, retriable = 14, True


class CoordinatorNotAvailable(WireError):
    code, retriable = 15, True


class NotCoordinator(WireError):
    code, retriable = 16, True


class InvalidTopic(WireError):
    code = 17


class RecordListTooLarge(WireError):
    code = 18


class NotEnoughReplicas(WireError):
    code, retriable = 19, True


class NotEnoughReplicasAfterAppend(WireError):
    code, retriable = 20, True


class InvalidRequiredAcks(WireError):
    code = 21


class IllegalGeneration(WireError):
    code = 22


class InconsistentGroupProtocol(WireError):
    code = 23


class InvalidGroupId(WireError):
    code = 24


class UnknownMemberId(WireError):
    code = 25


class InvalidSessionTimeout(WireError):
    code = 26


class RebalanceInProgress(WireError):
    code = 27


class InvalidCommitOffsetSize(WireError):
    code = 28


class TopicAuthorizationFailed(WireError):
    code = 29


class GroupAuthorizationFailed(WireError):
    code = 30


class ClusterAuthorizationFailed(WireError):
    code = 31


class UnsupportedSaslMechanism(WireError):
    code = 33


class IllegalSaslState(WireError):
    code = 34


class UnsupportedVersion(WireError):
    code = 35


class TopicAlreadyExists(WireError):
    code = 36


class InvalidPartitions(WireError):
    code = 37


class InvalidReplicationFactor(WireError):
    code = 38


class InvalidReplicaAssignment(WireError):
    code = 39


class InvalidConfig(WireError):
    code = 40


class NotController(WireError):
    code, retriable = 41, True


class InvalidRequest(WireError):
    code = 42
    default_message = (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    )


class UnsupportedForMessageFormat(WireError):
    code = 43


class PolicyViolation(WireError):
    code = 44


class OutOfOrderSequence(WireError):
    code = 45


class InvalidProducerEpoch(WireError):
    code = 47


class InvalidTxnState(WireError):
    code = 48


class InvalidProducerIdMapping(WireError):
    code = 49


class InvalidTransactionTimeout(WireError):
    code = 50


class ConcurrentTransactions(WireError):
    code, retriable = 51, True


class TransactionCoordinatorFenced(WireError):
    code = 52


class TransactionalIdAuthorizationFailed(WireError):
    code = 53


class SecurityDisabled(WireError):
    code = 54


class OperationNotAttempted(WireError):
    code = 55


class StorageError(WireError):
    """The partition is offline: its log directory failed, or a file of its own cannot be used."""

    code, retriable = 56, True


class ResourceExhausted(StorageError):
    """Descriptors, disk space, memory or threads ran out: this one request fails, and nothing goes offline."""


class LogDirNotFound(WireError):
    code = 57


class SaslAuthenticationFailed(WireError):
    code = 58


class DelegationTokenAuthDisabled(WireError):
    code = 61


class DelegationTokenNotFound(WireError):
    code = 62


class DelegationTokenOwnerMismatch(WireError):
    code = 63


class DelegationTokenRequestNotAllowed(WireError):
    code = 64


class DelegationTokenAuthorizationFailed(WireError):
    code = 65


class DelegationTokenExpired(WireError):
    code = 66


class InvalidPrincipalType(WireError):
    code = 67


class NonEmptyGroup(WireError):
    code = 68


class GroupIdNotFound(WireError):
    code = 69


class FetchSessionIdNotFound(WireError):
    code, retriable = 70, True


class InvalidFetchSessionEpoch(WireError):
    code, retriable = 71, True


class TopicDeletionDisabled(WireError):
    code = 73


class FencedLeaderEpoch(WireError):
    code, retriable = 74, True


class UnknownLeaderEpoch(WireError):
    code, retriable = 75, True


class UnsupportedCompressionType(WireError):
    code = 76


class StaleBrokerEpoch(WireError):
    code = 77


class OffsetNotAvailable(WireError):
    """The leader is new, and does not know yet how far its records are safe."""

    code, retriable = 78, True


class MemberIdRequired(WireError):
    code = 79


class PreferredLeaderNotAvailable(WireError):
    code, retriable = 80, True


class GroupMaxSizeReached(WireError):
    code = 81


class FencedInstanceId(WireError):
    code = 82


class EligibleLeadersNotAvailable(WireError):
    code, retriable = 83, True


class ElectionNotNeeded(WireError):
    code, retriable = 84, True
    default_message = "Leader election not needed for topic partition."


class NoReassignmentInProgress(WireError):
    code = 85
    default_message = "No partition reassignment is in progress."


class GroupSubscribedToTopic(WireError):
    code = 86


class UnstableOffsetCommit(WireError):
    code, retriable = 88, True


class ThrottlingQuotaExceeded(WireError):
    code, retriable = 89, True


class ProducerFenced(WireError):
    code = 90


class ResourceNotFound(WireError):
    code = 91


class DuplicateResource(WireError):
    code = 92


class UnacceptableCredential(WireError):
    code = 93


class InvalidUpdateVersion(WireError):
    code = 95


class UnknownTopicId(WireError):
    code, retriable = 100, True


class BrokerIdNotRegistered(WireError):
    code = 102


class InconsistentTopicId(WireError):
    code, retriable = 103, True


class TransactionalIdNotFound(WireError):
    code = 105


class FetchSessionTopicIdError(WireError):
    code, retriable = 106, True


class IneligibleReplica(WireError):
    code = 107


class NewLeaderElected(WireError):
    code = 108


class TransactionAbortable(WireError):
    code = 120


class RecordError(NamedTuple):
    """One record of a batch that was refused, by its place in the batch."""

    batch_index: int
    message: str

    def __str__(self) -> str:
        """As in Kafka's messages."""
        return f"RecordError(batchIndex={self.batch_index}, message='{self.message}')"


class RecordsRefused(WireError):
    """A whole batch refused for the sake of some of its records."""

    def __init__(self, message: str, records: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.records = records


class InvalidTimestamp(RecordsRefused):
    code = 32


class InvalidRecord(RecordsRefused):
    code = 87


class UnexpectedAppendOffset(Exception):
    """A leader sent records that this follower already has."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset, self.last_offset = first_offset, last_offset


UNUSABLE_REMEDY = "make it a file that this user can read and write"
UNUSABLE_DIR_REMEDY = "make it a directory that this user can write to, or set log.dirs to another one"
MISSING_REMEDY = "restore it from a copy; a start without it goes on with what the other files hold"


class CorruptFile(Exception):
    """A file whose bytes are not what its format says: names the path, the position and what is wrong there."""

    def __init__(self, path: str, position: int, reason: str, remedy: str = "") -> None:
        super().__init__(f"{path}: at byte {position}: {reason}")
        self.path, self.position, self.reason, self.remedy = path, position, reason, remedy


class UnopenedLog(CorruptFile):
    """A log that a shortage kept from being opened: its files may all be in order."""

    def __init__(self, directory: str, lacking: str) -> None:
        super().__init__(directory, 0, lacking, "nothing but that")
        self.args = (f"{directory} could not be opened: {lacking}",)


class UnusableFile(CorruptFile):
    """A file that the system does not let us read or write, while others beside it are in order."""

    def __init__(self, path: str, error: OSError) -> None:
        remedy = MISSING_REMEDY if isinstance(error, FileNotFoundError) else UNUSABLE_REMEDY
        super().__init__(path, 0, error.strerror or str(error), remedy)
        self.args = (f"{path}: {self.reason}",)


class LogDirFailed(Exception):
    """A disk said no. The directory goes offline and stays so until the next start."""

    def __init__(self, directory: str, doing: str, error: BaseException, text: str | None = None) -> None:
        super().__init__(text or f"log directory {directory} failed while {doing}: {error}")
        self.directory, self.doing, self.error = directory, doing, error


class InconsistentIdentity(Exception):
    """A log directory belongs to another broker or to another cluster. Says what helps."""


class LogDirLocked(Exception):
    """Another broker works in this log directory."""


# The names of Kafka 3.8, by code. Not every code has a class: a broker with ZooKeeper does not return them all.
_NAMES = """
    UNKNOWN_SERVER_ERROR NONE OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE
    LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
    MESSAGE_TOO_LARGE STALE_CONTROLLER_EPOCH OFFSET_METADATA_TOO_LARGE NETWORK_EXCEPTION
    COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR INVALID_TOPIC_EXCEPTION
    RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS
    ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT
    REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED
    CLUSTER_AUTHORIZATION_FAILED INVALID_TIMESTAMP UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE UNSUPPORTED_VERSION
    TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG
    NOT_CONTROLLER INVALID_REQUEST UNSUPPORTED_FOR_MESSAGE_FORMAT POLICY_VIOLATION OUT_OF_ORDER_SEQUENCE_NUMBER
    DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING
    INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR
    LOG_DIR_NOT_FOUND SASL_AUTHENTICATION_FAILED UNKNOWN_PRODUCER_ID REASSIGNMENT_IN_PROGRESS
    DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED
    INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH
    LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE
    STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE GROUP_MAX_SIZE_REACHED
    FENCED_INSTANCE_ID ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS
    GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED PRODUCER_FENCED
    RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION
    FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE
    UNKNOWN_TOPIC_ID DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID
    INCONSISTENT_CLUSTER_ID TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR INELIGIBLE_REPLICA
    NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID
    UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID
    UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_REGISTRATION TRANSACTION_ABORTABLE
""".split()
ERROR_NAMES = dict(enumerate(_NAMES, start=UnknownServerError.code))


def error_name(code: int) -> str:
    """The number itself, if it is not one of Kafka 3.8."""
    return ERROR_NAMES.get(code, str(code))


def _all_below(kind: type[WireError]) -> Iterator[type[WireError]]:
    for below in kind.__subclasses__():
        yield below
        yield from _all_below(below)


BY_CODE = {kind.code: kind for kind in _all_below(WireError) if "code" in vars(kind)}  # each code has one class


def by_code(code: int, message: str) -> WireError:
    """The error with a code that another broker answered."""
    return BY_CODE.get(code, UnknownServerError)(message)
