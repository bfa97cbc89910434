"""The progress of a group: its committed offsets beside the log ends."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.admin.group import GroupDescription, MemberDescription
from leadline.admin.kafka_python.admin import KafkaPythonAdmin
from leadline.admin.kafka_python.groups import describe_group, list_groups
from leadline.admin.leaders import partitions_with_leader
from leadline.admin.offsets import committed_by, list_offsets
from leadline.admin.partitions import PartitionOffset
from leadline.config.settings import nearest
from leadline.model import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group in a partition."""

    tp: TopicPartition
    committed: PartitionOffset | None
    log_end: Offset | None  # None: the partition was deleted, or its leader does not answer
    owner: MemberDescription | None  # the member that it is assigned to

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return max(self.log_end - self.committed.offset, 0)


def group_names(client: KafkaPythonAdmin, names: Sequence[str]) -> list[str]:
    """These groups without duplicates, or all. A Failure if one does not exist."""
    group_ids = [listing.group_id for listing in list_groups(client)]
    for name in names:
        if name not in group_ids:
            describe_group(client, name)  # a Failure if its coordinator does not answer: the group may exist
            raise Failure(f"there is no group {name}{nearest(name, group_ids)}")
    return list(dict.fromkeys(names)) or group_ids


def progress(connection: ClusterConnection, admin: "AdminClient", group: GroupDescription) -> list[GroupProgress]:
    """One for each partition with a committed offset or an owner."""
    committed = committed_by(connection, admin, group.group_id)
    owners = {tp: member for member in group.members for tp in member.partitions}
    partitions = sorted(committed.keys() | owners.keys())
    ends = list_offsets(connection, admin, partitions_with_leader(connection, admin, partitions), "latest")
    return [GroupProgress(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in partitions]


def lags(connection: ClusterConnection, admin: "AdminClient", groups: Iterable[str]) -> dict[str, int]:
    """The total lag of each group. A group whose offsets cannot be read is left out."""
    committed: dict[str, dict[TopicPartition, PartitionOffset]] = {}
    for group in groups:
        with suppress(Failure):
            committed[group] = committed_by(connection, admin, group)
    partitions = {tp for offsets in committed.values() for tp in offsets}
    ends = list_offsets(connection, admin, partitions_with_leader(connection, admin, partitions), "latest")
    return {
        group: total_lag(GroupProgress(tp, at, ends.get(tp), None) for tp, at in offsets.items())
        for group, offsets in committed.items()
    }


def total_lag(partitions: Iterable[GroupProgress]) -> int:
    return sum(partition.lag or 0 for partition in partitions)
