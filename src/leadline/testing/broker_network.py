"""The network of a cluster in a test: real sockets on the loopback interface, whose links a test can cut.

A cut link is silent: nothing arrives, without an error, as when packets are lost. Bytes written then arrive when
the link is healed, unless one side has given up. The broker that connects holds the bytes of both directions back.

    a link is cut between two brokers, or between a broker and the coordination tree
    clients reach every broker: to disturb them, see `request_rules`
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from leadline.runtime.network import ListeningSocket, Socket, TcpListeningSocket, TcpNetwork, TcpSocket

P = TypeVar("P", bound=asyncio.BaseProtocol)
TREE = "tree"  # the coordination tree, as one end of a link
Peer = int | str  # the id of a broker, or TREE


class ClusterNetwork:
    """What a test does to the links of a cluster."""

    def __init__(self, brokers: Callable[[], list[int]]) -> None:
        self._brokers = brokers
        self._cut: set[tuple[Peer, Peer]] = set()  # source and target
        self.changed: list[Callable[[], None]] = []  # called after each change, from the thread of the test

    def __repr__(self) -> str:
        links = ", ".join(f"{source} to {target}" for source, target in sorted(self._cut, key=str))
        return f"<network of a cluster, {f'cut: {links}' if links else 'whole'}>"

    def cut(self, one: Peer, other: Peer, *, one_way: bool = False) -> None:
        """Nothing gets from one broker to the other, nor back unless it is `one_way`. "tree": the coordination tree."""
        self._check(one, other)
        self._cut |= {(one, other)} if one_way else {(one, other), (other, one)}
        self._report()

    def isolate(self, broker: int) -> None:
        """Cut a broker off from all others and from the tree. Clients still reach it."""
        self._check(broker, TREE)
        others: list[Peer] = [TREE, *(other for other in self._brokers() if other != broker)]
        for other in others:
            self._cut |= {(broker, other), (other, broker)}
        self._report()

    def heal(self, one: Peer | None = None, other: Peer | None = None) -> None:
        """One link, all links of a broker, or all links."""
        for end in (one, other):
            if end is not None:
                self._check_end(end)
        self._cut = {link for link in self._cut if any(end is not None and end not in link for end in (one, other))}
        self._report()

    @property
    def is_whole(self) -> bool:
        return not self._cut

    def is_cut(self, source: Peer, target: Peer) -> bool:
        return (source, target) in self._cut

    def _check(self, one: Peer, other: Peer) -> None:
        self._check_end(one)
        self._check_end(other)
        if one == other:
            raise ValueError(f"a link has two ends, and both are {one!r}")

    def _check_end(self, end: Peer) -> None:
        if end != TREE and end not in self._brokers():
            names = ", ".join(map(str, self._brokers()))
            raise ValueError(f'{end!r} is not an end of a link: the brokers are {names}, and the tree is "{TREE}"')

    def _report(self) -> None:
        for call in self.changed:
            call()


class BrokerNetwork(TcpNetwork):
    """The network port of one broker. It knows all its sockets, so that a kill can close them."""

    def __init__(self, me: int, network: ClusterNetwork, broker_at: Callable[[int], int | None]) -> None:
        """`broker_at`: the broker that listens on a port."""
        self._me, self._network, self._broker_at = me, network, broker_at
        self._listening: list[TcpListeningSocket] = []
        self._accepted: set[TcpSocket] = set()
        self._links: set[_Link] = set()
        self._change = asyncio.Event()  # of the links

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        sock = super().listen(host, port, backlog)
        assert isinstance(sock, TcpListeningSocket)
        listening = _Listening(sock.family, sock.type, sock.proto, sock.detach())
        listening.setblocking(False)
        listening.accepted = self._accepted
        self._listening.append(listening)
        return listening

    async def connect(self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None) -> P:
        target = self._broker_at(port)
        if target is None or target == self._me:
            return await super().connect(protocol, host, port, tls)
        while self._network.is_cut(self._me, target) or self._network.is_cut(target, self._me):
            await self._change.wait()  # the caller gives up in its time
        inner = protocol()
        link = await super().connect(lambda: _Link(inner, target, self._links), host, port, tls)
        self.hold_or_let_go(link)
        return inner

    def reset(self, transport: asyncio.Transport) -> None:
        super().reset(transport.whole if isinstance(transport, _LinkTransport) else transport)

    def changed(self) -> None:
        """Links were cut or healed. Call it on the loop."""
        self._change.set()
        self._change.clear()
        for link in list(self._links):
            self.hold_or_let_go(link)

    def hold_or_let_go(self, link: "_Link") -> None:
        link.hold(
            sends=self._network.is_cut(self._me, link.target), receives=self._network.is_cut(link.target, self._me)
        )

    def close_all(self) -> None:
        """On the loop: the process is killed, and the sockets that it listens on or has accepted with it."""
        loop = asyncio.get_running_loop()
        for sock in (*self._listening, *self._accepted):
            if sock.fileno() >= 0:
                loop.remove_reader(sock.fileno())
                loop.remove_writer(sock.fileno())
                sock.close()


class _Accepted(TcpSocket):
    """One that is closed is forgotten."""

    owners: "set[TcpSocket]"

    def close(self) -> None:
        self.owners.discard(self)
        super().close()


class _Listening(TcpListeningSocket):
    accepted: "set[TcpSocket]"

    def accept_connection(self) -> tuple[Socket, str, int]:
        accepted, host, port = super().accept_connection()
        assert isinstance(accepted, TcpSocket)
        sock = _Accepted(accepted.family, accepted.type, accepted.proto, accepted.detach())
        sock.setblocking(False)
        sock.owners = self.accepted
        self.accepted.add(sock)
        return sock, host, port


class _Link(asyncio.BufferedProtocol):
    """A connection to another broker, between the transport and the protocol that uses it."""

    def __init__(self, inner: Any, target: int, links: "set[_Link]") -> None:
        self._inner, self.target, self._links = inner, target, links
        self._transport: _LinkTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._links.add(self)
        self._transport = _LinkTransport(transport)
        self._inner.connection_made(self._transport)

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        result: bool | None = self._inner.eof_received()
        return result

    def connection_lost(self, error: Exception | None) -> None:
        self._links.discard(self)
        self._inner.connection_lost(error)

    def hold(self, *, sends: bool, receives: bool) -> None:
        assert self._transport is not None
        self._transport.hold(sends=sends, receives=receives)


class _LinkTransport(asyncio.Transport):
    """A transport whose bytes can be held back."""

    def __init__(self, whole: asyncio.Transport) -> None:
        super().__init__()
        self.whole = whole
        self._unsent: list[bytes] = []
        self._holds_sends = False

    def hold(self, *, sends: bool, receives: bool) -> None:
        self._holds_sends = sends
        if not sends:
            for data in self._drain():
                self.whole.write(data)
        if not self.whole.is_closing():
            (self.whole.pause_reading if receives else self.whole.resume_reading)()

    def _drain(self) -> Iterator[bytes]:
        unsent, self._unsent = self._unsent, []
        return iter(unsent)

    def write(self, data: Any) -> None:
        if self._holds_sends:
            self._unsent.append(bytes(data))
        else:
            self.whole.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.whole.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self.whole.is_closing()

    def close(self) -> None:
        self.whole.close()

    def abort(self) -> None:
        self.whole.abort()
