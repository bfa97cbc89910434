"""The options of `leadline console`."""

import argparse
from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.cli import parse
from leadline.cli.console import _address, _password, _table, _tls, _warnings
from leadline.console.page import TableLocation
from leadline.console.server import ListenAddress, TlsFiles, bound_socket, listen_address
from tests.support.certificates import new_authority


def options(*arguments: str) -> argparse.Namespace:
    return parse(["console", *arguments])


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080), True),
        ("localhost:80", ("localhost", 80), True),
        ("[::1]:80", ("::1", 80), True),
        ("8080", ("127.0.0.1", 8080), True),
        ("0.0.0.0:0", ("0.0.0.0", 0), False),
        ("kafka.example.com:443", ("kafka.example.com", 443), False),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int], is_loopback: bool) -> None:
    assert (listen_address(text), listen_address(text).is_loopback) == (address, is_loopback)


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "localhost:65536", "localhost:-1"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(Failure, match="--listen: expected HOST:PORT"):
        _address(text)


def test_an_address_in_use_is_said() -> None:
    with bound_socket(ListenAddress("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(Failure, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            bound_socket(ListenAddress("127.0.0.1", port))


def test_it_is_read_only_and_on_this_machine_unless_told_otherwise() -> None:
    default = options()
    assert (default.listen, default.allow_changes, default.user) == ("127.0.0.1:8080", False, "")


def test_an_open_address_without_login_or_tls_is_warned_of() -> None:
    loopback, everywhere = ListenAddress("127.0.0.1", 80), ListenAddress("0.0.0.0", 80)
    files = TlsFiles(Path("cert.pem"), Path("key.pem"))
    assert _warnings(loopback, "", None) == []
    assert _warnings(everywhere, "anna", files) == []
    assert [text.split(":")[1][:20] for text in _warnings(everywhere, "", None)] == [
        " anyone who can reac",
        " without --tls-cert,",
    ]


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("sécret \nmore\n")
    assert _password(options("--user", "anna", "--password-file", str(file))) == "sécret "
    assert _password(options()) == ""
    file.write_text("\n")
    with pytest.raises(Failure, match="its first line must be the password"):
        _password(options("--user", "anna", "--password-file", str(file)))
    for alone in (("--user", "anna"), ("--password-file", str(file))):
        with pytest.raises(Failure, match="belong together"):
            _password(options(*alone))


def test_a_certificate_needs_its_own_key(tmp_path: Path) -> None:
    for name in ("one", "other"):
        pair = new_authority()
        (tmp_path / f"{name}.crt").write_text(pair.chain_pem)
        (tmp_path / f"{name}.key").write_text(pair.key_pem())
    cert, key = tmp_path / "one.crt", tmp_path / "one.key"
    assert _tls(options("--tls-cert", str(cert), "--tls-key", str(key))) == (cert, key)
    with pytest.raises(Failure, match="do not fit"):
        _tls(options("--tls-cert", str(cert), "--tls-key", str(tmp_path / "other.key")))
    with pytest.raises(Failure, match="belong together"):
        _tls(options("--tls-cert", str(cert)))


def test_a_table_is_a_delta_table_unless_its_kind_is_named() -> None:
    assert _table("/data/orders") == TableLocation("delta", "/data/orders")
    assert _table("s3://bucket/orders") == TableLocation("delta", "s3://bucket/orders")
    assert _table("iceberg:prod:sales.orders") == TableLocation("iceberg", "prod:sales.orders")
