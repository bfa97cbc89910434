"""leadline reassign: move partitions to other brokers while they are in use.

A plan is a JSON file in Kafka's own format. `execute` shows the moves before it starts them. It writes the current
assignment to a second plan, which moves everything back.
"""

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from leadline.cli import COMMANDS
from leadline.cli.connection import no_topic
from leadline.cli.errors import Failure, print_error
from leadline.cli.formatting import age_text, brokers_text, ids_text
from leadline.cli.kafka_python.partitions import alter_reassignments, broker_racks, list_reassignments
from leadline.cli.options import add_command, at_least
from leadline.cli.reassign.move_text import MOVE_HEADS, move_row, progress_text, state_text, summary
from leadline.cli.reassign.plan import ReplicaMove, make_plan, moves, progress
from leadline.cli.reassign.plan_file import Assignment, PlanError, parse_plan, plan_text
from leadline.cli.reassign.session import ReassignSession, reassign_session
from leadline.cli.reassign.throttles import remove_throttles, set_throttles
from leadline.cli.terminal import StatusLine, print_table
from leadline.config.settings import nearest
from leadline.model import BrokerId, TopicPartition

POLL_S = 0.5
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
    parser = commands.add_parser(
        "reassign", prog="leadline reassign", help=COMMANDS["reassign"].help, usage="leadline reassign COMMAND ..."
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

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
    add_command(
        subcommands, "list", _list, help="list partitions that are moving", usage="reassign list", examples=LIST
    )


def broker_list(text: str) -> list[BrokerId]:
    if not all(part.isdigit() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"expected ids of brokers with commas between them, not {text!r}")
    return [int(part) for part in text.split(",")]


def _plan(options: argparse.Namespace) -> int:
    if bool(options.topics) == options.all:
        raise Failure("exactly one is needed: names of topics, or --all")
    with reassign_session(options) as cluster:
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
        changes = moves(current, plan, cluster.sizes(sorted(racks)))
    targets = {move.tp: move.after for move in changes}
    if not targets:
        print_error("nothing to move: the partitions are balanced")
        return 0
    if options.out is None:
        sys.stdout.write(plan_text(targets))
    else:
        options.out.write_text(plan_text(targets))
    print(summary(changes), file=sys.stderr)
    print(f"Next: leadline reassign execute {options.out or 'FILE'}", file=sys.stderr)
    return 0


def _execute(options: argparse.Namespace) -> int:
    plan = _read(options.file)
    with reassign_session(options) as cluster:
        current, under_way = cluster.assignment(), list_reassignments(cluster.client)
        _check(plan, current, broker_racks(cluster.client))
        origin = {
            tp: [broker for broker in under_way[tp].replicas if broker not in under_way[tp].adding]
            if tp in under_way
            else now
            for tp, now in current.items()
        }
        changes = moves(origin, plan, cluster.sizes(sorted({broker for now in origin.values() for broker in now})))
        if not changes:
            print("Nothing to move: all partitions are as planned.")
            return 0
        print_table(MOVE_HEADS, [move_row(move) for move in changes])
        print(summary(changes), flush=True)
        if options.dry_run:
            return 0
        before = options.file.with_suffix(".before.json")
        if not before.exists():
            before.write_text(plan_text({move.tp: move.before for move in changes}))
        if options.throttle is not None:
            set_throttles(cluster, changes, options.throttle)
            print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
        if errors := alter_reassignments(cluster.client, {move.tp: move.after for move in changes}):
            raise Failure("; ".join(errors))
        print(f"Started. To move everything back: leadline reassign execute {before}", flush=True)
        if options.no_wait:
            print(f"Progress: leadline reassign verify {options.file}")
            return 0
        return _wait(cluster, changes, options.file)


def _verify(options: argparse.Namespace) -> int:
    plan = _read(options.file)
    with reassign_session(options) as cluster:
        state = progress(plan, cluster.assignment(), list_reassignments(cluster.client))
        print("Status of partition reassignment:")
        for tp in sorted(plan):
            print(state_text(tp, state))
        if state.moving:
            return 1
        remove_throttles(cluster, plan)
    return 1 if state.left_out else 0


def _cancel(options: argparse.Namespace) -> int:
    plan = _read(options.file)
    with reassign_session(options) as cluster:
        under_way = [tp for tp in list_reassignments(cluster.client) if tp in plan]
        if not under_way:
            print("None of the specified partition reassignments are active.")
        elif errors := alter_reassignments(cluster.client, dict.fromkeys(under_way)):
            raise Failure("; ".join(errors))
        else:
            print(f"Successfully cancelled partition reassignments for: {','.join(map(str, sorted(under_way)))}")
        remove_throttles(cluster, plan)
    return 0


def _list(options: argparse.Namespace) -> int:
    with reassign_session(options) as cluster:
        ongoing = list_reassignments(cluster.client)
    if not ongoing:
        print("No partition reassignments found.")
        return 0
    rows = [
        [str(tp), *map(ids_text, (reassignment.replicas, reassignment.adding, reassignment.removing))]
        for tp, reassignment in ongoing.items()
    ]
    print_table(("PARTITION", "REPLICAS", "ADDING", "REMOVING"), [[cell or "-" for cell in row] for row in rows])
    return 0


def _read(file: Path) -> dict[TopicPartition, list[BrokerId]]:
    try:
        return parse_plan(file.read_text())
    except PlanError as error:
        raise Failure(f"{file}: {error}") from None


def _check(plan: Assignment, current: Assignment, brokers: Collection[BrokerId]) -> None:
    for tp, replicas in plan.items():
        if tp not in current:
            raise Failure(f"there is no partition {tp}{nearest(tp.topic, sorted({other.topic for other in current}))}")
        for broker in replicas:
            if broker not in brokers:
                raise Failure(f"{tp}: there is no broker {broker}: {brokers_text(brokers)}")


def _wait(cluster: ReassignSession, changes: Sequence[ReplicaMove], file: Path) -> int:
    """Wait until all partitions have moved. After Ctrl-C the reassignment continues without this command."""
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
        print(
            f"The reassignment continues. Progress: leadline reassign verify {file}, which also removes its throttles"
        )
        return 130
    for tp in state.left_out:
        print_error(state_text(tp, state))
    remove_throttles(cluster, plan)
    if state.left_out:
        return 1
    print(f"Done after {age_text(round((time.monotonic() - started_s) * 1000))}.")
    return 0
