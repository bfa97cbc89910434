"""A pipe through which a process notices that the one which started it has ended, even by SIGKILL.

The parent holds the end for writing and writes nothing. Its children have the end for reading, whose number is in the
environment variable LEADLINE_PARENT_PIPE: it becomes readable when the parent has ended. PR_SET_PDEATHSIG would need a
call between fork and exec, and would follow the parent's thread instead of its process.
"""

import os
import stat
from collections.abc import Mapping

PARENT_PIPE = "LEADLINE_PARENT_PIPE"


class ParentPipe:
    """The parent's side. `reading` is passed on to each child."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()  # not inherited unless it is passed on

    def close(self) -> None:
        """The children take this for the end of the parent."""
        os.close(self._writing)
        os.close(self.reading)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a child."""
        return {PARENT_PIPE: str(self.reading)}


def parent_pipe(environment: Mapping[str, str]) -> int | None:
    """The child's side: a descriptor that becomes readable when the parent ends. None: there is no such parent."""
    number = environment.get(PARENT_PIPE, "")
    try:
        return int(number) if number.isdecimal() and stat.S_ISFIFO(os.fstat(int(number)).st_mode) else None
    except OSError:
        return None
