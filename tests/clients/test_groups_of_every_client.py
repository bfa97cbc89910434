"""Groups and transactions across clients: where one member stops another goes on, whatever it is written in.

What is written in transactions, some committed and some aborted, all others see as it was meant.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.clients import cases
from tests.clients.client import COMMANDS, Client, ClientError, Lacking

Clients = Callable[[str], Client]
Read = list[list[object]]  # partition, offset, time, key, value, headers

PER_MEMBER = 20  # records that one member reads before it leaves
LACKS_DELETE_GROUP = {"aiokafka"}


def filled(client: Client, topic: str, count: int) -> Read:
    """A topic with so many records, as they are to be read."""
    client.ask("create_topic", topic=topic, partitions=cases.PARTITIONS, config={})
    written = [cases.Written(n % cases.PARTITIONS, b"%d" % n, b"value", (), cases.START_MS + n) for n in range(count)]
    records = [record.as_values() for record in written]
    offsets = client.ask("produce", topic=topic, codec="none", idempotent=True, records=records)
    return [record.read(offset) for record, offset in zip(written, offsets, strict=True)]


def ends(rows: Read) -> dict[str, int]:
    """What is committed once these, the first of their partitions, are read."""
    return {str(partition): count for partition, count in Counter(row[0] for row in rows).items()}


def test_members_of_all_kinds_take_turns_in_one_group(clients: Clients) -> None:
    topic = group = "in-turns"
    rows = filled(clients("librdkafka"), topic, PER_MEMBER * len(COMMANDS))
    all_read: Read = []
    for name in COMMANDS:
        read = clients(name).ask(
            "read_in_group", topic=topic, group=group, count=PER_MEMBER, isolation="read_uncommitted"
        )
        assert len(read) == PER_MEMBER, name
        all_read += read
        committed = clients("java").ask("committed_offsets", group=group)
        assert {n: at for n, at in committed.items() if at > 0} == ends(all_read), f"as committed by {name}"
    assert sorted(all_read) == sorted(rows)


def test_every_client_fetches_committed_offsets(clients: Clients, client: Client) -> None:
    topic = group = f"told-to-{client.name}"
    rows = filled(client, topic, 30)
    clients("java").ask("read_in_group", topic=topic, group=group, count=30, isolation="read_uncommitted")
    assert client.ask("committed_offsets", group=group) == ends(rows)


def test_a_group_is_listed_described_and_deleted(client: Client) -> None:
    topic = group = f"described-by-{client.name}"
    filled(client, topic, 3)
    client.ask("read_in_group", topic=topic, group=group, count=3, isolation="read_uncommitted")
    assert group in client.ask("list_groups")
    assert client.ask("describe_group", group=group) == ["Empty", 0]
    if client.name in LACKS_DELETE_GROUP:
        with pytest.raises(Lacking):
            client.ask("delete_group", group=group)
        return
    client.ask("delete_group", group=group)
    assert group not in client.ask("list_groups")
    with pytest.raises(ClientError, match=r"(?i)group"):
        client.ask("delete_group", group=group)


@pytest.fixture(scope="module")
def transactions(clients: Clients) -> dict[str, Read]:
    """What each client has written into one topic: a transaction that it committed, one that it aborted, one more."""
    topic, expected = "transactions", dict[str, Read]()
    clients("java").ask("create_topic", topic=topic, partitions=cases.PARTITIONS, config={})
    for name in COMMANDS:
        expected[name] = []
        for run, commit in enumerate((True, False, True)):
            word = b"committed" if commit else b"aborted"
            values = [b"%s by %s: %d.%d" % (word, name.encode(), run, n) for n in range(6)]
            written = [
                cases.Written(n % cases.PARTITIONS, b"k", value, (), cases.START_MS) for n, value in enumerate(values)
            ]
            records = [record.as_values() for record in written]
            offsets = clients(name).ask(
                "write_transaction", topic=topic, id=f"of-{name}", records=records, commit=commit
            )
            if commit:
                expected[name] += [record.read(offset) for record, offset in zip(written, offsets, strict=True)]
    return expected


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    client: Client, transactions: dict[str, Read]
) -> None:
    rows = [row for written in transactions.values() for row in written]
    group = f"committed-{client.name}"
    call = {"topic": "transactions", "group": group, "count": len(rows)}
    assert sorted(client.ask("read_in_group", **call, isolation="read_committed")) == sorted(rows)


def test_readers_of_uncommitted_records_see_the_aborted_ones_too(client: Client, transactions: dict[str, Read]) -> None:
    rows = [row for written in transactions.values() for row in written]
    call = {"topic": "transactions", "group": f"uncommitted-{client.name}", "count": len(rows) * 3 // 2}
    read = client.ask("read_in_group", **call, isolation="read_uncommitted")
    assert len(read) == len(rows) * 3 // 2, client.log_tail()
    assert all(row in read for row in rows)
