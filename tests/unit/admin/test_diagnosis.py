"""Servers that a person names: what can be an address, and what is found at one that is no broker."""

import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from leadline.admin.diagnosis import (
    CLOSES,
    HTTP,
    KAFKA,
    SILENT,
    TLS,
    ServerAddress,
    addresses,
    diagnose,
    diagnose_for_tls,
)
from leadline.cli import main
from tests.support.broker import leadline

Serve = Callable[[socket.socket], None]


@contextmanager
def server(serve: Serve) -> Iterator[ServerAddress]:
    """One that does the same with each connection, which stays open until it returns."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            Thread(target=guarded, args=(connection,), daemon=True).start()

    def guarded(connection: socket.socket) -> None:
        with connection:
            try:
                serve(connection)
            except OSError:
                return

    Thread(target=accept, daemon=True).start()
    try:
        yield ServerAddress("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def mute(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def http(connection: socket.socket) -> None:
    """Waits for a line, as HTTP servers do: a request of Kafka's has none."""
    received = b""
    while b"\r\n" not in received:
        received += connection.recv(4096)
    connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")


def closes(connection: socket.socket) -> None:
    connection.recv(4096)


def ssh(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    mute(connection)


def kafka(connection: socket.socket) -> None:
    """Answers ApiVersions, and nothing else: as a broker that wants a login first."""
    version, correlation = struct.unpack_from(">hi", connection.recv(4096), 6)
    served = [(3, 0, 9), (18, 0, 3)]  # Metadata and ApiVersions
    if version < 3:
        body = struct.pack(">hi", 0, len(served)) + b"".join(struct.pack(">hhh", *api) for api in served)
    else:
        body = struct.pack(">hb", 0, len(served) + 1) + b"".join(struct.pack(">hhhb", *api, 0) for api in served)
        body += struct.pack(">ib", 0, 0)
    connection.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)
    connection.recv(4096)


@pytest.mark.parametrize(
    ("serve", "diagnosis"),
    [(mute, SILENT), (http, HTTP), (closes, CLOSES), (kafka, KAFKA)],
    ids=lambda parameter: parameter and "",
)
def test_the_server_at_an_address_is_recognized(serve: Serve, diagnosis: object) -> None:
    with server(serve) as address:
        assert diagnose(address, 1) is diagnosis


def test_a_server_of_another_protocol_is_recognized_by_its_first_bytes() -> None:
    with server(ssh) as address:
        assert "not a Kafka broker: its reply starts with 'SSH-2.0-OpenSSH_9.2." in diagnose(address).text


def test_a_server_that_speaks_tls_is_recognized(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-days", "1"]
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        *subject,
    ]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def tls(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    with server(tls) as address:
        assert diagnose(address) is TLS
        assert diagnose_for_tls(address) is KAFKA  # no reason to give up, for who speaks TLS too


def test_a_broker_of_ours_speaks_kafka(tmp_path: Path) -> None:
    with leadline(tmp_path / "data") as broker:
        assert diagnose(ServerAddress("localhost", broker.port), 10) is KAFKA


def test_an_unknown_host_is_reported() -> None:
    assert diagnose(ServerAddress("nosuch.invalid", 9092)).text == "there is no such host"


def test_addresses_have_a_host_and_the_usual_port() -> None:
    assert addresses("a, b:1,[::1]:2,SSL://c:3,") == [("a", 9092), ("b", 1), ("::1", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (mute, "it accepts connections and does not answer"),
        (http, "an HTTP server answers there, not a Kafka broker"),
        (ssh, "the server there is not a Kafka broker"),
        (kafka, "it speaks Kafka's protocol, and may require a login (security.protocol)"),
    ],
    ids=lambda parameter: parameter.__name__ if callable(parameter) else "",
)
def test_a_command_says_what_answers_instead_of_a_broker_within_its_timeout(
    serve: Serve, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(serve) as (host, port):
        began = time.monotonic()
        assert main(["topics", "list", "--bootstrap-server", f"{host}:{port}", "--timeout", "10"]) == 1
        took = time.monotonic() - began
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leadline: cannot reach {host}:{port}: ")
    assert message in line
    assert took < 20, "the machine may be slow, but nobody waits for a second time-out"
