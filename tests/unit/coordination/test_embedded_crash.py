"""A process that is killed in the middle of many writes: what it was told is done is there, and no half of anything."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadline.coordination.embedded import EmbeddedTree
from leadline.runtime.ports import SystemTime

# Eight writers at once. Each turn of one is a multi over three nodes; a number is printed when it was answered.
WRITER = """
import asyncio, sys
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import Create, SetData
from leadline.runtime.ports import SystemTime

async def write(tree, writer):
    path = f"/writer{writer}"
    await tree.create(f"{path}/copy", b"0", make_parents=True)
    await tree.create(f"{path}/alive", ephemeral=True)
    number = 0
    while True:
        number += 1
        data = b"%d" % number
        await tree.multi([SetData(path, data), Create(f"{path}/turn_", sequential=True), SetData(f"{path}/copy", data)])
        sys.stdout.write(f"{writer} {number}\\n")
        sys.stdout.flush()

async def main():
    tree = await EmbeddedTree.open(sys.argv[1], SystemTime())
    await asyncio.gather(*(write(tree, writer) for writer in range(8)))

asyncio.run(main())
"""


def write_until_killed(directory: Path, seconds: float) -> dict[int, int]:
    """The last acknowledged number of each writer."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, directory], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    rest, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    whole_lines = (first + rest).rpartition("\n")[0].splitlines()
    return {int(writer): int(number) for writer, number in (line.split() for line in whole_lines)}


async def check(directory: Path, acknowledged: dict[int, int]) -> int:
    tree = await EmbeddedTree.open(str(directory), SystemTime())
    for writer in range(8):
        path = f"/writer{writer}"
        node, copy, names = await asyncio.gather(tree.get(path), tree.get(f"{path}/copy"), tree.children(path))
        if node is None or copy is None or names is None:
            assert writer not in acknowledged
            continue
        turns = [name for name in names if name.startswith("turn_")]
        number = int(node.data or b"0")
        assert int(copy.data) == number == len(turns) >= acknowledged.get(writer, 0)
        assert "alive" not in names
    last = await tree.create("/marks/mark_", sequential=True, make_parents=True)
    await tree.close()
    return last.czxid


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_kill_in_the_middle_of_many_writes_loses_nothing_that_was_answered(tmp_path: Path, seconds: float) -> None:
    acknowledged = write_until_killed(tmp_path, seconds)
    assert acknowledged
    first = asyncio.run(check(tmp_path, acknowledged))
    assert asyncio.run(check(tmp_path, acknowledged)) > first
