"""The pipe through which a process notices the end of its parent."""

import os
import select
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from leadline.runtime.parent_pipe import PARENT_PIPE, ParentPipe, parent_pipe

PATIENCE_S = 60
PARENT = """
import subprocess, sys, time
from leadline.runtime.parent_pipe import ParentPipe
pipe = ParentPipe()
child = [sys.executable, "-c", sys.argv[1]]
subprocess.Popen(child, pass_fds=[pipe.reading], env=pipe.environment | {"PYTHONPATH": ":".join(sys.path)})
time.sleep(600)
"""
CHILD = """
import os, select
from leadline.runtime.parent_pipe import parent_pipe
print("watches", flush=True)
select.select([parent_pipe(os.environ)], [], [])
print("noticed", flush=True)
"""


def test_a_child_notices_that_its_parent_was_killed() -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "watches\n"
        parent.send_signal(signal.SIGKILL)
        assert parent.stdout.readline() == "noticed\n"


def test_the_pipe_is_silent_while_the_parent_lives_and_readable_afterwards() -> None:
    with closing(ParentPipe()) as pipe:
        reading = os.dup(pipe.reading)
        assert select.select([reading], [], [], 0)[0] == []
        assert parent_pipe(pipe.environment) == pipe.reading
    assert select.select([reading], [], [], PATIENCE_S)[0] == [reading]
    os.close(reading)


@pytest.mark.parametrize("number", ["", "x", "-1", "99999"])
def test_what_is_no_pipe_is_ignored(number: str) -> None:
    assert parent_pipe({PARENT_PIPE: number}) is None
    with open(os.devnull) as file:
        assert parent_pipe({PARENT_PIPE: str(file.fileno())}) is None
