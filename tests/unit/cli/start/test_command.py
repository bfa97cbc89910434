"""`leadline start`: which port it takes, what it says of one that is taken, and what it tells a service manager."""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.cli.start import command
from leadline.cli.start.command import bootstrap_options, port_number, with_port
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.log.log_loading import RecoveryProgress
from leadline.runtime.notify_socket import NOTIFY_SOCKET, NotifyReceiver, NotifySender
from tests.support.broker import RunningBroker, leadline, until_killed
from tests.support.waiting import eventually


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
    assert bootstrap_options(parsed, advertised) == options


def refusal(*arguments: str) -> str:
    arguments = (sys.executable, "-m", "leadline", "start", *arguments)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
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


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    line = refusal("--set", "listeners=PLAINTEXT://192.0.2.1:9092", "--set", f"log.dirs={tmp_path}")
    assert line.startswith("leadline: cannot listen on 192.0.2.1:9092 (PLAINTEXT): ")
    assert line.endswith(": this machine does not have that address")


@pytest.mark.parametrize("pair", ["retention", " =5"])
def test_a_setting_needs_a_name_and_a_value(pair: str) -> None:
    assert refusal("--set", pair) == f"leadline: --set {pair}: expected KEY=VALUE"


def test_a_missing_file_is_named() -> None:
    assert refusal("nosuch.properties") == "leadline: nosuch.properties: No such file or directory"


def test_a_broker_tells_its_service_manager_that_it_serves_and_that_it_stops(tmp_path: Path) -> None:
    with closing(NotifyReceiver()) as manager:
        broker = RunningBroker(tmp_path / "data", {}, environment={NOTIFY_SOCKET: manager.name})
        with until_killed(broker):
            assert broker.stop() == 0
        notices = list(manager.notices())
    assert notices == [
        (broker.pid, {"READY": "1", "STATUS": "serves 0 partitions"}),
        (broker.pid, {"STOPPING": "1", "STATUS": "stopping"}),
    ]


def test_a_long_start_reports_its_progress_and_asks_the_service_manager_for_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "PROGRESS_S", 0.0)
    progress = RecoveryProgress(logs=4, logs_done=1, bytes_total=2_000_000)

    def is_received() -> bool:
        received.extend(lines for _, lines in manager.notices())
        return bool(received)

    async def run() -> None:
        started, stop, start = asyncio.Event(), asyncio.Event(), command._start
        broker = cast(Any, SimpleNamespace(start=started.wait, dirs=SimpleNamespace(recovery=progress)))
        starting = asyncio.create_task(start(broker, NotifySender({NOTIFY_SOCKET: manager.name}), stop))
        await eventually(is_received)
        started.set()
        await starting

    received: list[dict[str, str]] = []
    with closing(NotifyReceiver()) as manager:
        asyncio.run(run())
    assert received[0] == {
        "STATUS": "recovering 0% of 2.0 MB, 1 of 4 partitions",
        "EXTEND_TIMEOUT_USEC": str(command.MORE_TIME_S * 1_000_000),
    }
