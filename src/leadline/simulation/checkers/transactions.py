"""Transactions: all or nothing, in the order that their reads imply, and exactly once from input to output.

Pure: no file, no clock.
"""

from collections.abc import Iterator, Mapping

from leadline.model import Offset, TopicPartition
from leadline.simulation.checkers.writes import Stored
from leadline.simulation.client_history import ClientHistory, TransactionAttempt


def torn_transactions(history: ClientHistory, visible: Stored) -> Iterator[str]:
    """Readers of committed records see a whole transaction or none of it, as the coordinator answered its producer."""
    for transaction in history.transactions:
        acknowledged = [
            a for a in transaction.attempts if a.offset is not None and a.offset >= history.deleted_before.get(a.tp, 0)
        ]
        shown = [a for a in acknowledged if a.offset is not None and visible[a.tp].get(a.offset) == a.value]
        hidden = [a for a in acknowledged if a not in shown]
        origin = f"of {transaction.producer} ({transaction.transactional_id})"
        if transaction.is_committed and hidden:
            yield f"lost commit: {hidden[0].value!r} {origin} was committed, and {hidden[0].tp} does not show it"
        elif not transaction.is_commit_requested and shown:
            yield f"visible abort: {shown[0].value!r} {origin} was never committed, and {shown[0].tp} shows it"
        elif shown and hidden:
            yield f"torn transaction: {shown[0].value!r} {origin} is visible, {hidden[0].value!r} is not"


def dependency_cycles(history: ClientHistory) -> Iterator[str]:
    """G1c: transactions that have read each other's writes, directly or through others. Only committed ones count."""
    writers = {a.value: t for t in history.transactions if t.is_committed for a in t.attempts}
    edges: dict[TransactionAttempt, list[TransactionAttempt]] = {}
    for transaction in history.transactions:
        if transaction.is_committed:
            read = dict.fromkeys(writers[value] for value in transaction.reads if value in writers)
            edges[transaction] = [writer for writer in read if writer is not transaction]
    finished: set[TransactionAttempt] = set()
    for start in edges:
        cycle = _cycle_from(start, edges, finished)
        if cycle:
            names = ", ".join(str(t.attempts[0].value) if t.attempts else t.producer for t in cycle)
            yield f"cycle of transactions that have read each other's writes: {names}"
            return


def _cycle_from(
    start: TransactionAttempt,
    edges: Mapping[TransactionAttempt, list[TransactionAttempt]],
    finished: set[TransactionAttempt],
) -> list[TransactionAttempt]:
    path: dict[TransactionAttempt, Iterator[TransactionAttempt]] = {}
    if start not in finished:
        path[start] = iter(edges[start])
    while path:
        last = next(reversed(path))
        following = next((t for t in path[last] if t not in finished), None)
        if following is None:
            finished.add(last)
            del path[last]
        elif following in path:
            transactions = list(path)
            return transactions[transactions.index(following) :]
        else:
            path[following] = iter(edges[following])
    return []


def not_transformed_once(
    history: ClientHistory, group: str, offsets: Mapping[TopicPartition, Offset], visible: Stored
) -> Iterator[str]:
    """Each visible record of the input below the committed offset has one visible record of the output; others none."""
    counts: dict[tuple[TopicPartition, Offset], int] = {}
    shown = {(tp, value) for tp, values in visible.items() for value in values.values()}
    for attempt in history.attempts:
        transaction = attempt.transaction
        if attempt.source is None or transaction is None or transaction.transactional_id != group:
            continue
        if (attempt.tp, attempt.value) in shown:
            counts[attempt.source] = counts.get(attempt.source, 0) + 1
    for tp, end in offsets.items():
        for offset in visible[tp]:
            count = counts.pop((tp, offset), 0)
            if offset >= history.deleted_before.get(tp, 0) and count != (1 if offset < end else 0):
                yield f"not exactly once: {tp} @ {offset} was transformed {count} times; {group} committed {end}"
    for tp, offset in counts:
        if offset >= history.deleted_before.get(tp, 0):
            yield f"not exactly once: {tp} @ {offset} was transformed, and is not visible itself"
