"""Staged batches: tasks write them to files in a shared directory, and the driver sends them.

    LOCATION/leadline-staging/JOB/NAME    batches, without anything between them

A task reports the positions of its batches to the driver. The commit of a job deletes its files. A job that runs again
stages again, and its next commit deletes the files that a crash left.
"""

import os
import re
import tempfile
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from pyarrow import fs

from leadline.model import TopicPartition
from leadline.spark.batches.encode import EncodedBatch
from leadline.spark.errors import JobFailed

FOLDER = "leadline-staging"


class StagingFailed(JobFailed):
    """A task cannot write its staged file, or the driver cannot find it."""


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A batch in a staged file."""

    tp: TopicPartition
    position: int
    size: int
    count: int  # of records


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The staged file of one task."""

    path: str
    pieces: tuple[StagedPiece, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.size for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Staging:
    location: str  # a path, or a URL such as s3://bucket/path
    job: str

    @classmethod
    def of(cls, location: str | None, job: str) -> "Staging":
        return cls(location or tempfile.gettempdir(), job)

    def _home(self) -> tuple[fs.FileSystem, str]:
        location = re.sub("^s3a:", "s3:", re.sub("^file:/+", "/", self.location))
        try:
            if "://" not in location:
                return fs.LocalFileSystem(), f"{os.path.abspath(location)}/{FOLDER}/{self.job}"
            system, path = fs.FileSystem.from_uri(location)
        except (OSError, ValueError) as error:
            raise StagingFailed(f"stagingLocation={self.location}: {error}") from None
        return system, f"{path}/{FOLDER}/{self.job}"

    def write(self, batches: Iterable[EncodedBatch]) -> StagedFile:
        system, home = self._home()
        path = f"{home}/{uuid.uuid4()}"
        pieces: list[StagedPiece] = []
        position = 0
        try:
            system.create_dir(home, recursive=True)
            with system.open_output_stream(path) as file:
                for batch in batches:
                    file.write(batch.data)
                    pieces.append(StagedPiece(batch.tp, position, len(batch.data), batch.count))
                    position += len(batch.data)
        except OSError as error:
            raise StagingFailed(f"{path} cannot be written (stagingLocation): {error}") from None
        return StagedFile(path, tuple(pieces))

    def open(self, staged: StagedFile) -> BinaryIO:
        system, _ = self._home()
        try:
            file: BinaryIO = system.open_input_file(staged.path)
        except OSError as error:
            raise StagingFailed(
                f"the driver does not find {staged.path}, which a task wrote: stagingLocation must be a directory that "
                f"driver and executors share ({error})"
            ) from None
        return file

    def clear(self) -> None:
        """Deletes all staged files of the job."""
        system, home = self._home()
        if system.get_file_info(home).type == fs.FileType.Directory:
            system.delete_dir(home)
