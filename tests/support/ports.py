"""Free ports in a row, on the loopback interface."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST, HIGHEST, ENOUGH = 10_000, 65_535, 1000
LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> int:
    """The first of them. Most systems give clients higher ones: no connection takes one of these meanwhile."""
    lowest_of_clients = int(LOCAL_PORTS.read_text().split()[0])
    below = lowest_of_clients if lowest_of_clients > LOWEST + ENOUGH else HIGHEST
    while True:
        first = random.randrange(LOWEST, below - count)
        with ExitStack() as sockets:
            try:
                for port in range(first, first + count):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        return first
