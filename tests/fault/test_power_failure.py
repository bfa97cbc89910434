"""Seeded runs on a crash disk: whenever the power goes, a restart keeps what was flushed, and all invariants of a log.

In half of the runs the disk keeps the order of what is done to a directory, as journaling file systems do. In the
other half it does not; then no segments are deleted by retention, for some of them may come back and others not.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.fault.crash_run import CrashRun
from tests.fault.log_invariants import power_fails_again, restart_keeps

RUNS, CRASHES, STEPS = 100, 2, 60


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_restart_after_a_power_failure_keeps_what_was_flushed(seed: int, scratch: Path) -> None:
    strict = bool(seed % 2)
    run = CrashRun(scratch / "run", seed, retains=not strict)
    asyncio.run(run.take_steps(STEPS))
    random = Random(seed)
    for n in range(CRASHES):
        operations = random.randint(0, len(run.disk.journal))
        once, again, twice = (scratch / f"{name}-{n}" for name in ("once", "again", "twice"))
        state = random.getstate()
        run.disk.after_power_failure(once, operations, random, strict=strict)
        random.setstate(state)
        run.disk.after_power_failure(again, operations, random, strict=strict)
        asyncio.run(power_fails_again(again, twice, random, strict=strict))
        for left in (once, twice):
            try:
                asyncio.run(restart_keeps(left, run.ledgers, operations))
            except AssertionError as error:
                raise AssertionError(f"{left.name}, behind operation {operations}: {run.performed}") from error
