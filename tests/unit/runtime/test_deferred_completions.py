"""What follows from requests that were served: when it happens, and in which order."""

import asyncio
from collections.abc import Callable

import pytest

from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.immediate_future import ImmediateFuture


class Ended:
    """A log."""

    log_end = 1


class Scene:
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


def run(test: Callable[[Scene], object]) -> list[str]:
    """What was seen, with what the loop called in its next turns."""

    async def main() -> list[str]:
        scene = Scene()
        test(scene)
        scene.seen.append("|")
        await asyncio.sleep(0)
        scene.seen.append("|")
        await asyncio.sleep(0)
        return scene.seen

    return asyncio.run(main())


def test_looks_of_one_turn_are_taken_together_when_it_is_over() -> None:
    def test(scene: Scene) -> None:
        for each in "ab":
            scene.looks.hold()
            scene.looks.evaluate(scene.look(each))
            scene.looks.release()

    assert run(test) == ["|", "a", "b", "|"]


def test_who_is_alone_is_looked_after_at_once_but_not_while_requests_are_served() -> None:
    def test(scene: Scene) -> None:
        scene.looks = DeferredCompletions(serves_one=lambda: True)
        scene.looks.hold()
        scene.looks.evaluate(scene.look("a"))
        scene.seen.append("served")
        scene.looks.release()

    assert run(test) == ["served", "a", "|", "|"]


def test_where_nothing_is_held_the_loop_calls() -> None:
    def test(scene: Scene) -> None:
        scene.looks = DeferredCompletions(serves_one=lambda: True)
        scene.looks.evaluate(scene.look("a"))
        scene.looks.complete(scene.prompt("b"), "given")

    assert run(test) == ["|", "a", "b given", "|"]


def test_who_was_given_something_is_told_when_all_are_served_and_before_others_look() -> None:
    def test(scene: Scene) -> None:
        scene.looks = DeferredCompletions(serves_one=lambda: True)
        scene.looks.hold()
        scene.looks.evaluate(scene.look("a"))
        scene.looks.complete(scene.prompt("b"), "given")
        scene.looks.complete(scene.prompt("c"), "given")
        scene.seen.append("served")
        scene.looks.release()

    assert run(test) == ["served", "b given", "c given", "a", "|", "|"]


def test_a_connection_is_told_once_of_all_that_it_was_given() -> None:
    def test(scene: Scene) -> None:
        one, other = scene.prompt("a"), scene.prompt("b")
        other.on_done = one.on_done
        scene.looks.hold()
        scene.looks.complete(one, "given")
        scene.looks.complete(other, "too")
        scene.looks.release()

    assert run(test) == ["a given", "|", "|"]


def test_who_asks_to_look_while_others_look_does_so_a_turn_later() -> None:
    def test(scene: Scene) -> None:
        scene.looks.evaluate(scene.look("a", lambda: scene.looks.evaluate(scene.look("c"))))
        scene.looks.evaluate(scene.look("b"))

    assert run(test) == ["|", "a", "b", "|", "c"]


def test_one_that_fails_does_not_keep_others_from_looking(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError("on looking")

    def test(scene: Scene) -> None:
        scene.looks.evaluate(scene.look("a", fail))
        scene.looks.evaluate(scene.look("b"))

    assert run(test) == ["|", "a", "|", "b"]
    assert "on looking" in caplog.text


def test_one_that_fails_on_being_told_does_not_keep_others_from_it() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("on being told")

    def test(scene: Scene) -> None:
        one, other = scene.prompt("a"), scene.prompt("b")
        one.on_done = fail
        scene.looks.hold()
        scene.looks.complete(one, "given")
        scene.looks.complete(other, "given")
        scene.looks.evaluate(scene.look("c"))
        with pytest.raises(ZeroDivisionError):
            scene.looks.release()

    assert run(test) == ["|", "b given", "c", "|"]


@pytest.mark.parametrize("is_held", [True, False])
def test_what_was_appended_is_not_kept_though_nobody_looked_for_it(is_held: bool) -> None:
    def test(scene: Scene) -> None:
        if is_held:
            scene.looks.hold()
        scene.looks.recent_appends().add(Ended(), 0, 1, b"batch")
        if is_held:
            scene.looks.release()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: scene.seen.append("kept" if scene.looks.recent else "gone"))

    assert run(test) == ["|", "gone", "|"]


def test_what_was_appended_is_at_hand_for_those_who_look_and_not_longer() -> None:
    def test(scene: Scene) -> None:
        log, recent = Ended(), scene.looks.recent_appends()
        recent.add(log, 0, 1, b"batch")
        scene.looks.evaluate(lambda: scene.seen.append(str(recent.since(log, 0, 100))))
        asyncio.get_running_loop().call_soon(lambda: scene.seen.append(str(recent.since(log, 0, 100))))

    assert run(test) == ["|", "b'batch'", "None", "|"]


def test_who_waits_for_an_answer_that_was_given_up_is_told_so() -> None:
    def test(scene: Scene) -> None:
        prompt = scene.prompt("a")
        prompt.on_cancel = scene.look("given up")
        prompt.cancel()
        prompt.cancel()

    assert run(test) == ["given up", "|", "|"]
