"""A snapshot of an Iceberg table that deletes rows by their positions, which `pyiceberg` reads and does not write.

A delete file is of one data file: its bounds of file_path are the path. A data file has at most one: a newer one has
all positions, and the commit removes the one before. A delete file whose data file leaves the table leaves with it.
Manifests of delete files are written again, as one, when an entry leaves them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

from leadline.spark.table.live_file import PATH_ID


class DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RowDelta(_OverwriteFiles):
    """Adds data files and delete files, and removes some of both, in one snapshot."""

    def __init__(self, transaction: Transaction, summary: Mapping[str, str]) -> None:
        io = transaction._table.io
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=dict(summary))
        self._delete_files: list[DataFile] = []
        self._replaced_deletes: set[str] = set()

    def delete_rows(self, delete_file: DataFile) -> None:
        self._delete_files.append(delete_file)

    def replace_deletes(self, path: str) -> None:
        """A delete file leaves the table; another one has its positions."""
        self._replaced_deletes.add(path)

    def _manifests(self) -> list[ManifestFile]:
        data = [manifest for manifest in super()._manifests() if manifest.content == ManifestContent.DATA]
        return [*data, *self._delete_manifests()]

    def _delete_manifests(self) -> list[ManifestFile]:
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        manifests = [] if snapshot is None else snapshot.manifests(self._io)
        existing = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
        entries = {manifest.manifest_path: self.fetch_manifest_entry(manifest) for manifest in existing}
        leaving = {path for path, part in entries.items() if any(map(self._leaves, part))}
        rewritten = [
            (manifest.partition_spec_id, entry)
            for manifest in existing
            if manifest.manifest_path in leaving
            for entry in entries[manifest.manifest_path]
        ]
        added = [(file.spec_id, self._added(file)) for file in self._delete_files]
        kept = [manifest for manifest in existing if manifest.manifest_path not in leaving]
        return [*kept, *self._written([*rewritten, *added])]

    def _written(self, entries: Sequence[tuple[int, ManifestEntry]]) -> list[ManifestFile]:
        manifests = []
        for spec_id in sorted({number for number, _ in entries}):
            with self._delete_writer(self.spec(spec_id)) as writer:
                for number, entry in entries:
                    if number == spec_id:
                        self._write(writer, entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def _write(self, writer: ManifestWriter, entry: ManifestEntry) -> None:
        is_new = entry.snapshot_id == self._snapshot_id and entry.sequence_number is None
        write: Callable[[ManifestEntry], Any] = writer.existing
        if is_new:
            write = writer.add
        elif self._leaves(entry):
            write = writer.delete
        write(entry)

    def _added(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )

    def _leaves(self, entry: ManifestEntry) -> bool:
        file = entry.data_file
        deleted_paths = {data_file.file_path.encode() for data_file in self._deleted_data_files}
        return file.file_path in self._replaced_deletes or (file.lower_bounds or {}).get(PATH_ID) in deleted_paths

    def _delete_writer(self, spec: PartitionSpec) -> ManifestWriter:
        output = self.new_manifest_output()
        return DeleteManifestWriter(spec, self.schema(), output, self._snapshot_id, self._compression)

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006  as pyiceberg has it
        """Counts delete files, too."""
        data_files = self._added_data_files
        self._added_data_files = [*data_files, *self._delete_files]
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = data_files


def data_file_of(transaction: Transaction, path: str) -> DataFile:
    """A Parquet file without field ids, which a mapping of names replaces."""
    return parquet_file_to_data_file(transaction._table.io, transaction.table_metadata, path)


def delete_file_of(data_file: DataFile, path: str, size: int, rows: int) -> DataFile:
    bounds = {PATH_ID: data_file.file_path.encode()}
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=rows,
        file_size_in_bytes=size,
        column_sizes=None,
        value_counts=None,
        null_value_counts=None,
        nan_value_counts=None,
        lower_bounds=bounds,
        upper_bounds=bounds,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = data_file.spec_id
    return file
