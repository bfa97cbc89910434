"""A follower over real logs: what it is told to do makes its files those of its leader, byte for byte."""

from pathlib import Path

import pytest

from leadline.errors import CorruptMessage, OffsetOutOfRange, UnexpectedAppendOffset
from leadline.log.log import Isolation, Log
from leadline.replication.follower import (
    NOTHING,
    AskOffset,
    FetchAnswer,
    FetchState,
    FollowerEffects,
    FollowerState,
    follow,
)
from leadline.wire.fetch_position import FetchPosition
from tests.support.logs import START_MS, LogBench, at_offset, batch, bytes_of, whole_log


def opened(parent: Path) -> Log:
    parent.mkdir()
    return LogBench(parent).open()


def written(log: Log, epoch: int, *counts: int) -> None:
    """Batches of so many records, all of them safe."""
    for count in counts:
        log.append_as_leader(batch(count), epoch)
    log.advance_high_watermark(log.log_end)


def answer(leader: Log, request: FetchPosition) -> tuple[FetchAnswer, bytes]:
    """The response of a leader, with at most two batches."""
    response = FetchAnswer(high_watermark=leader.high_watermark, log_start=leader.log_start)
    if request.last_fetched_epoch >= 0:
        end = leader.end_of_epoch(request.last_fetched_epoch)
        assert end is not None
        if end.epoch < request.last_fetched_epoch or end.end_offset < request.fetch_offset:
            return response._replace(diverging=end), b""
    try:
        data = bytes_of(leader.read(request.fetch_offset, 200, Isolation.LOG_END))
    except OffsetOutOfRange as error:
        return FetchAnswer(error.code), b""
    return response._replace(has_records=bool(data)), data


def carry_out(following: FollowerState, log: Log, effects: FollowerEffects, data: bytes = b"") -> None:
    if effects is NOTHING:
        return
    if effects.start_at is not None:
        log.truncate_fully_and_start_at(effects.start_at)
    if effects.truncate_to is not None:
        log.truncate_to(effects.truncate_to)
    if effects.append:
        try:
            log.append_as_follower(data)
        except UnexpectedAppendOffset as overlap:
            again = following.overlapped(overlap.first_offset, overlap.last_offset, log)
            carry_out(following, log, again, data)
    if effects.high_watermark is not None:
        log.set_high_watermark(effects.high_watermark)
    if effects.log_start is not None:
        log.delete_records(effects.log_start)
    following.settled(log)


def copy(leader: Log, log: Log, epoch: int) -> None:
    following, effects = follow(log, epoch)
    carry_out(following, log, effects)
    for _ in range(20):
        request = following.next_request(log, START_MS, 200)
        if isinstance(request, AskOffset):
            offset = leader.log_end if request.timestamp == -1 else leader.log_start
            carry_out(following, log, following.received_offset(request, 0, offset, log, START_MS))
        else:
            assert isinstance(request, FetchPosition)
            response, data = answer(leader, request)
            carry_out(following, log, following.received(request, response, log, START_MS), data)
    assert following.state is FetchState.FETCHING
    assert (log.log_start, log.log_end, log.high_watermark) == (
        leader.log_start,
        leader.log_end,
        leader.high_watermark,
    )
    assert log.epochs.entries == leader.epochs.entries


def test_an_empty_log_becomes_a_copy(tmp_path: Path) -> None:
    leader, log = opened(tmp_path / "leader"), opened(tmp_path / "follower")
    written(leader, 0, 3, 1, 2)
    written(leader, 2, 5, 1)
    copy(leader, log, 2)
    assert whole_log(log) == whole_log(leader)


def test_what_never_was_the_leaders_goes(tmp_path: Path) -> None:
    leader, log = opened(tmp_path / "leader"), opened(tmp_path / "follower")
    for one in (leader, log):
        written(one, 0, 2, 2)
    log.append_as_leader(batch(3), 1)
    log.append_as_leader(batch(1), 3)
    written(leader, 2, 1, 1, 1)
    written(leader, 4, 7)
    copy(leader, log, 4)
    assert whole_log(log) == whole_log(leader)


def test_a_log_that_the_leader_has_left_behind_starts_where_it_starts(tmp_path: Path) -> None:
    leader, log = opened(tmp_path / "leader"), opened(tmp_path / "follower")
    for one in (leader, log):
        written(one, 0, 2)
    written(leader, 1, 4, 4)
    leader.delete_records(8)  # in the middle of a batch, which then comes whole
    copy(leader, log, 1)
    assert log.segments.first.base_offset == 6
    assert whole_log(leader).endswith(whole_log(log))


def test_broken_records_make_it_rest(tmp_path: Path) -> None:
    log = opened(tmp_path / "follower")
    following, _ = follow(log, 1)
    data = at_offset(batch(), 0, 1)
    data[-1] ^= 1
    with pytest.raises(CorruptMessage) as broken:
        log.append_as_follower(data)
    following.append_failed(broken.value, START_MS)
    assert following.state is FetchState.FETCHING
    assert following.rests_until_ms > START_MS
