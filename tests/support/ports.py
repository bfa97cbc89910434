"""Free ports of the loopback interface."""

import socket

from tests.conformance.kafka.broker import _free_port


def free_ports(count: int) -> int:
    """The first of some in a row."""
    while True:
        first = _free_port()
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return first
