"""What a job has done since the start of its process, and how far its table is behind.

The lag in seconds is the age of the newest record that the table is known to have: it had all records of its topic at
`caught_up_ms`, or a batch had a record of `newest_ms`. It is 0 while the table has all of them.

Pure: counts only.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class JobStatistics:
    topic: str
    table: str
    started_ms: int
    commits: int = 0
    records: int = 0
    size: int = 0  # of keys and values, in bytes
    dead: int = 0
    late: int = 0  # changes that came after a newer one of their key
    repeated: int = 0
    failures: int = 0
    compactions: int = 0
    vacuumed: int = 0  # files
    files: int | None = None  # of the table; None: not counted yet
    file_bytes: int = 0
    lag_records: int = 0  # offsets, by the last listing of the topic
    caught_up_ms: int = -1
    newest_ms: int = -1
    committed_ms: int = -1  # when the last commit was made
    trouble: str = ""  # why the last step failed; empty: it did not

    def planned(self, lag_records: int) -> None:
        """A batch begins, with `lag` records that are not in the table."""
        self.lag_records = lag_records

    def committed(self, records: int, size: int, dead: int, lag_records: int, newest_ms: int, now_ms: int) -> None:
        self.commits += 1
        self.records += records
        self.size += size
        self.dead += dead
        self.newest_ms = max(self.newest_ms, newest_ms)
        self.committed_ms = now_ms
        self.checked(lag_records, now_ms)

    def checked(self, lag_records: int, now_ms: int) -> None:
        """A step succeeded: the lag is known."""
        self.trouble, self.lag_records = "", lag_records
        if not lag_records:
            self.caught_up_ms = now_ms

    def failed(self, trouble: str) -> None:
        self.failures += 1
        self.trouble = trouble

    def lag_s(self, now_ms: int) -> float:
        if not self.lag_records and not self.trouble:
            return 0.0
        newest_ms = max(self.caught_up_ms, self.newest_ms)
        return max(now_ms - (self.started_ms if newest_ms < 0 else newest_ms), 0) / 1000
