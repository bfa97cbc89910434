"""Two hundred members in fifty groups: they settle, and settle again when members come, leave and vanish.

Each time all members of a group hold the assignment of one generation, in which each partition has one owner.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import RunningBroker, leadline
from tests.support.members import ILLEGAL_GENERATION, Group, groups, settle_all
from tests.support.topics import create_topic

GROUPS, MEMBERS = 50, 4
SESSION_MS = 6000
SETTLED_S = 120.0  # a machine with nothing else to do needs a fraction of a second
TOPIC = "committed"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with leadline(tmp_path / "data", group_initial_rebalance_delay_ms=0) as running:
        yield running


async def settle(made: list[Group], what: str) -> None:
    began = time.monotonic()
    await settle_all(made)
    assert time.monotonic() - began < SETTLED_S, what
    for group in made:
        assert group.owned == list(range(group.partitions)), "each has one owner"


async def come_and_go(port: int) -> None:
    names = [f"group-{n}" for n in range(GROUPS)]
    async with groups("localhost", port, names, MEMBERS, session_ms=SESSION_MS) as made:
        for group in made:
            group.start()
        await settle(made, "all join")
        first = {group.name: group.members[0].generation for group in made}

        for group in made:
            await group.lose(group.members[0], politely=True)
        await settle(made, "one of each leaves")

        for group in made:
            await group.enter(2)
            group.start()
        await settle(made, "two more come to each")

        for group in made:
            await group.lose(group.members[1], politely=False)
        await settle(made, "one of each vanishes")

        for group in made:
            member = group.members[0]
            assert member.generation > first[group.name]
            assert await member.commit(TOPIC, 0, 5, generation=first[group.name]) == ILLEGAL_GENERATION
            assert await member.commit(TOPIC, 0, 7) == 0


def test_two_hundred_members_settle_while_members_join_and_leave(broker: RunningBroker) -> None:
    create_topic(broker.bootstrap, TOPIC)
    asyncio.run(come_and_go(broker.port))
