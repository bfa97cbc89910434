"""Whether the driver and the executors of a cluster share the directory of a table.

The driver writes a file there, and tasks look for it and write one each, for which the driver looks. Tasks reach those
executors that have registered. One that registers later may still have a disk of its own: then the check before each
commit finds that files are missing (data_directory.py).
"""

import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow.fs as fs
from pyspark.sql import SparkSession

from leadline.spark.session import run_tasks
from leadline.spark.table.data_directory import DataDirectory, make_directory
from leadline.spark.table.table import TableError

TASKS_PER_CORE = 2  # so that each executor gets some


@dataclass(frozen=True, slots=True)
class Probe:
    """What a task found."""

    host: str
    sees_the_driver: bool
    path: str  # of the file that it wrote, within the directory
    error: str = ""


def check_shared(spark: SparkSession, directory: DataDirectory) -> None:
    """TableError if an executor has another disk at the place of the directory. On a local master there is one disk."""
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return
    home = directory.child(f"_leadline_probe_{uuid.uuid4()}")
    filesystem, root = home.open()
    try:
        make_directory(filesystem, root)
        with filesystem.open_output_stream(f"{root}/driver") as file:
            file.write(b"driver")
        tasks = range(TASKS_PER_CORE * max(context.defaultParallelism, 1))
        check_probes(directory.uri, run_tasks(spark, partial(_probe, home), tasks), _files_in(filesystem, root))
    except OSError as error:
        raise TableError(f"{directory.uri}: the driver cannot write there: {error}") from None
    finally:
        if filesystem.get_file_info(root).type == fs.FileType.Directory:
            filesystem.delete_dir(root)


def check_probes(uri: str, probes: Sequence[Probe], files: Sequence[str]) -> None:
    """Holds the findings of the tasks against the files that the driver sees."""
    for probe in probes:
        if probe.error:
            raise TableError(f"{uri}: an executor on {probe.host} cannot write there: {probe.error}")
        if not probe.sees_the_driver or probe.path not in files:
            raise TableError(
                f"{uri} is not shared: an executor on {probe.host} has another disk there. A table of a cluster must "
                "be in a directory that the driver and all executors share, or in an object store such as s3://"
            )


def _probe(home: DataDirectory, number: int) -> Probe:
    host, path = socket.gethostname(), f"task-{number}-{uuid.uuid4()}"
    try:
        filesystem, root = home.open()
        sees_the_driver = bool(filesystem.get_file_info(f"{root}/driver").is_file)
        if sees_the_driver:
            with filesystem.open_output_stream(f"{root}/{path}") as file:
                file.write(b"task")
    except (OSError, TableError) as error:
        return Probe(host, False, path, str(error))
    return Probe(host, sees_the_driver, path)


def _files_in(filesystem: fs.FileSystem, root: str) -> list[str]:
    return [info.base_name for info in filesystem.get_file_info(fs.FileSelector(root))]
