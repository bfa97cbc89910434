"""Work deferred until requests are served: when it happens, and in which order."""

import asyncio
from collections.abc import Callable

import pytest

from leadline.errors import WireError
from leadline.runtime.deferred_completions import DeferredCompletions, OnAcknowledged
from leadline.runtime.immediate_future import ImmediateFuture


class AppendedLog:
    log_end = 1


class CompletionBench:
    def __init__(self) -> None:
        self.completions, self.calls = DeferredCompletions(), list[str]()

    def hold(self) -> None:
        self.completions.is_held = True

    def evaluation(self, name: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
        def evaluate() -> None:
            self.calls.append(name)
            then()

        return evaluate

    def evaluate(self, name: str, then: Callable[[], None] = lambda: None) -> None:
        self.completions.evaluate([self.evaluation(name, then)])

    def future(self, name: str) -> ImmediateFuture[str]:
        future = ImmediateFuture[str](loop=asyncio.get_running_loop())
        future.on_done = lambda done: self.calls.append(f"{name} {done.result()}")
        return future

    def acknowledge(self, *futures: ImmediateFuture[str]) -> None:
        self.completions.acknowledge([completes(future) for future in futures], None)


def completes(future: ImmediateFuture[str]) -> OnAcknowledged:
    def on_acknowledged(error: WireError | None) -> ImmediateFuture[str]:
        future.set_result("done" if error is None else type(error).__name__)
        return future

    return on_acknowledged


def run(test: Callable[[CompletionBench], object]) -> list[str]:
    """What was seen, with what the loop called in its next iterations."""

    async def main() -> list[str]:
        bench = CompletionBench()
        test(bench)
        bench.calls.append("|")
        await asyncio.sleep(0)
        bench.calls.append("|")
        await asyncio.sleep(0)
        return bench.calls

    return asyncio.run(main())


def test_fetches_are_evaluated_together_when_the_iteration_is_over() -> None:
    def test(bench: CompletionBench) -> None:
        for name in "ab":
            bench.hold()
            bench.evaluate(name)
            bench.completions.release()

    assert run(test) == ["|", "a", "b", "|"]


def test_a_fetch_that_is_named_twice_is_evaluated_once() -> None:
    def test(bench: CompletionBench) -> None:
        evaluation = bench.evaluation("a")
        bench.completions.evaluate([evaluation, evaluation])
        bench.completions.evaluate([evaluation])

    assert run(test) == ["|", "a", "|"]


def test_with_one_connection_a_fetch_is_evaluated_at_release_but_not_while_requests_are_served() -> None:
    def test(bench: CompletionBench) -> None:
        bench.completions = DeferredCompletions(serves_one=lambda: True)
        bench.hold()
        bench.evaluate("a")
        bench.calls.append("served")
        bench.completions.release()

    assert run(test) == ["served", "a", "|", "|"]


def test_what_comes_while_nothing_is_held_waits_for_the_loop() -> None:
    def test(bench: CompletionBench) -> None:
        bench.completions = DeferredCompletions(serves_one=lambda: True)
        bench.evaluate("a")
        bench.acknowledge(bench.future("b"))

    assert run(test) == ["|", "b done", "a", "|"]


def test_connections_are_notified_when_all_requests_are_served_and_before_fetches_are_evaluated() -> None:
    def test(bench: CompletionBench) -> None:
        bench.completions = DeferredCompletions(serves_one=lambda: True)
        bench.hold()
        bench.evaluate("a")
        bench.acknowledge(bench.future("b"), bench.future("c"))
        bench.calls.append("served")
        bench.completions.release()

    assert run(test) == ["served", "b done", "c done", "a", "|", "|"]


def test_a_connection_is_notified_once_of_all_its_answers() -> None:
    def test(bench: CompletionBench) -> None:
        first, second = bench.future("a"), bench.future("b")
        second.on_done = first.on_done
        bench.hold()
        bench.acknowledge(first, second)
        bench.completions.release()

    assert run(test) == ["a done", "|", "|"]


def test_an_acknowledgement_without_a_waiting_connection_notifies_none() -> None:
    def test(bench: CompletionBench) -> None:
        def on_acknowledged(error: WireError | None) -> None:
            bench.calls.append(f"acknowledged {error}")

        bench.completions.acknowledge([on_acknowledged], None)

    assert run(test) == ["|", "acknowledged None", "|"]


def test_a_wait_that_is_acknowledged_by_an_acknowledgement_ends_an_iteration_later() -> None:
    def test(bench: CompletionBench) -> None:
        def on_acknowledged(error: WireError | None) -> None:
            bench.calls.append("first")
            bench.acknowledge(bench.future("second"))

        bench.hold()
        bench.completions.acknowledge([on_acknowledged], None)
        bench.completions.release()

    assert run(test) == ["first", "|", "second done", "|"]


def test_an_evaluation_requested_by_an_evaluation_runs_an_iteration_later() -> None:
    def test(bench: CompletionBench) -> None:
        bench.evaluate("a", lambda: bench.evaluate("c"))
        bench.evaluate("b")

    assert run(test) == ["|", "a", "b", "|", "c"]


def test_an_evaluation_that_fails_does_not_keep_others_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError("in an evaluation")

    def test(bench: CompletionBench) -> None:
        bench.evaluate("a", fail)
        bench.evaluate("b")

    assert run(test) == ["|", "a", "|", "b"]
    assert "in an evaluation" in caplog.text


def test_a_notification_that_fails_does_not_keep_others_from_theirs() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("in a notification")

    def test(bench: CompletionBench) -> None:
        first, second = bench.future("a"), bench.future("b")
        first.on_done = fail
        bench.hold()
        bench.acknowledge(first, second)
        bench.evaluate("c")
        with pytest.raises(ZeroDivisionError):
            bench.completions.release()

    assert run(test) == ["|", "b done", "c", "|"]


def test_what_was_appended_is_kept_for_the_fetches_that_are_evaluated_and_not_longer() -> None:
    def test(bench: CompletionBench) -> None:
        log, recent = AppendedLog(), bench.completions.recent
        recent.add(log, 0, 1, b"batch")
        bench.completions.evaluate([lambda: bench.calls.append(str(recent.since(log, 0, 100)))])
        asyncio.get_running_loop().call_soon(lambda: bench.calls.append(str(recent.since(log, 0, 100))))

    assert run(test) == ["|", "b'batch'", "None", "|"]


def test_what_was_appended_is_not_kept_beyond_the_iteration_though_no_fetch_reads_it() -> None:
    def test(bench: CompletionBench) -> None:
        bench.hold()
        bench.completions.recent.add(AppendedLog(), 0, 1, b"batch")
        bench.completions.release()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: bench.calls.append("kept" if bench.completions.recent else "gone"))

    assert run(test) == ["|", "gone", "|"]


def test_a_future_that_is_cancelled_calls_back_once() -> None:
    def test(bench: CompletionBench) -> None:
        future = bench.future("a")
        future.on_cancel = bench.evaluation("cancelled")
        future.cancel()
        future.cancel()

    assert run(test) == ["cancelled", "|", "|"]
