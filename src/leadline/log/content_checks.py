"""Checks the records of large batches in threads, while the loop serves other requests.

Decompression and the compiled walk run beside the loop. A batch that unpacks to gigabytes takes its time, but memory
only for one chunk. Where no thread can be started the loop does it: everybody waits then, but nothing fails.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from leadline.config.topic import LogConfig
from leadline.log.validation import CheckedBatch, Writable, checked_batch
from leadline.model import TopicPartition
from leadline.runtime.pipe import chunks_written
from leadline.runtime.ports import shortage

THREADS = 2


class ContentChecks:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "content-check")

    async def check(self, batch: Writable, config: LogConfig, tp: TopicPartition, now_ms: int) -> CheckedBatch:
        """The batch as it may be appended. WireError if it is refused. Nobody may change it meanwhile."""
        job = partial(checked_batch, batch, config, tp, now_ms, chunks_written)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, job)
        except RuntimeError as error:
            if shortage(error) is None:
                raise
            return job()
        return await future

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
