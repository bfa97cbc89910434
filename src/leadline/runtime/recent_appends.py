"""The batches appended in this loop iteration, for the fetches that wait for them: they need not read the file.

    of each log it keeps consecutive batches, as they are stored; they are of use while the log ends with them
    it keeps them for one iteration of the loop, and never more than MOST_BYTES in all

Pure: keeps bytes.
"""

from typing import NamedTuple, Protocol

from leadline.model import Buffer, Offset

MOST_BYTES = 512 * 1024


class AppendedLog(Protocol):
    """A log, as far as its end is known."""

    @property
    def log_end(self) -> Offset: ...


class _Run(NamedTuple):
    first_offset: Offset
    end: Offset
    batches: list[bytes]


class RecentAppends:
    def __init__(self) -> None:
        self._runs: dict[AppendedLog, _Run] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return self._bytes > 0

    def add(self, log: AppendedLog, first_offset: Offset, end: Offset, batch: Buffer) -> None:
        """Keep a copy of one batch: its buffer is used again."""
        self._bytes += len(batch)
        if self._bytes > MOST_BYTES:
            return
        run = self._runs.get(log)
        before = run.batches if run is not None and run.end == first_offset else []
        first = run.first_offset if run is not None and before else first_offset
        before.append(bytes(batch))
        self._runs[log] = _Run(first, end, before)

    def since(self, log: AppendedLog, offset: Offset, max_bytes: int) -> bytes | None:
        """The bytes from an offset to the log's end. None: they are not kept, or more than `max_bytes`."""
        run = self._runs.get(log)
        if run is None or run.first_offset != offset or run.end != log.log_end:
            return None
        if len(run.batches) > 1:
            run.batches[:] = [b"".join(run.batches)]
        return run.batches[0] if len(run.batches[0]) <= max_bytes else None

    def clear(self) -> None:
        self._runs.clear()
        self._bytes = 0
