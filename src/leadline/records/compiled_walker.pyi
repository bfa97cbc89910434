from collections.abc import Iterable
from typing import Any

from leadline.model import Buffer
from leadline.records.python_walker import Summary

def check(data: Buffer, start: int, end: int, count: int, base_timestamp: int, /) -> Summary: ...
def check_chunks(chunks: Iterable[Buffer], count: int, base_timestamp: int, /) -> Summary: ...
def rows(data: Buffer, start: int, end: int, count: int, number: int, /) -> bytes: ...
def fill(data: Buffer, starts: Any, ends: Any, counts: Any, columns: Any, /) -> bool:
    """Eight columns for the bodies of many batches: the fields of `RecordPositions`. False if a body is not plain."""
