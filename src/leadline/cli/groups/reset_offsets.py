"""leadline groups reset-offsets: changes where a group continues to read. A reset can be undone.

Without --execute the command only shows the change. With it, each new offset is committed with a note of the previous
one (reset_plan.py). --undo restores it on any cluster, until the group commits again.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.connection import ClusterConnection, administer
from leadline.admin.errors import Failure
from leadline.admin.formatting import moment_text
from leadline.admin.group import await_coordinator, refuse_active
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.groups import describe_group, list_groups
from leadline.admin.offset_reset import (
    ResetPosition,
    Times,
    carry_out,
    change_row,
    change_times,
    new_offsets,
    too_late_lines,
)
from leadline.admin.offsets import (
    committed_by,
    existing_partitions,
    offset_ranges,
    resolve_partitions,
)
from leadline.admin.partitions import OffsetRange, PartitionOffset
from leadline.admin.reset_plan import (
    ImpossibleReset,
    OffsetChange,
    changes,
    total,
    undo,
    with_notes,
)
from leadline.admin.times import duration_ms, moment_ms
from leadline.cli.errors import print_error
from leadline.cli.options import add_command, topic_argument
from leadline.cli.output import add_output_option, is_text, print_results
from leadline.cli.terminal import print_table
from leadline.config.settings import nearest
from leadline.model import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

EXAMPLES = """
  leadline groups reset-offsets billing --topic orders --to-earliest           show what would change
  leadline groups reset-offsets billing --topic orders --to-earliest --execute
  leadline groups reset-offsets billing --undo --execute                       restore the offsets
  leadline groups reset-offsets billing --topic orders:0,3-5 --shift-by -100   some partitions, 100 records back
  leadline groups reset-offsets billing --all-topics --to-datetime '2 hours ago'
  leadline groups reset-offsets billing --all-topics --to-datetime 2024-05-01T12:00
  leadline groups reset-offsets billing --all-topics --to-latest --export > offsets.csv
  leadline groups reset-offsets billing --from-file offsets.csv                lines of topic,partition,offset
"""


class ResetOption(NamedTuple):
    """An option that defines the new position."""

    option: str
    metavar: str | None
    kind: Callable[[str], object] | None
    help: str


RESET_OPTIONS = (
    ResetOption("--to-earliest", None, None, "the first record of each partition"),
    ResetOption("--to-latest", None, None, "the end of each partition"),
    ResetOption("--to-offset", "N", int, "offset N"),
    ResetOption("--shift-by", "N", int, "N records forward; -N: N records back"),
    ResetOption("--to-datetime", "TIME", moment_ms, "first record at or after: ISO 8601, ms, -1h, '2 hours ago'"),
    ResetOption("--by-duration", "LENGTH", duration_ms, "first record of the last 2h, 7d, PT30M"),
    ResetOption("--from-file", "FILE", Path, "file with lines of topic,partition,offset, as --export writes it"),
    ResetOption("--undo", None, None, "the offsets before the last reset"),
)


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        subcommands,
        "reset-offsets",
        run,
        help="change where a group continues; --execute does it, --undo restores it",
        usage="groups reset-offsets GROUP (--topic TOPIC[:PARTITIONS] ... | --all-topics) WHERE [--execute]",
        examples=EXAMPLES,
    )
    parser.add_argument("group", metavar="GROUP")
    selection = parser.add_argument_group("which partitions")
    selection.add_argument(
        "--topic", type=topic_argument, action="append", metavar="TOPIC[:0,2-5]", help="these partitions; repeatable"
    )
    selection.add_argument(
        "--all-topics", action="store_true", help="all partitions with committed offsets of the group"
    )
    position = parser.add_argument_group("new position (times are local)")
    positions = position.add_mutually_exclusive_group(required=True)
    for reset_option in RESET_OPTIONS:
        if reset_option.kind is None:
            positions.add_argument(reset_option.option, action="store_true", help=reset_option.help)
        else:
            positions.add_argument(
                reset_option.option, type=reset_option.kind, metavar=reset_option.metavar, help=reset_option.help
            )
    action = parser.add_argument_group("what to do")
    mode = action.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="show what would change (default)")
    mode.add_argument("--execute", action="store_true", help="change the offsets")
    action.add_argument(
        "--no-note", action="store_true", help="write no note into the offsets' metadata: --undo will not work"
    )
    output = action.add_mutually_exclusive_group()
    add_output_option(output, "partition")
    output.add_argument("--export", action="store_true", help="print only the new offsets, for --from-file")


def run(options: argparse.Namespace) -> int:
    _check(options)
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        refuse_active(describe_group(client, options.group), "reset")
    await_coordinator(connection, options.group)
    committed = committed_by(connection, admin, options.group)
    if options.undo:
        return _undo(connection, admin, options, committed)
    partitions = _partitions_to_reset(connection, admin, options, committed)
    ranges = offset_ranges(connection, admin, partitions)
    try:
        offsets = _new_offsets(connection, admin, options, partitions, committed, ranges)
    except ImpossibleReset as error:
        raise Failure(str(error)) from None
    planned = changes(offsets, committed, ranges)
    if not options.no_note:
        planned = with_notes(planned, time.time_ns() // 1_000_000)
    _print(connection, options, planned)
    if not options.execute:
        _print_note(options, f"{total(planned)}. Nothing has been changed; add --execute to do it.")
        return 0
    undo_hint = (
        f" To undo it, until the group commits again: leadline groups reset-offsets {options.group} --undo --execute"
    )
    return _carry_out(connection, admin, options, planned, f"Reset.{undo_hint if not options.no_note else ''}")


def _check(options: argparse.Namespace) -> None:
    has_own_partitions = options.undo or options.from_file is not None
    if has_own_partitions and (options.topic or options.all_topics):
        raise Failure("--undo and --from-file define the partitions: leave out --topic and --all-topics")
    if options.topic and options.all_topics:
        raise Failure("--topic and --all-topics cannot be combined")
    if not has_own_partitions and not options.topic and not options.all_topics:
        raise Failure("no partitions given: add --topic TOPIC, --topic TOPIC:0,2-5 or --all-topics")


def _print_note(options: argparse.Namespace, text: str) -> None:
    """A sentence for a person. With --export it goes to stderr."""
    if is_text(options):
        print(text, file=sys.stderr if options.export else sys.stdout)


def _partitions_to_reset(
    connection: ClusterConnection,
    admin: "AdminClient",
    options: argparse.Namespace,
    committed: Collection[TopicPartition],
) -> list[TopicPartition]:
    if options.from_file is not None:
        return resolve_partitions(
            connection, admin, [(tp.topic, [tp.partition]) for tp in offsets_in(options.from_file)]
        )
    if options.topic:
        return resolve_partitions(connection, admin, options.topic)
    if not committed:
        with kafka_python_admin(connection) as client:
            names = [listing.group_id for listing in list_groups(client)]
        hint = "" if options.group in names else nearest(options.group, names)
        raise Failure(f"group {options.group} has committed nothing{hint}: name its topics with --topic")
    return sorted(existing_partitions(connection, admin, committed))


def _new_offsets(
    connection: ClusterConnection,
    admin: "AdminClient",
    options: argparse.Namespace,
    partitions: Sequence[TopicPartition],
    committed: dict[TopicPartition, PartitionOffset],
    ranges: dict[TopicPartition, OffsetRange],
) -> dict[TopicPartition, Offset]:
    if options.from_file is not None:
        return offsets_in(options.from_file)
    return new_offsets(connection, admin, _position(options), partitions, committed, ranges)


def _position(options: argparse.Namespace) -> ResetPosition:
    if options.to_earliest:
        return ResetPosition("earliest")
    if options.to_latest:
        return ResetPosition("latest")
    if options.to_offset is not None:
        return ResetPosition("offset", options.to_offset)
    if options.shift_by is not None:
        return ResetPosition("shift", options.shift_by)
    if options.by_duration is not None:
        return ResetPosition("time", time.time_ns() // 1_000_000 - options.by_duration)
    return ResetPosition("time", options.to_datetime)


def offsets_in(path: Path) -> dict[TopicPartition, Offset]:
    """The offsets in a file of lines topic,partition,offset, as Kafka's tool exports it. Other lines are a Failure."""
    offsets: dict[TopicPartition, Offset] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row:
                continue
            if len(row) != 3 or not row[0] or not all(cell.isascii() and cell.strip().isdigit() for cell in row[1:]):
                raise Failure(f"{path}, line {number}: expected topic,partition,offset, not {','.join(row)!r}")
            tp = TopicPartition(row[0], int(row[1]))
            if tp in offsets:
                raise Failure(f"{path}, line {number}: {tp} is there twice")
            offsets[tp] = int(row[2])
    if not offsets:
        raise Failure(f"{path}: no line of topic,partition,offset")
    return offsets


def _print(connection: ClusterConnection, options: argparse.Namespace, planned: Sequence[OffsetChange]) -> None:
    if options.export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([*change.tp, change.after.offset] for change in planned if change.after is not None)
        return
    times = change_times(connection, planned)
    heads = ["PARTITION", "CURRENT", "WRITTEN", "NEW", "WRITTEN", "MEANS"]
    print_results(
        options,
        [change_json(change, times) for change in planned],
        lambda: print_table(heads, [change_row(change, times) for change in planned]),
    )


def change_json(change: OffsetChange, times: Times) -> Json:
    def position(committed: PartitionOffset | None) -> Json:
        if committed is None:
            return None
        return {"offset": committed.offset, "timestamp": times.get((change.tp, committed.offset))}

    return {
        "topic": change.tp.topic,
        "partition": change.tp.partition,
        "current": position(change.before),
        "new": position(change.after),
        "read_again": max(change.reread, 0),
        "skipped": max(-change.reread, 0),
        "remark": change.remark,
    }


def _carry_out(
    connection: ClusterConnection,
    admin: "AdminClient",
    options: argparse.Namespace,
    planned: Sequence[OffsetChange],
    done: str,
) -> int:
    failed = carry_out(connection, admin, options.group, planned)
    for line in failed:
        print_error(line)
    if failed:
        raise Failure(f"{len(failed)} of {len(planned)} partitions could not be changed; the others were changed")
    _print_note(options, done)
    return 0


def _undo(
    connection: ClusterConnection,
    admin: "AdminClient",
    options: argparse.Namespace,
    committed: dict[TopicPartition, PartitionOffset],
) -> int:
    existing = existing_partitions(connection, admin, committed)
    reset = undo(committed, offset_ranges(connection, admin, existing))
    if reset is None:
        raise Failure(f"nothing to undo: group {options.group} was not reset by this command, or has committed since")
    _print(connection, options, reset.changes)
    for line in too_late_lines(reset):
        print_error(line)
    when = moment_text(reset.reset_ms)
    if not options.execute:
        _print_note(
            options, f"{total(reset.changes)}. Nothing has been changed; add --execute to undo the reset of {when}."
        )
        return 0
    return _carry_out(connection, admin, options, reset.changes, f"The reset of {when} is undone.")
