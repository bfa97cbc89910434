"""Batches of producers, as headers, and what a partition learns from them."""

from leadline.log.producer_state import AppendOrigin, ProducerState
from leadline.records.batch import Header, header_at
from tests.support.logs import at_offset, batch

DAY_MS = 86_400_000


def header(
    offset: int, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 1, transactional: bool = False
) -> Header:
    data = batch(count, producer_id=producer, producer_epoch=epoch, sequence=sequence, transactional=transactional)
    return header_at(at_offset(data, offset))


def write(producers: ProducerState, *headers: Header, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    for one in headers:
        pending = producers.prepare(one.producer_id, origin)
        pending.append(one)
        producers.update(pending)
        producers.end_offset = one.last_offset + 1
