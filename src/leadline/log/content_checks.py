"""Checks the records of large batches in threads, while the loop serves other requests.

Decompression and the compiled walk run beside the loop. A batch that unpacks to gigabytes takes its time, but memory
only for one chunk. Message sets of old producers are checked and converted here as well.
"""

from functools import partial

from leadline.config.topic import LogConfig
from leadline.log.up_conversion import up_converted
from leadline.log.validation import CheckedBatch, Writable, checked_batch
from leadline.model import TopicPartition
from leadline.runtime.worker_threads import WorkerThreads

THREADS = 2


class ContentChecks:
    def __init__(self) -> None:
        self._threads = WorkerThreads(THREADS, "content-check")

    async def check(self, batch: Writable, config: LogConfig, tp: TopicPartition, now_ms: int) -> CheckedBatch:
        """The batch to append. WireError if it is refused. The caller must not change it until then."""
        return await self._threads.run(partial(checked_batch, batch, config, tp, now_ms))

    async def convert(
        self, messages: Writable, config: LogConfig, tp: TopicPartition, now_ms: int
    ) -> CheckedBatch | None:
        """The message set of an old producer as a batch that may be appended. None: there is no message in it."""
        return await self._threads.run(partial(up_converted, messages, config, tp, now_ms))

    def close(self) -> None:
        self._threads.close()
