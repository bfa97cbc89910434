"""Rows between two steps of a merge, in files by buckets of keys, so that a task can take the rows of some keys only.

A bucket is the checksum of a key, modulo their number. Rows without a key have one more bucket, the last.
"""

from binascii import crc32
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.parquet_files import ParquetFiles
from leadline.spark.table.table import OriginColumns


@dataclass(frozen=True, slots=True)
class BucketPaths:
    """Paths of files within the directory of a merge, by bucket."""

    by_bucket: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def of(self, bucket: int) -> Sequence[str]:
        return self.by_bucket.get(bucket, ())

    @property
    def paths(self) -> list[str]:
        return [path for paths in self.by_bucket.values() for path in paths]

    @classmethod
    def joined(cls, parts: Iterable["BucketPaths"]) -> "BucketPaths":
        by_bucket: dict[int, list[str]] = {}
        for part in parts:
            for bucket, paths in part.by_bucket.items():
                by_bucket.setdefault(bucket, []).extend(paths)
        return cls(by_bucket)


class BucketedFiles:
    """Files that one task writes."""

    def __init__(self, staging: DataDirectory, folder: str, columns: OriginColumns, buckets: int) -> None:
        self._staging, self._folder, self._columns, self._buckets = staging, folder, columns, buckets
        self._open: dict[int, ParquetFiles] = {}

    def __enter__(self) -> "BucketedFiles":
        return self

    def __exit__(self, *error: object) -> None:
        for files in self._open.values():
            files.__exit__(*error)

    def write(self, rows: pa.RecordBatch) -> None:
        numbers = buckets_of(rows.column(self._columns.key), self._buckets)
        for bucket in np.unique(numbers).tolist():
            if bucket not in self._open:
                home = self._staging.child(f"{self._folder}/{bucket}")
                self._open[bucket] = ParquetFiles(home, self._columns, "none", None)
            self._open[bucket].write(rows.filter(pa.array(numbers == bucket)))

    def finish(self) -> BucketPaths:
        files = {bucket: files.finish() for bucket, files in self._open.items()}
        return BucketPaths(
            {bucket: [f"{self._folder}/{bucket}/{file.path}" for file in part] for bucket, part in files.items()}
        )


def buckets_of(keys: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    numbers = [buckets if key is None else crc32(key) % buckets for key in keys.to_pylist()]
    return np.array(numbers, np.int64)
