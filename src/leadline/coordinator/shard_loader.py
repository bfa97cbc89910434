"""Loading of a shard: its state is rebuilt from the records of its partition."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from leadline.log.log import Isolation
from leadline.records.batch import Header, walk
from leadline.records.record import Record, records_of
from leadline.replication.hosted_partition import HostedPartition

YIELD_BYTES = 64 * 1024  # replayed before other tasks run; a larger batch is replayed whole


class ReplayedShard(Protocol):
    def replay(self, header: Header, records: Iterable[Record]) -> None: ...


async def replay_log(hosted: HostedPartition, shard: ReplayedShard, buffer_bytes: int) -> int:
    """Replay the log from its start to its end. Returns the number of records.

    Nothing is appended meanwhile, because a shard that loads serves no request. `buffer_bytes`: size of one read.
    """
    offset, replayed = hosted.log.log_start, 0
    while offset < hosted.log.log_end:
        file_slice = hosted.log.read(offset, buffer_bytes, Isolation.LOG_END).slice
        if file_slice is None:
            break  # compaction has removed everything up to the log's end
        data = await asyncio.to_thread(file_slice.file.pread, file_slice.length, file_slice.position)
        yield_at = YIELD_BYTES
        for position, header in walk(data):
            if header.last_offset >= offset:
                shard.replay(header, records_of(data, position, header))
                replayed += header.record_count
                offset = header.last_offset + 1
            if position >= yield_at:
                yield_at = position + YIELD_BYTES
                await asyncio.sleep(0)
    return replayed
