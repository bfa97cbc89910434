"""Threads for blocking work, and memory that belongs to one of them."""

import asyncio
import threading
from concurrent.futures import Executor, ThreadPoolExecutor

from leadline.runtime.threads import new_threads


def test_without_a_loop_of_its_own_kind_threads_are_real() -> None:
    async def main() -> str:
        with new_threads(1, "disk") as threads:
            return await asyncio.wrap_future(threads.submit(lambda: threading.current_thread().name))

    assert asyncio.run(main()).startswith("disk")
    with new_threads(1, "compaction") as threads:
        assert threads.submit(lambda: threading.current_thread().name).result().startswith("compaction")


def test_a_loop_may_provide_its_own() -> None:
    requested: list[tuple[int, str]] = []

    class Loop(asyncio.SelectorEventLoop):
        def new_threads(self, count: int, name: str) -> Executor:
            requested.append((count, name))
            return ThreadPoolExecutor(count)

    async def main() -> None:
        new_threads(3, "disk").shutdown()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    assert requested == [(3, "disk")]
