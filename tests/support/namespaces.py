"""Network namespaces on one machine: hosts with addresses of their own, between which packets can be lost in silence.

with namespaces("zookeeper", "broker1", "client") as net:
    with net.inside("broker1"):             what this thread starts or opens in here is on that host
        ...
    net.lose("broker1", "client")           no packet from the first reaches the second; the other way is open
    net.slow("broker1", "32kbit")           what it sends to anybody waits for its turn
    net.mend()

All hosts hang on one bridge, which is in a namespace of its own: nothing outside is touched. A way is cut by telling
the sender a wrong link address of the receiver: its packets leave, and nobody takes them. So no socket sees an error.

Law: whoever makes the namespaces removes them; with them go their links, and all that was cut.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

NAMES = Path("/run/netns")  # where `ip netns` keeps them
NOBODY = "02:00:00:00:00:01"  # a link address that no host has
SUBNET = "10.83.71"
QUEUE = "3s"  # the longest that a packet waits on a slow way; then it is dropped

_libc = ctypes.CDLL(None, use_errno=True)


class Namespaces:
    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.addresses = {host: f"{SUBNET}.{number}" for number, host in enumerate(hosts, 1)}
        self._prefix = f"leadline-{os.getpid()}-"
        self._made: list[str] = []
        self._lost: set[tuple[str, str]] = set()
        self._slow: set[tuple[str, str]] = set()  # namespace and device

    def make(self) -> None:
        hub = self._add("hub")
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, (host, address) in enumerate(self.addresses.items(), 1):
            name, port = self._add(host), f"port{number}"
            _ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", hub)
            _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")

    def remove(self) -> None:
        while self._made:
            _ip("netns", "delete", self._made.pop())

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """This thread, and the threads and processes that it starts meanwhile, are on that host."""
        with Path("/proc/thread-self/ns/net").open() as before, (NAMES / f"{self._prefix}{host}").open() as namespace:
            _enter(namespace.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def lose(self, sender: str, receiver: str) -> None:
        """What the first sends to the second from now on."""
        _ip("-n", self._name(sender), "neighbour", "replace", self.addresses[receiver],
            "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")  # fmt: skip
        self._lost.add((sender, receiver))

    def cut(self, one: str, *others: str) -> None:
        """Both ways."""
        for other in others:
            self.lose(one, other)
            self.lose(other, one)

    def slow(self, host: str, rate: str, *, incoming: bool = False) -> None:
        """What it sends, or what is sent to it, passes at this rate: in the words of tc, such as 32kbit."""
        port = f"port{list(self.addresses).index(host) + 1}"
        name, device = (self._name("hub"), port) if incoming else (self._name(host), "eth0")
        _tc("-n", name, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "4kb",
            "latency", QUEUE)  # fmt: skip
        self._slow.add((name, device))

    def mend(self) -> None:
        while self._lost:
            sender, receiver = self._lost.pop()
            _ip("-n", self._name(sender), "neighbour", "delete", self.addresses[receiver], "dev", "eth0")
        while self._slow:
            name, device = self._slow.pop()
            _tc("-n", name, "qdisc", "delete", "dev", device, "root")

    def _name(self, host: str) -> str:
        return f"{self._prefix}{host}"

    def _add(self, host: str) -> str:
        _ip("netns", "add", self._name(host))
        self._made.append(self._name(host))
        return self._name(host)


@contextmanager
def namespaces(*hosts: str) -> Iterator[Namespaces]:
    """Skips where they cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip, from iproute2")
    if os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    net = Namespaces(hosts)
    with ExitStack() as stack:
        stack.callback(net.remove)
        net.make()
        yield net


def _ip(*words: str) -> None:
    _run("ip", *words)


def _tc(*words: str) -> None:
    _run("tc", *words)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")
