"""The state of a partition that this broker hosts, and its recent history, for administrators.

Kafka has nothing like it: a read-only setting of a broker, `leadline.replication.TOPIC-PARTITION`, which is returned
only if a request has this name. Its value is a JSON object:
    broker, now_ms              this broker, and its clock: all times are by it
    leader, leader_epoch        as the controller decided last; a leader of -1: none
    log_start, log_end, high_watermark, last_stable_offset
    size_bytes                  of the log on disk
    epochs                      a list of [epoch, start offset], the oldest first
    leads                       null, unless this broker is the leader:
        replicas, isr           as the controller decided
        asked_isr               the ISR that the leader has requested from the controller, or null
        min_isr                 min.insync.replicas
        followers               a list of objects: id, log_end (-1: has not fetched yet), fetched_ms (the last fetch)
                                and caught_up_ms (the last time at which it had caught up)
    follows                     null, unless this broker is a follower: state, offset (the next to fetch), why (the
                                reason of a pause or failure, or "")
    offline                     null, or why nothing can be read here
    history                     elections, isr_changes, truncations, the newest last: see `replication.history`
"""

import json
from collections.abc import Collection, Iterator

from leadline.config.describe import ConfigEntry, ConfigSource
from leadline.config.values import ConfigType
from leadline.model import BrokerId, Offset, TopicPartition
from leadline.replication.follower import FetchState, FollowerState
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.partition import FollowerProgress, LeaderState
from leadline.replication.replicas import Replicas

PREFIX = "leadline.replication."


def explanations(names: Collection[str] | None, replicas: Replicas, now_ms: int) -> Iterator[ConfigEntry]:
    """Explains the partitions that are named and hosted here."""
    for name in names or ():
        topic, _, number = name.removeprefix(PREFIX).rpartition("-")
        if name.startswith(PREFIX) and number.isdecimal():
            hosted = replicas.hosted.get(TopicPartition(topic, int(number)))
            if hosted is not None:
                yield ConfigEntry(
                    name=name,
                    value=json.dumps(explain(hosted, replicas.me, now_ms)),
                    source=ConfigSource.DEFAULT,
                    read_only=True,
                    sensitive=False,
                    synonyms=(),
                    kind=ConfigType.STRING,
                    documentation="the state of a partition that this broker hosts, a JSON object",
                )


def explain(hosted: HostedPartition, me: BrokerId, now_ms: int) -> dict[str, object]:
    log = hosted.log
    return {
        "broker": me,
        "now_ms": now_ms,
        "leader": hosted.leader_id,
        "leader_epoch": hosted.epoch,
        "log_start": log.log_start,
        "log_end": log.log_end,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "size_bytes": log.size,
        "epochs": [list(entry) for entry in log.epochs.entries],
        "leads": None if hosted.leader_state is None else _explain_leader(hosted.leader_state),
        "follows": None if hosted.follower_state is None else _explain_follower(hosted.follower_state),
        "offline": log.why_offline or None,
        "history": hosted.history.as_values(),
    }


def _explain_leader(leader: LeaderState) -> dict[str, object]:
    return {
        "replicas": leader.replicas,
        "isr": leader.isr,
        "asked_isr": None if leader.pending is None else leader.pending.proposed.isr,
        "min_isr": leader.min_isr,
        "followers": [_progress(id, follower, leader.log_end) for id, follower in leader.followers.items()],
    }


def _progress(id: BrokerId, follower: FollowerProgress, log_end: Offset) -> dict[str, object]:
    """A follower that has caught up does not fetch all the time: any contact counts as a fetch."""
    fetched_ms = (
        follower.fetched_ms
        if follower.last_contact is None
        else max(follower.fetched_ms, follower.last_contact.last_ms)
    )
    caught_up_ms = fetched_ms if follower.log_end == log_end else follower.caught_up_ms
    return {"id": id, "log_end": follower.log_end, "fetched_ms": fetched_ms, "caught_up_ms": caught_up_ms}


def _explain_follower(following: FollowerState) -> dict[str, object]:
    is_in_trouble = following.rest_ms > 0 or following.state is FetchState.FAILED
    return {"state": following.state.name, "offset": following.offset, "why": following.why if is_in_trouble else ""}
