"""`leadline start`: which port it takes, and what it says of one that is taken."""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.cli.start.command import connection_options, port_number, with_port
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from tests.support.broker import leadline


@pytest.mark.parametrize(
    ("properties", "meant"),
    [
        ({"listeners": "PLAINTEXT://localhost:9092"}, {"listeners": "PLAINTEXT://localhost:19092"}),
        ({"listeners": "SSL://[::1]:9092"}, {"listeners": "SSL://[::1]:19092"}),
        (
            {"listeners": "A://:9092", "advertised.listeners": "A://me:9092"},
            {"listeners": "A://:19092", "advertised.listeners": "A://me:19092"},
        ),
        (
            {"listeners": "A://:9092", "advertised.listeners": "A://proxy:443"},
            {"listeners": "A://:19092", "advertised.listeners": "A://proxy:443"},
        ),
    ],
)
def test_a_port_is_that_of_the_one_listener_whatever_the_file_says(
    properties: dict[str, str], meant: dict[str, str]
) -> None:
    assert with_port(properties, 19092) == meant


def test_a_port_for_several_listeners_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="--port 1: listeners=A://:2,B://:3 has several"):
        with_port({"listeners": "A://:2,B://:3"}, 1)


@pytest.mark.parametrize("text", ["65536", "-1", "x", "", "9092.0"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a port is a number from 0 to 65535"):
        port_number(text)


@pytest.mark.parametrize(
    ("listeners", "options"),
    [
        ("SSL://:9093,PLAINTEXT://:9092", "--bootstrap-server me:9092"),
        ("SSL://:9093,SASL_SSL://:9094", "--bootstrap-server me:9093 --command-config FILE"),
        ("SASL_PLAINTEXT://:9094", "--bootstrap-server me:9094 --command-config FILE"),
    ],
)
def test_the_hint_of_a_start_has_client_properties_where_all_listeners_are_protected(
    listeners: str, options: str
) -> None:
    settings = {"listeners": listeners, "security.inter.broker.protocol": listeners.partition(":")[0]}
    logins = {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    parsed = broker_settings({**settings, **logins}).listeners
    advertised = {listener.name: Endpoint("me", listener.port) for listener in parsed.advertised}
    assert connection_options(parsed, advertised) == options


def refusal(*arguments: str) -> str:
    command = [sys.executable, "-m", "leadline", "start", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    return line


def test_a_taken_port_is_reported_with_its_process_and_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("--port", str(port), "--set", f"log.dirs={tmp_path}")
    assert line.startswith(f"leadline: cannot listen on localhost:{port} (PLAINTEXT): Address already in use, by pid ")
    assert f"by pid {os.getpid()} (" in line
    assert line.endswith("Stop that process, or choose another port with --port")


def test_a_taken_directory_is_reported_with_its_process(tmp_path: Path) -> None:
    with leadline(tmp_path / "data") as broker:
        line = refusal("--port", "0", "--set", f"log.dirs={broker.directory}")
    assert f"is in use by another broker (its .lock is held), by pid {broker.pid} (" in line


def test_a_missing_file_is_named() -> None:
    assert refusal("nosuch.properties") == "leadline: nosuch.properties: No such file or directory"
