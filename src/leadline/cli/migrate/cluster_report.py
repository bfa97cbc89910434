"""What a running cluster reports about itself: its brokers with their settings and requests, its topics, its moves.

Pure: values.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leadline.model import NO_LEADER, BrokerId, TopicPartition


class ReportedSetting(NamedTuple):
    name: str
    value: str | None  # None: it has none, or it is secret
    is_default: bool


class ReportedBroker(NamedTuple):
    id: BrokerId
    versions: Mapping[int, range]  # of the requests that it serves, by key
    features: Mapping[str, int]  # the finalized ones, with their levels
    settings: Sequence[ReportedSetting]
    problem: str = ""  # why it reports nothing


class ReportedPartition(NamedTuple):
    tp: TopicPartition
    leader: BrokerId
    replicas: Sequence[BrokerId]
    isr: Sequence[BrokerId]


class ReportedTopic(NamedTuple):
    name: str
    partitions: Sequence[ReportedPartition]
    settings: Mapping[str, str]  # its own
    min_insync_replicas: int


class ClusterReport(NamedTuple):
    brokers: Sequence[ReportedBroker]
    topics: Sequence[ReportedTopic]
    reassigning: Sequence[TopicPartition]
    controller: BrokerId = NO_LEADER
    problems: Sequence[str] = ()  # requests that failed

    @property
    def order(self) -> list[BrokerId]:
        """The order in which brokers are replaced. The controller comes last, so that one election is enough."""
        return sorted((broker.id for broker in self.brokers), key=lambda id: (id == self.controller, id))
