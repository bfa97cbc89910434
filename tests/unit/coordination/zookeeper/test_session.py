"""The value of zookeeper.connect, and TLS to a server. The session is tested on a real ZooKeeper, in `test_client`."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leadline.config.values import InvalidSetting
from leadline.coordination.zookeeper.session import ConnectString, _InlineHandler
from tests.support.certificates import client_context, server_context


@pytest.mark.parametrize(
    ("connect", "parsed"),
    [
        ("z", ConnectString("z", 1, "")),
        ("z:2181", ConnectString("z:2181", 1, "")),
        ("a:1,b:2,c:3", ConnectString("a:1,b:2,c:3", 3, "")),
        ("a:1,b:2/kafka", ConnectString("a:1,b:2", 2, "/kafka")),
        ("a:1/kafka/one/", ConnectString("a:1", 1, "/kafka/one")),
        ("a:1/", ConnectString("a:1", 1, "")),
        ("[::1]:2181/k", ConnectString("[::1]:2181", 1, "/k")),
    ],
)
def test_hosts_and_chroot_are_separated(connect: str, parsed: ConnectString) -> None:
    assert ConnectString.parse(connect) == parsed


@pytest.mark.parametrize("connect", ["", "a:port", "a:1//b", "a:1/b/../c", "a:1/b//c"])
def test_a_malformed_value_is_refused_with_the_form_that_is_expected(connect: str) -> None:
    with pytest.raises(InvalidSetting, match=r"expected host:port,host:port/path$"):
        ConnectString.parse(connect)


def test_what_tls_has_decrypted_counts_as_readable_and_a_failed_handshake_is_named(tmp_path: Path) -> None:
    server = server_context(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as background:
        address = listener.getsockname()[:2]

        def serve() -> None:
            """Two connections: one is hung up at once, the other one gets two messages in one record."""
            listener.accept()[0].close()
            plain, _ = listener.accept()
            with server.wrap_socket(plain, server_side=True) as encrypted:
                encrypted.sendall(b"one.two.")
                encrypted.recv(1)

        serving = background.submit(serve)
        handler = _InlineHandler(60.0, client_context(tmp_path))
        with pytest.raises(OSError, match=r"EOF|reset"):
            handler.create_connection(address=address, hostname="localhost")
        assert handler.problem.startswith("The TLS handshake failed: ")
        with handler.create_connection(address=address, hostname="localhost") as sock:
            assert isinstance(sock, ssl.SSLSocket)
            assert handler.problem == ""
            assert sock.recv(4) == b"one."
            assert handler.select([sock], [], [], 60.0)[0] == [sock]
            assert sock.recv(4) == b"two."
            assert handler.select([sock], [], [], 0)[0] == []
            sock.sendall(b"x")
        serving.result(60)
