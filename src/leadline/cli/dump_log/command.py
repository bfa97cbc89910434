"""leadline dump-log: prints the contents of log files, of Leadline or of Apache Kafka.

Lines are those of Kafka's DumpLogSegments, where it supports the file. JSON is one object per line, with `file` and
`type`. Files are only read. Errors go to stderr with path and byte, in the order of the file, and the exit code is 1.

The formats are described in the modules that write them: records/batch.py, log/index.py, log/txn_index.py,
log/producer_snapshots.py and log/checkpoints.py.
"""

import argparse
import os
import sys
from functools import partial

from leadline.admin.errors import Failure
from leadline.cli import COMMANDS
from leadline.cli.dump_log.dump_row import Reader
from leadline.cli.dump_log.index_files import SegmentBatches, read_index, read_snapshot, read_time_index, read_txn_index
from leadline.cli.dump_log.log_file import read_log
from leadline.cli.dump_log.text_files import TEXT_FILES
from leadline.cli.errors import print_error
from leadline.cli.options import add_command
from leadline.cli.output import add_output_option, is_text
from leadline.cli.terminal import TextStyles
from leadline.errors import CorruptFile
from leadline.log import names

EXAMPLES = """
  leadline dump-log data/orders-0/00000000000000000000.log            batches
  leadline dump-log --deep --data data/orders-0/*.log                 batches and records, with keys and values
  leadline dump-log --check data/orders-0/*.index                     compare an index with its log
  leadline dump-log --json data/orders-0 | jq 'select(.type == "batch") | .count'
  leadline dump-log data                                              a whole log directory
"""
DESCRIPTION = """\
Print the contents of .log, .index, .timeindex, .txnindex and .snapshot files, of leader-epoch-checkpoint and the other
checkpoints, of partition.metadata, meta.properties and .kafka_cleanshutdown. A directory of a partition, or a log
directory, stands for all files in it. Every CRC is checked. Files are only read, so a broker may be running."""

SEGMENT_KINDS = (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "dump-log",
        run,
        help=COMMANDS["dump-log"].help,
        usage="dump-log FILE|DIRECTORY ... [options]",
        description=DESCRIPTION,
        examples=EXAMPLES,
        connects=False,
    )
    parser.add_argument("paths", nargs="+", metavar="FILE|DIRECTORY")
    parser.add_argument("--deep", action="store_true", help="print the records of each batch")
    parser.add_argument("--data", action="store_true", help="print the keys and values of records; implies --deep")
    parser.add_argument("--check", action="store_true", help="compare each index with its .log file")
    add_output_option(parser, "line", stream=True)


def run(options: argparse.Namespace) -> int:
    dump = LogDump(options)
    for path in options.paths:
        dump.path(path)
    return 1 if dump.failed else 0


class LogDump:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self.failed = options, False
        self._paint, self._is_text = TextStyles(sys.stdout), is_text(options)

    def path(self, path: str) -> None:
        if not os.path.lexists(path):
            self._report(Failure(f"{path}: No such file or directory"))
            return
        if not os.path.isdir(path):
            self._file(path)
            return
        files = files_in(path)
        if not files:
            self._report(Failure(f"{path}: no file of a log in this directory"))
        for file in files:
            self._file(file)

    def _file(self, path: str) -> None:
        if self._is_text:
            print(f"Dumping {self._paint.bold(path)}")
        try:
            for row in reader_of(path, self._options)(path):
                if isinstance(row, CorruptFile):
                    self._report(row)
                elif self._is_text:
                    print(self._paint.escape(row.text()))
                else:
                    print(row.json(path))
        except (CorruptFile, Failure) as error:
            self._report(error)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._report(Failure(f"{path}: {error.strerror}"))

    def _report(self, error: Exception) -> None:
        sys.stdout.flush()  # the rows before the error come first
        print_error(str(error))
        self.failed = True


def files_in(directory: str) -> list[str]:
    """The files of a log or a log directory: settings and checkpoints, then each segment, then each partition."""
    text_files: list[str] = []
    segments: list[tuple[int, int, str]] = []
    partition_files: list[str] = []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        parsed = names.parse_file_name(name)
        if os.path.isdir(path):
            partition_files += files_in(path) if _is_partition(name) else []
        elif parsed is not None and parsed[1] in SEGMENT_KINDS:
            segments.append((parsed[0], SEGMENT_KINDS.index(parsed[1]), path))
        elif name in TEXT_FILES:
            text_files.append(path)
    return text_files + [path for _, _, path in sorted(segments)] + partition_files


def _is_partition(name: str) -> bool:
    try:
        names.parse_dir_name(name)
    except ValueError:
        return False
    return True


def reader_of(path: str, options: argparse.Namespace) -> Reader:
    name = os.path.basename(os.path.abspath(path))
    if name in TEXT_FILES:
        return TEXT_FILES[name]
    parsed = names.parse_file_name(name)
    if (removed := names.removed_base(name)) is not None:
        parsed = (removed, names.LOG, names.REMOVED)
    if parsed is None or parsed[1] not in SEGMENT_KINDS:
        supported = ", ".join([*SEGMENT_KINDS, *TEXT_FILES])
        raise Failure(f"{path}: not a log file, by its name; supported are {supported}")
    base, kind, suffix = parsed
    if kind == names.LOG:
        return partial(read_log, base=base, deep=options.deep or options.data, data=options.data)
    if kind == names.SNAPSHOT:
        return read_snapshot
    read = {names.INDEX: read_index, names.TIME_INDEX: read_time_index, names.TXN_INDEX: read_txn_index}[kind]
    if not options.check:
        return partial(read, base=base, batches=None)
    log_path = os.path.join(os.path.dirname(path), names.file_name(base, names.LOG, suffix))
    if not os.path.exists(log_path):
        raise Failure(f"{path}: cannot be checked without {log_path}")
    return partial(read, base=base, batches=SegmentBatches.of(log_path))
