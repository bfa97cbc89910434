"""A future whose connection is notified by the one who completes it."""

import asyncio

from leadline.runtime.immediate_future import ImmediateFuture


def test_notify_calls_without_the_loop_and_a_result_alone_does_not() -> None:
    async def main() -> None:
        calls: list[str] = []
        future = ImmediateFuture[str](loop=asyncio.get_running_loop())
        future.notify()
        future.on_done = lambda done: calls.append(done.result())
        future.set_result("reply")
        await asyncio.sleep(0)
        assert calls == []
        future.notify()
        assert calls == ["reply"]

    asyncio.run(main())


def test_a_cancelled_one_says_so_once_and_a_completed_one_cannot_be_cancelled() -> None:
    async def main() -> None:
        calls: list[str] = []
        cancelled, completed = (ImmediateFuture[str](loop=asyncio.get_running_loop()) for _ in range(2))
        completed.set_result("reply")
        for future in (cancelled, completed):
            future.on_cancel = lambda: calls.append("cancelled")
            future.cancel()
            future.cancel()
        assert calls == ["cancelled"]

    asyncio.run(main())
