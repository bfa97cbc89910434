"""The command `leadline`, in a process of its own, against a cluster."""

import subprocess
import sys
from typing import Protocol

LEADLINE = (sys.executable, "-c", "import sys; from leadline.cli import main; sys.exit(main())")
COMMAND_S = 180


class Cluster(Protocol):
    @property
    def bootstrap(self) -> str: ...


def started(cluster: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    command = [*LEADLINE, *arguments, "--bootstrap-server", cluster.bootstrap]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def leadline(cluster: Cluster, *arguments: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
    """What a command printed on stdout and on stderr. Kafka's tools write what is no UTF-8 as U+FFFD: so does this."""
    process = started(cluster, *arguments)
    out, err = process.communicate(stdin, COMMAND_S)
    assert process.returncode == code, err.decode()
    return out.decode(errors="replace"), err.decode()


def lines(cluster: Cluster, *arguments: str) -> list[str]:
    return leadline(cluster, *arguments)[0].splitlines()
