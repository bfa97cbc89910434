"""What was appended a moment ago, for those who wait for it: they need not look for it in its file.

    what is kept of a log are batches that follow each other, as they are stored: of use while the log ends with them
    it is kept for one turn of the loop, and never more than MOST_BYTES in all

Pure: keeps bytes, and hands them out.
"""

from typing import NamedTuple, Protocol

from leadline.model import Buffer, Offset

MOST_BYTES = 512 * 1024


class Ends(Protocol):
    """A log."""

    @property
    def log_end(self) -> Offset: ...


class _Run(NamedTuple):
    first_offset: Offset
    end: Offset
    batches: list[bytes]


class RecentAppends:
    def __init__(self) -> None:
        self._runs: dict[Ends, _Run] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return self._bytes > 0

    def add(self, log: Ends, first_offset: Offset, end: Offset, batch: Buffer) -> None:
        """One batch, which lies in a buffer that is used again."""
        self._bytes += len(batch)
        if self._bytes > MOST_BYTES:
            return
        run = self._runs.get(log)
        before = run.batches if run is not None and run.end == first_offset else []
        first = run.first_offset if run is not None and before else first_offset
        before.append(bytes(batch))
        self._runs[log] = _Run(first, end, before)

    def since(self, log: Ends, offset: Offset, max_bytes: int) -> bytes | None:
        """All from an offset on to the log's end, if it is at hand and not more than this."""
        run = self._runs.get(log)
        if run is None or run.first_offset != offset or run.end != log.log_end:
            return None
        if len(run.batches) > 1:
            run.batches[:] = [b"".join(run.batches)]
        return run.batches[0] if len(run.batches[0]) <= max_bytes else None

    def clear(self) -> None:
        self._runs.clear()
        self._bytes = 0
