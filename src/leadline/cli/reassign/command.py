"""leadline reassign: move partitions to other brokers while they are in use.

A plan is a JSON file in Kafka's own format. `execute` shows the moves before it starts them. It writes the current
assignment to a second plan, which moves everything back.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from leadline.admin.connection import no_topic
from leadline.admin.errors import Failure
from leadline.admin.formatting import age_text, brokers_text, ids_text
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.partitions import alter_reassignments, broker_racks, list_reassignments
from leadline.admin.reassign.move_text import MOVE_HEADS, move_row, progress_text, state_text, summary
from leadline.admin.reassign.plan import ReassignmentProgress, ReplicaMove, make_plan, moves, progress
from leadline.admin.reassign.plan_file import Assignment, PlanError, parse_plan, plan_text
from leadline.admin.reassign.throttles import remove_throttles, set_throttles
from leadline.admin.session import ClusterSession, open_session
from leadline.cli import COMMANDS
from leadline.cli.errors import print_error, report_silent
from leadline.cli.options import add_command, add_subcommands, at_least
from leadline.cli.output import add_output_option, is_text, print_result, print_results
from leadline.cli.terminal import StatusLine, print_table
from leadline.cli.text_files import read_text
from leadline.config.settings import nearest
from leadline.model import BrokerId, TopicPartition

POLL_S = 0.5
SIZES_UNKNOWN = "the sizes of its replicas are not known"
SETTLE_S = 5  # time in which all brokers receive the controller's decision

PLAN = """
  leadline reassign plan orders > plan.json                  spread a topic over all brokers, moving little
  leadline reassign plan --all --to 1,2,4 --out plan.json    everything off broker 3
  leadline reassign plan orders --replication-factor 3 --out plan.json
"""
EXECUTE = """
  leadline reassign execute plan.json --throttle 50000000    50 MB per second; it continues after Ctrl-C
  leadline reassign execute plan.json --dry-run              show what would move
  leadline reassign execute plan.before.json                 move everything back
"""
VERIFY = """
  leadline reassign verify plan.json                         exit code 0 when done; then throttles are removed
"""
CANCEL = """
  leadline reassign cancel plan.json                         partitions in motion go back
"""
LIST = """
  leadline reassign list                                     partitions that are moving
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "reassign", COMMANDS["reassign"].help)

    plan = add_command(
        subcommands,
        "plan",
        _plan,
        help="write a plan for moving partitions",
        usage="reassign plan [TOPIC ...] [options]",
        examples=PLAN,
        description="Write a plan that spreads replicas and leaders evenly over brokers and racks and moves as little\n"
        "as possible. The plan takes effect with `leadline reassign execute`.",
    )
    plan.add_argument("topics", nargs="*", metavar="TOPIC")
    plan.add_argument("--all", action="store_true", help="all topics, including internal ones")
    plan.add_argument("--to", type=broker_list, metavar="ID,ID,...", help="brokers to use (default: all live brokers)")
    plan.add_argument(
        "--replication-factor",
        type=at_least(1),
        metavar="N",
        help="replicas of each partition (default: as many as now)",
    )
    add_output_option(plan)
    plan.add_argument("--out", type=Path, metavar="FILE", help="file to write the plan to (default: stdout)")

    execute = add_command(
        subcommands,
        "execute",
        _execute,
        help="carry out a plan and wait until it is done",
        usage="reassign execute FILE [options]",
        examples=EXECUTE,
    )
    execute.add_argument("file", type=Path, metavar="FILE")
    add_output_option(execute)
    execute.add_argument(
        "--throttle", type=at_least(1), metavar="BYTES", help="bytes per second that each broker may move"
    )
    execute.add_argument("--dry-run", action="store_true", help="only show what would move")
    execute.add_argument(
        "--no-wait", action="store_true", help="start it and return; `leadline reassign verify` shows the progress"
    )

    for name, run, meaning, examples in (
        ("verify", _verify, "show the progress of a plan; remove its throttles once it is done", VERIFY),
        ("cancel", _cancel, "cancel what is not done yet", CANCEL),
    ):
        other = add_command(subcommands, name, run, help=meaning, usage=f"reassign {name} FILE", examples=examples)
        other.add_argument("file", type=Path, metavar="FILE")
        add_output_option(other, "partition")
    listing = add_command(
        subcommands, "list", _list, help="list partitions that are moving", usage="reassign list", examples=LIST
    )
    add_output_option(listing, "partition")


def broker_list(text: str) -> list[BrokerId]:
    if not all(part.isdigit() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"expected ids of brokers with commas between them, not {text!r}")
    return [int(part) for part in text.split(",")]


def _plan(options: argparse.Namespace) -> int:
    if bool(options.topics) == options.all:
        raise Failure("exactly one is needed: names of topics, or --all")
    with open_session(options) as cluster:
        assignment = cluster.assignment()
        topics = {tp.topic for tp in assignment}
        for name in options.topics:
            if name not in topics:
                raise no_topic(name, sorted(topics))
        current = {tp: now for tp, now in assignment.items() if options.all or tp.topic in options.topics}
        racks = broker_racks(cluster.client)
        for broker in options.to or ():
            if broker not in racks:
                raise Failure(f"there is no broker {broker}: {brokers_text(racks)}")
        try:
            plan = make_plan(
                current, {broker: racks[broker] for broker in options.to or sorted(racks)}, options.replication_factor
            )
        except PlanError as error:
            raise Failure(str(error)) from None
        report_silent(cluster.connection, SIZES_UNKNOWN)
        changes = moves(current, plan, cluster.sizes(sorted(racks)))
    targets = {move.tp: move.after for move in changes}
    if targets and options.out is not None:
        options.out.write_text(plan_text(targets))
    value = {**moves_json(changes), "plan": json.loads(plan_text(targets)) if targets else None}

    def print_plan() -> None:
        if not targets:
            print_error("nothing to move: the partitions are balanced")
            return
        if options.out is None:
            sys.stdout.write(plan_text(targets))
        print(summary(changes), file=sys.stderr)
        print(f"Next: leadline reassign execute {options.out or 'FILE'}", file=sys.stderr)

    print_result(options, value, print_plan)
    return 0


def moves_json(changes: Sequence[ReplicaMove]) -> dict[str, Json]:
    return {
        "moves": [
            {
                **partition_json(move.tp),
                "replicas": list(move.before),
                "new_replicas": list(move.after),
                "copied_bytes": move.copied_bytes,
            }
            for move in changes
        ],
        "copied_bytes": sum(move.copied_bytes for move in changes),
    }


def partition_json(tp: TopicPartition) -> dict[str, Json]:
    return {"topic": tp.topic, "partition": tp.partition}


def _execute(options: argparse.Namespace) -> int:
    plan = _read(options.file)
    with open_session(options) as cluster:
        current, under_way = cluster.assignment(), list_reassignments(cluster.client)
        _check(plan, current, broker_racks(cluster.client))
        origin = {
            tp: [broker for broker in under_way[tp].replicas if broker not in under_way[tp].adding]
            if tp in under_way
            else now
            for tp, now in current.items()
        }
        report_silent(cluster.connection, SIZES_UNKNOWN)
        changes = moves(origin, plan, cluster.sizes(sorted({broker for now in origin.values() for broker in now})))
        value: dict[str, Json] = {**moves_json(changes), "started": False, "done": not changes, "undo_file": None}
        if not changes:
            print_result(options, value, "Nothing to move: all partitions are as planned.")
            return 0
        if is_text(options):
            print_table(MOVE_HEADS, [move_row(move) for move in changes])
            print(summary(changes), flush=True)
        if options.dry_run:
            print_result(options, value, lambda: None)
            return 0
        before = options.file.with_suffix(".before.json")
        if not before.exists():
            before.write_text(plan_text({move.tp: move.before for move in changes}))
        if options.throttle is not None:
            set_throttles(cluster, changes, options.throttle)
            if is_text(options):
                print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
        _start_moves(cluster, changes, options.file)
        value |= {"started": True, "undo_file": str(before)}
        if is_text(options):
            print(f"Started. To move everything back: leadline reassign execute {before}", flush=True)
        if options.no_wait:
            print_result(options, value, f"Progress: leadline reassign verify {options.file}")
            return 0
        code, text = _wait(cluster, changes, options.file)
        print_result(options, {**value, "done": code == 0}, lambda: print(text) if text else None)
        return code


def _start_moves(cluster: ClusterSession, changes: Sequence[ReplicaMove], file: Path) -> None:
    try:
        errors = alter_reassignments(cluster.client, {move.tp: move.after for move in changes})
    except Failure as error:  # such as a time-out: a busy controller may carry it out later
        hint = f"It may have started all the same: leadline reassign verify {file} shows it, and removes throttles"
        raise Failure(f"{error}. {hint}") from None
    if errors:
        raise Failure("; ".join(errors))


def _verify(options: argparse.Namespace) -> int:
    plan = _read(options.file)
    with open_session(options) as cluster:
        state = progress(plan, cluster.assignment(), list_reassignments(cluster.client))
        lines = ["Status of partition reassignment:", *(state_text(tp, state) for tp in sorted(plan))]
        values = [{**partition_json(tp), "state": _state(tp, state)} for tp in sorted(plan)]
        print_results(options, values, lambda: print(*lines, sep="\n"))
        if state.moving:
            return 1
        remove_throttles(cluster, plan)
    return 1 if state.left_out else 0


def _state(tp: TopicPartition, state: ReassignmentProgress) -> str:
    return "in_progress" if tp in state.moving else "left_out" if tp in state.left_out else "completed"


def _cancel(options: argparse.Namespace) -> int:
    plan = _read(options.file)
    with open_session(options) as cluster:
        under_way = [tp for tp in list_reassignments(cluster.client) if tp in plan]
        if not under_way:
            text = "None of the specified partition reassignments are active."
        elif errors := alter_reassignments(cluster.client, dict.fromkeys(under_way)):
            raise Failure("; ".join(errors))
        else:
            text = f"Successfully cancelled partition reassignments for: {','.join(map(str, sorted(under_way)))}"
        values = [{**partition_json(tp), "cancelled": True} for tp in sorted(under_way)]
        print_results(options, values, lambda: print(text))
        remove_throttles(cluster, plan)
    return 0


def _list(options: argparse.Namespace) -> int:
    with open_session(options) as cluster:
        ongoing = list_reassignments(cluster.client)
    rows = [
        [str(tp), *map(ids_text, (reassignment.replicas, reassignment.adding, reassignment.removing))]
        for tp, reassignment in ongoing.items()
    ]
    values: list[Json] = [
        {
            **partition_json(tp),
            "replicas": list(reassignment.replicas),
            "adding_replicas": list(reassignment.adding),
            "removing_replicas": list(reassignment.removing),
        }
        for tp, reassignment in ongoing.items()
    ]
    heads = ("PARTITION", "REPLICAS", "ADDING", "REMOVING")
    print_results(
        options,
        values,
        lambda: (
            print_table(heads, [[cell or "-" for cell in row] for row in rows])
            if rows
            else print("No partition reassignments found.")
        ),
    )
    return 0


def _read(file: Path) -> dict[TopicPartition, list[BrokerId]]:
    try:
        return parse_plan(read_text(file))
    except PlanError as error:
        raise Failure(f"{file}: {error}") from None


def _check(plan: Assignment, current: Assignment, brokers: Collection[BrokerId]) -> None:
    for tp, replicas in plan.items():
        if tp not in current:
            raise Failure(f"there is no partition {tp}{nearest(tp.topic, sorted({other.topic for other in current}))}")
        for broker in replicas:
            if broker not in brokers:
                raise Failure(f"{tp}: there is no broker {broker}: {brokers_text(brokers)}")


def _wait(cluster: ClusterSession, changes: Sequence[ReplicaMove], file: Path) -> tuple[int, str]:
    """The exit code and a line, once all partitions have moved. After Ctrl-C the reassignment continues by itself."""
    plan, started_s = {move.tp: move.after for move in changes}, time.monotonic()
    try:
        with StatusLine() as status:
            last_moving_s = time.monotonic()
            while (state := progress(plan, cluster.assignment(), list_reassignments(cluster.client))).is_open:
                if state.moving:
                    last_moving_s = time.monotonic()
                elif time.monotonic() > last_moving_s + SETTLE_S:
                    break
                copied = cluster.copied_bytes(changes)
                status.show(progress_text(changes, len(state.done), copied, time.monotonic() - started_s))
                time.sleep(POLL_S)
                cluster.connection.restart_timeout()
    except KeyboardInterrupt:
        progress_call = f"leadline reassign verify {file}, which also removes its throttles"
        return 130, f"The reassignment continues. Progress: {progress_call}"
    for tp in state.left_out:
        print_error(state_text(tp, state))
    remove_throttles(cluster, plan)
    if state.left_out:
        return 1, ""
    return 0, f"Done after {age_text(round((time.monotonic() - started_s) * 1000))}."
