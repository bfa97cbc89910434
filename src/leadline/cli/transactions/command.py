"""leadline transactions: lists transactions, finds those that block readers, and aborts hanging ones.

A transaction hangs if it is open in a partition and no coordinator will end it there (open_transactions.py). `abort`
ends it with an abort marker in that partition. `find-hanging` and `blocking` print the call.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection, administer
from leadline.admin.errors import Failure
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.transactions import (
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from leadline.admin.leaders import partitions_with_leader
from leadline.admin.offsets import resolve_partitions
from leadline.admin.open_transactions import (
    NOT_OPEN,
    OpenTransaction,
    TransactionDescription,
    hanging,
    hangs,
)
from leadline.admin.partitions import partitions_text
from leadline.admin.times import duration_ms
from leadline.admin.topic_description import TRANSACTIONS_TOPIC
from leadline.admin.transaction_text import abort_call, blocked_json, ending_text, open_json, transaction_json
from leadline.admin.transactions import blocked_partitions, open_transactions, transactions_of
from leadline.cli import COMMANDS
from leadline.cli.errors import print_error, report_incomplete, report_silent
from leadline.cli.options import add_command, add_subcommands, at_least, topic_argument
from leadline.cli.output import Results, add_output_option, is_text, print_result, print_results
from leadline.cli.terminal import TextStyles, print_table
from leadline.cli.transactions.transaction_text import (
    HANGING_HEADS,
    blocked_lines,
    hanging_row,
    marker_text,
    open_text,
    transaction_lines,
)
from leadline.config.settings import nearest
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

STATES = (
    "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence".split()
)  # fmt: skip
MAX_TIMEOUT_MS = 15 * 60_000  # Kafka's default of transaction.max.timeout.ms

LIST = """
  leadline transactions list
  leadline transactions list --state Ongoing --longer-than 10m
  leadline transactions list --producer-id 4001 --json
"""
DESCRIBE = """
  leadline transactions describe shop-1                      state, producer, age, partitions
  leadline transactions describe shop-1 shop-2 --json
"""
BLOCKING = """
  leadline transactions blocking orders:0                    what holds its last stable offset
  leadline transactions blocking orders                      each partition of the topic
"""
FIND = """
  leadline transactions find-hanging                         in all topics
  leadline transactions find-hanging --topic orders --topic users:0-3
  leadline transactions find-hanging --max-transaction-timeout 1h
"""
ABORT = """
  leadline transactions abort orders:0 --start-offset 42               show what it would do
  leadline transactions abort orders:0 --start-offset 42 --execute
  leadline transactions abort orders:0 --producer-id 4001 --producer-epoch 3 --coordinator-epoch 0 --execute
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "transactions", COMMANDS["transactions"].help)

    listing = add_command(
        subcommands,
        "list",
        _list,
        help="list all transactional ids",
        usage="transactions list [options]",
        examples=LIST,
    )
    listing.add_argument(
        "--state", action="append", default=[], choices=STATES, help="only ids in this state; repeatable"
    )
    listing.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=at_least(0),
        metavar="ID",
        help="only this producer; repeatable",
    )
    listing.add_argument(
        "--longer-than", type=duration_ms, metavar="LENGTH", help="only transactions open for longer: 30s, 10m, 2h"
    )
    add_output_option(listing, "id")

    describe = add_command(
        subcommands,
        "describe",
        _describe,
        help="show state, producer, age and partitions of transactions",
        usage="transactions describe ID ... [options]",
        examples=DESCRIBE,
    )
    describe.add_argument("ids", nargs="+", metavar="ID")
    add_output_option(describe, "id")

    blocking = add_command(
        subcommands,
        "blocking",
        _blocking,
        help="show what holds a partition's last stable offset",
        usage="transactions blocking TOPIC[:PARTITIONS] ... [options]",
        examples=BLOCKING,
    )
    blocking.add_argument("topics", nargs="+", type=topic_argument, metavar="TOPIC[:0,2-5]")
    add_output_option(blocking, "partition")

    find = add_command(
        subcommands,
        "find-hanging",
        _find_hanging,
        help="find open transactions that no coordinator will end",
        usage="transactions find-hanging [options]",
        examples=FIND,
    )
    find.add_argument(
        "--topic",
        action="append",
        type=topic_argument,
        metavar="TOPIC[:0,2-5]",
        help="only these partitions; repeatable",
    )
    find.add_argument(
        "--max-transaction-timeout",
        type=duration_ms,
        default=MAX_TIMEOUT_MS,
        metavar="LENGTH",
        help="transaction.max.timeout.ms of the brokers; younger transactions are left out (default 15m)",
    )
    add_output_option(find, "transaction")

    abort = add_command(
        subcommands,
        "abort",
        _abort,
        help="abort a hanging transaction in one partition",
        usage="transactions abort TOPIC:PARTITION (--start-offset N | --producer-id ...) [--execute]",
        examples=ABORT,
    )
    abort.add_argument("topic", type=topic_argument, metavar="TOPIC:PARTITION")
    selection = abort.add_argument_group("which transaction")
    selection.add_argument(
        "--start-offset", type=at_least(0), metavar="N", help="the transaction that starts at this offset"
    )
    selection.add_argument(
        "--producer-id", type=at_least(0), metavar="ID", help="or: the producer's id, with both epochs"
    )
    selection.add_argument("--producer-epoch", type=at_least(0), metavar="N", help="the producer's epoch")
    selection.add_argument("--coordinator-epoch", type=at_least(-1), metavar="N", help="the coordinator's epoch")
    action = abort.add_argument_group("what to do")
    action.add_argument(
        "--execute", action="store_true", help="write the abort marker (default: only show what it would do)"
    )
    action.add_argument("--force", action="store_true", help="abort it even if its coordinator will end it")
    add_output_option(abort)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _list(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        listings = list_transactions(client, options.state, options.producer_id, options.longer_than)
    values: list[Json] = [
        {
            "transactional_id": listing.transactional_id,
            "coordinator": listing.coordinator,
            "producer_id": listing.producer_id,
            "state": listing.state,
        }
        for listing in listings
    ]
    rows = [
        [listing.transactional_id, listing.state, str(listing.producer_id), str(listing.coordinator)]
        for listing in listings
    ]
    heads = ["TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"]
    print_results(options, values, lambda: print_table(heads, rows))
    return report_incomplete(
        connection,
        admin,
        "transactions that it coordinates are not listed",
        TRANSACTIONS_TOPIC,
        "transactions that it holds are not listed",
    )


def _describe(options: argparse.Namespace) -> int:
    connection, _ = administer(options)
    paint, now_ms = TextStyles(sys.stdout), _now_ms()
    with kafka_python_admin(connection) as client, Results(options) as results:
        for n, name in enumerate(options.ids):
            transaction = describe_transaction(client, name)
            if transaction is None:
                ids = [listing.transactional_id for listing in list_transactions(client)]
                raise Failure(f"there is no transactional id {name}{nearest(name, ids)}")
            lines = [*([""] if n > 0 else []), *transaction_lines(transaction, now_ms, paint)]
            results.add(transaction_json(transaction), partial(print, *lines, sep="\n"))
    return 0


def _blocking(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    partitions = partitions_with_leader(connection, admin, resolve_partitions(connection, admin, options.topics))
    paint, now_ms = TextStyles(sys.stdout), _now_ms()
    with kafka_python_admin(connection) as client:
        partitions_blocked, transactions = blocked_partitions(connection, admin, client, partitions)
    with Results(options) as results:
        for n, blocked in enumerate(partitions_blocked):
            lines = [*([""] if n > 0 else []), *blocked_lines(blocked, transactions, now_ms, paint)]
            results.add(blocked_json(blocked, transactions), partial(print, *lines, sep="\n"))
    return _report_leaderless(connection, admin, resolve_partitions(connection, admin, options.topics))


def _report_leaderless(
    connection: ClusterConnection, admin: "AdminClient", partitions: Sequence[TopicPartition]
) -> int:
    """Print the partitions without a leader that answers. Returns the exit code: 1 if there are any."""
    without_leader = {*partitions} - {*partitions_with_leader(connection, admin, partitions)}
    if without_leader:
        print_error(f"{partitions_text(sorted(without_leader))}: no leader, or one that does not answer")
    what = "partitions that it leads and transactions that it coordinates are missing"
    return report_silent(connection, what) or int(bool(without_leader))


def _find_hanging(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    topics = options.topic or [(topic, None) for topic in connection.metadata(admin).topics]
    now_ms, partitions = _now_ms(), resolve_partitions(connection, admin, topics)
    with kafka_python_admin(connection) as client:
        opened, transactions = open_transactions(client, partitions_with_leader(connection, admin, partitions))
    hanging_transactions = hanging(opened, transactions, now_ms, options.max_transaction_timeout)

    def print_hanging() -> None:
        if hanging_transactions:
            print_table(HANGING_HEADS, [hanging_row(transaction, now_ms) for transaction in hanging_transactions])
            print(f"\nTo end the first: {abort_call(hanging_transactions[0])}")
        else:
            print(f"No hanging transaction{open_text(opened)}.")

    values = [open_json(transaction, transactions.get(transaction.producer_id)) for transaction in hanging_transactions]
    print_results(options, values, print_hanging)
    return _report_leaderless(connection, admin, partitions)


def _abort(options: argparse.Namespace) -> int:
    topic, numbers = options.topic
    if numbers is None or len(numbers) != 1:
        raise Failure(f"exactly one partition is needed, such as {topic}:0")
    connection, admin = administer(options)
    (tp,) = resolve_partitions(connection, admin, [options.topic])
    if not partitions_with_leader(connection, admin, [tp]):
        raise Failure(f"{tp}: no leader, or one that does not answer")
    with kafka_python_admin(connection) as client:
        opened, transactions = open_transactions(client, [tp])
        chosen = choose_transaction(tp, opened, options)
        if is_text(options):
            print(f"{marker_text(chosen)}.")
        if chosen.start_offset == NOT_OPEN:
            transactions = transactions_of(client, [chosen.producer_id])
        transaction = transactions.get(chosen.producer_id)
        _refuse_unless_hanging(chosen, transaction, options)
        value = {**open_json(chosen, transaction), "coordinator_epoch": chosen.marker_epoch}
        if not options.execute:
            text = "Nothing has been changed; add --execute to do it."
            print_result(options, {**value, "aborted": False}, text)
            return 0
        abort_transaction(client, tp, chosen.producer_id, chosen.epoch, chosen.marker_epoch)
        if chosen.key in {transaction.key for transaction in describe_producers(client, [tp])}:
            raise Failure(
                f"{tp}: the leader accepted the marker but the transaction is still open; run `blocking` again"
            )
    print_result(options, {**value, "aborted": True}, "Aborted.")
    return 0


def _refuse_unless_hanging(
    chosen: OpenTransaction, transaction: TransactionDescription | None, options: argparse.Namespace
) -> None:
    """The coordinator could still commit the transaction in other partitions."""
    if transaction is not None and not hangs(chosen, transaction):
        ending = ending_text(chosen, transaction)
        if is_text(options):
            print(f"It does not hang: {transaction.transactional_id} is {transaction.state}, ended {ending}.")
        if not options.force:
            raise Failure("an abort in one partition would split the transaction: stop its producer, or add --force")


def choose_transaction(
    tp: TopicPartition, opened: Sequence[OpenTransaction], options: argparse.Namespace
) -> OpenTransaction:
    """The transaction with this start offset, or with this producer and its epochs."""
    epochs = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    if options.start_offset is not None:
        if any(item is not None for item in epochs):
            raise Failure("--start-offset and a producer with its epochs cannot be combined")
        for item in opened:
            if item.start_offset == options.start_offset:
                return item
        raise Failure(f"no open transaction of {tp} starts at {options.start_offset}{_starts_text(opened)}")
    if any(item is None for item in epochs):
        raise Failure("needed: --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    start = next((item.start_offset for item in opened if item.producer_id == options.producer_id), NOT_OPEN)
    return OpenTransaction(tp, *epochs, start, 0)


def _starts_text(transactions: Sequence[OpenTransaction]) -> str:
    starts = ", ".join(str(transaction.start_offset) for transaction in transactions)
    return f"; open transactions start at {starts}" if starts else "; none is open"
