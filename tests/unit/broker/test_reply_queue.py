"""Replies leave in the order of their requests, and the next request waits where it must."""

import asyncio
from collections.abc import Iterator

import pytest

from leadline.broker.reply_queue import MAX_QUEUED, PendingReply, Reply, ReplyQueue, unchanged


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def pending(loop: asyncio.AbstractEventLoop, *, blocks: bool = False) -> PendingReply:
    return PendingReply(loop.create_future(), unchanged, blocks)


def ready(queue: ReplyQueue) -> list[Reply]:
    replies: list[Reply] = []
    queue.move_ready(replies.append)
    return replies


def test_replies_wait_for_those_before_them(loop: asyncio.AbstractEventLoop) -> None:
    queue, first, third = ReplyQueue(), pending(loop), pending(loop)
    for reply in (first, b"2", third, b"4"):
        assert not queue.add(reply)
    assert ready(queue) == []
    third.answer.set_result(b"3")
    assert ready(queue) == []
    first.answer.set_result(b"1")
    assert ready(queue) == [b"1", b"2", b"3", b"4"]
    assert ready(queue) == []


def test_a_reply_is_made_out_of_its_answer_when_it_leaves(loop: asyncio.AbstractEventLoop) -> None:
    queue, made = ReplyQueue(), list[int]()

    def frame(answer: int) -> Reply:
        made.append(answer)
        return b"%d" % answer

    replies = [PendingReply(loop.create_future(), frame, blocks=False) for _ in range(2)]
    for reply in replies:
        queue.add(reply)
    replies[1].answer.set_result(2)
    ready(queue)
    assert made == []
    replies[0].answer.set_result(1)
    assert ready(queue) == [b"1", b"2"]


def test_an_answer_without_a_reply_takes_its_turn(loop: asyncio.AbstractEventLoop) -> None:
    queue, silent = ReplyQueue(), pending(loop)
    queue.add(silent)
    queue.add(b"2")
    silent.answer.set_result(None)
    assert ready(queue) == [b"", b"2"]


def test_an_answer_that_blocks_stops_the_next_request(loop: asyncio.AbstractEventLoop) -> None:
    queue, first, second = ReplyQueue(), pending(loop), pending(loop, blocks=True)
    assert not queue.add(first)
    assert queue.blocking is None
    assert queue.add(second)
    assert queue.blocking is second.answer


def test_a_full_queue_stops_the_next_request(loop: asyncio.AbstractEventLoop) -> None:
    queue = ReplyQueue()
    assert [queue.add(pending(loop)) for _ in range(MAX_QUEUED)] == [False] * (MAX_QUEUED - 1) + [True]


@pytest.mark.parametrize("fails", [True, False])
def test_nothing_leaves_after_an_answer_that_failed_or_was_cancelled(
    loop: asyncio.AbstractEventLoop, fails: bool
) -> None:
    queue, first, second = ReplyQueue(), pending(loop), pending(loop)
    queue.add(first)
    queue.add(second)
    queue.add(b"3")
    first.answer.set_result(b"1")
    second.answer.set_exception(ValueError()) if fails else second.answer.cancel()
    assert ready(queue) == [b"1"]
    assert fails is (isinstance(second.answer.exception(), ValueError) if fails else False)


def test_what_is_still_computed_is_cancelled_with_the_queue(loop: asyncio.AbstractEventLoop) -> None:
    queue, first, second = ReplyQueue(), pending(loop), pending(loop)
    for reply in (first, b"2", second):
        queue.add(reply)
    assert queue.answers == [first.answer, second.answer]
    queue.cancel()
    assert [reply.answer.cancelled() for reply in (first, second)] == [True, True]
