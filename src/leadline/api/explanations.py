"""What this broker knows of a partition that it holds, for a person: where it is, and what happened to it lately.

Beyond Kafka: a read-only setting of a broker, `leadline.replication.TOPIC-PARTITION`, which is told only when it is
asked for by this name. Its value is a JSON object:
    broker, now_ms              who tells it, and what its clock says: all times are by it
    leader, leader_epoch        as the controller told last; a leader of -1: nobody
    log_start, log_end, high_watermark, last_stable_offset
    size_bytes                  of the log on disk
    epochs                      a list of [epoch, start offset], the oldest first
    leads                       null, unless it does:
        replicas, isr           as the controller decided
        asked_isr               what the controller is asked for, or null
        min_isr                 min.insync.replicas
        followers               a list of objects: id, log_end (-1: has not fetched yet), fetched_ms and caught_up_ms,
                                when it last did and was
    follows                     null, unless it does: state, offset (the next to fetch), why (it rests or failed, or "")
    history                     see `replication.history`: elections, isr_changes, truncations, the newest last
"""

import json
from collections.abc import Collection, Iterator

from leadline.api.context import Services
from leadline.config.describe import ConfigEntry, ConfigSource
from leadline.config.values import ConfigType
from leadline.model import BrokerId, Offset, TopicPartition
from leadline.replication.follower import FetchState, FollowerState
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.partition import FollowerProgress, LeaderState

PREFIX = "leadline.replication."


def explanations(names: Collection[str] | None, services: Services) -> Iterator[ConfigEntry]:
    """Of the partitions that are asked for and held."""
    for name in names or ():
        topic, _, number = name.removeprefix(PREFIX).rpartition("-")
        if name.startswith(PREFIX) and number.isdecimal():
            hosted = services.replicas.hosted.get(TopicPartition(topic, int(number)))
            if hosted is not None:
                yield ConfigEntry(
                    name=name,
                    value=json.dumps(told(hosted, services.metadata.me.id, services.clock.now_ms())),
                    source=ConfigSource.DEFAULT,
                    read_only=True,
                    sensitive=False,
                    synonyms=(),
                    kind=ConfigType.STRING,
                    documentation="what this broker knows of a partition that it holds, a JSON object",
                )


def told(hosted: HostedPartition, me: BrokerId, now_ms: int) -> dict[str, object]:
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
        "leads": None if hosted.leader_state is None else _leads(hosted.leader_state),
        "follows": None if hosted.follower_state is None else _follows(hosted.follower_state, now_ms),
        "history": hosted.history.as_values(),
    }


def _leads(leader: LeaderState) -> dict[str, object]:
    return {
        "replicas": leader.replicas,
        "isr": leader.isr,
        "asked_isr": None if leader.pending is None else leader.pending.proposed.isr,
        "min_isr": leader.min_isr,
        "followers": [_follower(id, each, leader.log_end) for id, each in leader.followers.items()],
    }


def _follower(id: BrokerId, follower: FollowerProgress, log_end: Offset) -> dict[str, object]:
    """One that has everything does not say so with each fetch: that it is heard at all is enough."""
    fetched_ms = (
        follower.fetched_ms
        if follower.last_contact is None
        else max(follower.fetched_ms, follower.last_contact.last_ms)
    )
    caught_up_ms = fetched_ms if follower.log_end == log_end else follower.caught_up_ms
    return {"id": id, "log_end": follower.log_end, "fetched_ms": fetched_ms, "caught_up_ms": caught_up_ms}


def _follows(following: FollowerState, now_ms: int) -> dict[str, object]:
    is_idle = now_ms < following.rests_until_ms or following.state is FetchState.FAILED
    return {"state": following.state.name, "offset": following.offset, "why": following.why if is_idle else ""}
