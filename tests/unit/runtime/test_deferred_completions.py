"""What follows from requests that were served: when it happens, and in which order."""

import asyncio
from collections.abc import Callable

import pytest

from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.immediate_future import ImmediateFuture


class Ended:
    """A log."""

    log_end = 1


class CompletionBench:
    def __init__(self) -> None:
        self.looks, self.seen = DeferredCompletions(), list[str]()

    def look(self, name: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
        def look() -> None:
            self.seen.append(name)
            then()

        return look

    def prompt(self, name: str) -> ImmediateFuture[str]:
        prompt = ImmediateFuture[str](loop=asyncio.get_running_loop())
        prompt.on_done = lambda done: self.seen.append(f"{name} {done.result()}")
        return prompt


def run(test: Callable[[CompletionBench], object]) -> list[str]:
    """What was seen, with what the loop called in its next turns."""

    async def main() -> list[str]:
        bench = CompletionBench()
        test(bench)
        bench.seen.append("|")
        await asyncio.sleep(0)
        bench.seen.append("|")
        await asyncio.sleep(0)
        return bench.seen

    return asyncio.run(main())


def test_looks_of_one_turn_are_taken_together_when_it_is_over() -> None:
    def test(bench: CompletionBench) -> None:
        for each in "ab":
            bench.looks.hold()
            bench.looks.evaluate(bench.look(each))
            bench.looks.release()

    assert run(test) == ["|", "a", "b", "|"]


def test_who_is_alone_is_looked_after_at_once_but_not_while_requests_are_served() -> None:
    def test(bench: CompletionBench) -> None:
        bench.looks = DeferredCompletions(serves_one=lambda: True)
        bench.looks.hold()
        bench.looks.evaluate(bench.look("a"))
        bench.seen.append("served")
        bench.looks.release()

    assert run(test) == ["served", "a", "|", "|"]


def test_where_nothing_is_held_the_loop_calls() -> None:
    def test(bench: CompletionBench) -> None:
        bench.looks = DeferredCompletions(serves_one=lambda: True)
        bench.looks.evaluate(bench.look("a"))
        bench.looks.complete(bench.prompt("b"), "given")

    assert run(test) == ["|", "a", "b given", "|"]


def test_who_was_given_something_is_told_when_all_are_served_and_before_others_look() -> None:
    def test(bench: CompletionBench) -> None:
        bench.looks = DeferredCompletions(serves_one=lambda: True)
        bench.looks.hold()
        bench.looks.evaluate(bench.look("a"))
        bench.looks.complete(bench.prompt("b"), "given")
        bench.looks.complete(bench.prompt("c"), "given")
        bench.seen.append("served")
        bench.looks.release()

    assert run(test) == ["served", "b given", "c given", "a", "|", "|"]


def test_a_connection_is_told_once_of_all_that_it_was_given() -> None:
    def test(bench: CompletionBench) -> None:
        one, other = bench.prompt("a"), bench.prompt("b")
        other.on_done = one.on_done
        bench.looks.hold()
        bench.looks.complete(one, "given")
        bench.looks.complete(other, "too")
        bench.looks.release()

    assert run(test) == ["a given", "|", "|"]


def test_who_asks_to_look_while_others_look_does_so_a_turn_later() -> None:
    def test(bench: CompletionBench) -> None:
        bench.looks.evaluate(bench.look("a", lambda: bench.looks.evaluate(bench.look("c"))))
        bench.looks.evaluate(bench.look("b"))

    assert run(test) == ["|", "a", "b", "|", "c"]


def test_one_that_fails_does_not_keep_others_from_looking(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError("on looking")

    def test(bench: CompletionBench) -> None:
        bench.looks.evaluate(bench.look("a", fail))
        bench.looks.evaluate(bench.look("b"))

    assert run(test) == ["|", "a", "|", "b"]
    assert "on looking" in caplog.text


def test_one_that_fails_on_being_told_does_not_keep_others_from_it() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("on being told")

    def test(bench: CompletionBench) -> None:
        one, other = bench.prompt("a"), bench.prompt("b")
        one.on_done = fail
        bench.looks.hold()
        bench.looks.complete(one, "given")
        bench.looks.complete(other, "given")
        bench.looks.evaluate(bench.look("c"))
        with pytest.raises(ZeroDivisionError):
            bench.looks.release()

    assert run(test) == ["|", "b given", "c", "|"]


@pytest.mark.parametrize("is_held", [True, False])
def test_what_was_appended_is_not_kept_though_nobody_looked_for_it(is_held: bool) -> None:
    def test(bench: CompletionBench) -> None:
        if is_held:
            bench.looks.hold()
        bench.looks.recent_appends().add(Ended(), 0, 1, b"batch")
        if is_held:
            bench.looks.release()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: bench.seen.append("kept" if bench.looks.recent else "gone"))

    assert run(test) == ["|", "gone", "|"]


def test_what_was_appended_is_at_hand_for_those_who_look_and_not_longer() -> None:
    def test(bench: CompletionBench) -> None:
        log, recent = Ended(), bench.looks.recent_appends()
        recent.add(log, 0, 1, b"batch")
        bench.looks.evaluate(lambda: bench.seen.append(str(recent.since(log, 0, 100))))
        asyncio.get_running_loop().call_soon(lambda: bench.seen.append(str(recent.since(log, 0, 100))))

    assert run(test) == ["|", "b'batch'", "None", "|"]


def test_who_waits_for_an_answer_that_was_given_up_is_told_so() -> None:
    def test(bench: CompletionBench) -> None:
        prompt = bench.prompt("a")
        prompt.on_cancel = bench.look("given up")
        prompt.cancel()
        prompt.cancel()

    assert run(test) == ["given up", "|", "|"]
