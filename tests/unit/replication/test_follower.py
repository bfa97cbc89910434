"""A followed partition: what it asks, where it truncates, and what makes it rest or give up."""

from itertools import product

import pytest

from leadline.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecord,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageError,
    UnknownLeaderEpoch,
)
from leadline.log.epochs import EpochEnd, LeaderEpochs
from leadline.model import TopicPartition
from leadline.replication.follower import (
    BACKOFF_MS,
    EARLIEST_TIMESTAMP,
    FIRST_REST_MS,
    LATEST_TIMESTAMP,
    MAY_FOLLOW,
    NOTHING,
    AskOffset,
    FetchAnswer,
    FetchState,
    FollowerEffects,
    FollowerState,
    follow,
    next_requests,
)
from leadline.wire.fetch_position import NO_TOPIC_ID, FetchPosition
from tests.support.replicas import MemoryLog, Record

NOW_MS = 1_000_000
EPOCH = 6


def log(*, keeps_epochs: bool = True) -> MemoryLog:
    """[0, 30): epoch 2 from 0 on, epoch 4 from 10 on, epoch 5 from 20 on; all below 15 is safe."""
    memory_log = MemoryLog(keeps_epochs=keeps_epochs)
    memory_log.copy([Record(n, (2, 4, 5)[n // 10], "v") for n in range(30)])
    memory_log.set_high_watermark(15)
    return memory_log


def fetching(replica_log: MemoryLog) -> tuple[FollowerState, FetchPosition]:
    """A follower that has just sent a fetch."""
    following, effects = follow(replica_log, EPOCH)
    assert effects is NOTHING
    request = following.next_request(replica_log, NOW_MS, 100)
    assert isinstance(request, FetchPosition)
    return following, request


def position(fetch_offset: int, leader_epoch: int, last_fetched_epoch: int) -> FetchPosition:
    return FetchPosition(
        topic_id=NO_TOPIC_ID,
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=0,
        max_bytes=100,
    )


def test_a_fetch_carries_the_log_end_and_its_epoch() -> None:
    _, request = fetching(log())
    assert request == position(30, EPOCH, 5)


def test_a_log_without_epochs_is_truncated_to_the_high_watermark_first() -> None:
    replica_log = log(keeps_epochs=False)
    following, effects = follow(replica_log, EPOCH)
    assert effects == FollowerEffects(truncate_to=15)
    replica_log.truncate_to(15)
    following.settled(replica_log)
    assert following.next_request(replica_log, NOW_MS, 100) == position(15, EPOCH, -1)


def test_the_same_epoch_goes_on_unless_it_failed() -> None:
    following, _ = fetching(log())
    assert following.continues(EPOCH)
    assert not following.continues(EPOCH + 1)
    following.failed("for a reason")
    assert not following.continues(EPOCH)


def test_records_are_appended_then_the_watermarks_follow() -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    answer = FetchAnswer(high_watermark=31, log_start=3, has_records=True)
    assert following.received(request, answer, replica_log, NOW_MS) == FollowerEffects(
        append=True, high_watermark=31, log_start=3
    )
    replica_log.copy([Record(30, 6, "v")])
    following.settled(replica_log)
    assert (following.offset, following.last_fetched_epoch) == (31, 6)


def test_a_log_start_that_is_not_new_is_left_alone() -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    effects = following.received(request, FetchAnswer(high_watermark=20, log_start=0), replica_log, NOW_MS)
    assert effects == FollowerEffects(high_watermark=20)


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "last_fetched_epoch"), [(29, EPOCH, 5), (30, EPOCH - 1, 5), (30, EPOCH, 4)]
)
def test_an_answer_to_another_fetch_is_passed_over(offset: int, leader_epoch: int, last_fetched_epoch: int) -> None:
    replica_log = log()
    following, _ = fetching(replica_log)
    other = position(offset, leader_epoch, last_fetched_epoch)
    assert following.received(other, FetchAnswer(FencedLeaderEpoch.code), replica_log, NOW_MS) is NOTHING
    assert following.state is FetchState.FETCHING


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        (EpochEnd(5, 25), 25),  # it wrote less in our epoch
        (EpochEnd(5, 40), 30),
        (EpochEnd(4, 18), 18),
        (EpochEnd(4, 99), 20),  # it wrote more in an epoch that we have, too
        (EpochEnd(3, 12), 10),  # one that we do not have: ours before it ends here, and then we ask again
        (EpochEnd(1, 7), 0),
        (EpochEnd(5, -1), 30),
    ],
)
def test_a_follower_truncates_to_where_the_logs_diverge(diverging: EpochEnd, offset: int) -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    effects = following.received(request, FetchAnswer(diverging=diverging), replica_log, NOW_MS)
    assert (effects.truncate_to, effects.append, effects.high_watermark) == (offset, False, None)
    assert (effects.warning is not None) is (offset < 15)
    replica_log.truncate_to(offset)
    following.settled(replica_log)
    assert (following.state, following.offset) == (FetchState.FETCHING, offset)


def test_a_log_whose_epochs_are_gone_ends_where_the_leader_says() -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    replica_log.epochs = LeaderEpochs()
    effects = following.received(request, FetchAnswer(diverging=EpochEnd(3, 17)), replica_log, NOW_MS)
    assert effects == FollowerEffects(truncate_to=17)


@pytest.mark.parametrize("error", [NotLeaderOrFollower, UnknownLeaderEpoch, StorageError])
def test_after_an_error_it_rests(error: type[Exception]) -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    assert following.received(request, FetchAnswer(getattr(error, "code", 0)), replica_log, NOW_MS) is NOTHING
    assert following.next_request(replica_log, NOW_MS + FIRST_REST_MS - 1, 100) is None
    assert following.next_request(replica_log, NOW_MS + FIRST_REST_MS, 100) == request


def test_errors_while_it_rests_do_not_make_it_rest_longer() -> None:
    replica_log = log()
    following, _ = fetching(replica_log)
    following.unanswered("the connection broke", NOW_MS)
    following.unanswered("it broke again", NOW_MS + FIRST_REST_MS - 1)
    assert (following.rests_until_ms, following.why) == (NOW_MS + FIRST_REST_MS, "the connection broke")


def test_it_rests_twice_as_long_each_time_until_the_leader_has_a_good_answer() -> None:
    replica_log, now_ms, rests = log(), NOW_MS, []
    following, request = fetching(replica_log)
    for _ in range(8):
        following.received(request, FetchAnswer(NotLeaderOrFollower.code), replica_log, now_ms)
        rests.append(following.rests_until_ms - now_ms)
        now_ms = following.rests_until_ms
    assert rests == [20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS]
    assert following.received(request, FetchAnswer(high_watermark=20), replica_log, now_ms) is not NOTHING
    following.settled(replica_log)
    following.unanswered("the connection broke", now_ms)
    assert following.rests_until_ms == now_ms + FIRST_REST_MS


def test_once_its_leader_is_over_it_waits_for_the_controller() -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    following.received(request, FetchAnswer(FencedLeaderEpoch.code), replica_log, NOW_MS)
    assert (following.state, following.why) == (FetchState.FAILED, "leader epoch 6 is over")
    assert following.next_request(replica_log, NOW_MS + 10 * BACKOFF_MS, 100) is None


def test_a_log_that_moved_under_a_fetch_is_not_touched() -> None:
    replica_log = log()
    following, request = fetching(replica_log)
    replica_log.copy([Record(30, 5, "v")])
    assert following.received(request, FetchAnswer(has_records=True), replica_log, NOW_MS) is NOTHING
    assert (following.state, following.why) == (FetchState.FAILED, "fetched from 30 on, but the log ends at 31")


@pytest.mark.parametrize(
    ("error", "state", "rests"),
    [
        (CorruptMessage("bad checksum"), FetchState.FETCHING, True),
        (InvalidRecord("bad record"), FetchState.FETCHING, True),
        (StorageError("disk"), FetchState.FAILED, False),
        (ValueError("a bug"), FetchState.FAILED, False),
    ],
)
def test_records_that_cannot_be_appended(error: Exception, state: FetchState, rests: bool) -> None:
    following, _ = fetching(log())
    following.append_failed(error, NOW_MS)
    assert (following.state, following.rests_until_ms > NOW_MS, following.why) == (state, rests, str(error))


def test_a_first_batch_that_a_deletion_cut_starts_the_log_anew() -> None:
    replica_log = MemoryLog()
    replica_log.start_at(12)
    following, _ = follow(replica_log, EPOCH)
    assert following.overlapped(10, 14, replica_log) == FollowerEffects(start_at=10, append=True)


@pytest.mark.parametrize(("first", "last"), [(8, 9), (8, 11)])
def test_other_records_below_the_end_are_a_failure(first: int, last: int) -> None:
    replica_log = MemoryLog()
    replica_log.start_at(12)
    following, _ = follow(replica_log, EPOCH)
    assert following.overlapped(first, last, replica_log) is NOTHING
    assert following.state is FetchState.FAILED
    following, _ = fetching(log())
    following.overlapped(8, 40, log())
    assert following.state is FetchState.FAILED


# Out of range


def out_of_range(replica_log: MemoryLog) -> tuple[FollowerState, AskOffset]:
    following, request = fetching(replica_log)
    assert following.received(request, FetchAnswer(OffsetOutOfRange.code), replica_log, NOW_MS) is NOTHING
    ask = following.next_request(replica_log, NOW_MS, 100)
    assert ask == AskOffset(EPOCH, LATEST_TIMESTAMP)
    assert isinstance(ask, AskOffset)
    return following, ask


def test_a_leader_that_ends_before_us_is_followed_down() -> None:
    replica_log = log()
    following, ask = out_of_range(replica_log)
    effects = following.received_offset(ask, 0, 12, replica_log, NOW_MS)
    assert effects == FollowerEffects("records from 12 on go, below the high watermark 15", truncate_to=12)
    assert following.state is FetchState.FETCHING


@pytest.mark.parametrize(("start", "start_at", "rests"), [(31, 31, False), (30, None, True), (5, None, True)])
def test_a_follower_requests_the_log_start_of_a_leader_that_ends_later(
    start: int, start_at: int | None, rests: bool
) -> None:
    replica_log = log()
    following, ask = out_of_range(replica_log)
    assert following.received_offset(ask, 0, 40, replica_log, NOW_MS) is NOTHING
    second = following.next_request(replica_log, NOW_MS, 100)
    assert second == AskOffset(EPOCH, EARLIEST_TIMESTAMP)
    assert following.received_offset(ask, 0, 40, replica_log, NOW_MS) is NOTHING  # told twice
    assert isinstance(second, AskOffset)
    effects = following.received_offset(second, 0, start, replica_log, NOW_MS)
    assert (effects.start_at, effects.truncate_to, effects.warning is not None) == (start_at, None, not rests)
    assert (following.state, following.rests_until_ms > NOW_MS) == (FetchState.FETCHING, rests)


@pytest.mark.parametrize(
    ("code", "offset", "state"),
    [
        (UnknownLeaderEpoch.code, -1, FetchState.FETCHING),
        (FencedLeaderEpoch.code, -1, FetchState.FAILED),
        (0, -1, FetchState.FETCHING),  # no error, and no offset either
    ],
)
def test_after_an_error_of_list_offsets_no_request_follows_at_once(code: int, offset: int, state: FetchState) -> None:
    replica_log = log()
    following, ask = out_of_range(replica_log)
    assert following.received_offset(ask, code, offset, replica_log, NOW_MS) is NOTHING
    assert following.state is state
    assert following.next_request(replica_log, NOW_MS, 100) is None


def test_no_answer_about_offsets_leads_back_to_fetching() -> None:
    following, _ = out_of_range(log())
    following.unanswered("the connection broke", NOW_MS)
    assert (following.state, following.rests_until_ms) == (FetchState.FETCHING, NOW_MS + FIRST_REST_MS)


# All of them


def test_one_request_names_all_partitions_of_a_leader() -> None:
    replica_log = log()
    names = [TopicPartition("t", n) for n in range(3)]
    fetched, position = fetching(replica_log)
    lost, ask_offset = out_of_range(replica_log)
    failed, _ = fetching(replica_log)
    failed.failed("for a reason")
    followed = dict(zip(names, [fetched, lost, failed], strict=True))
    requests = next_requests(followed, dict.fromkeys(names, replica_log), NOW_MS, 100)
    assert requests.fetch == {names[0]: position}
    assert requests.offsets == {names[1]: ask_offset}


@pytest.mark.parametrize(("before", "after"), list(product(FetchState, FetchState)))
def test_states_follow_each_other_as_the_table_says(before: FetchState, after: FetchState) -> None:
    following = FollowerState(EPOCH, 0, before)
    if after is before or after in MAY_FOLLOW[before]:
        following._enter(after)
        assert following.state is after
    else:
        with pytest.raises(AssertionError):
            following._enter(after)
