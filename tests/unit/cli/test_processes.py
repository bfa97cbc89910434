"""Who listens on a port, who holds a log directory."""

import os
import socket
from pathlib import Path

from leadline.cli.processes import holder_of, listener_on, process_text
from tests.support.broker import leadline


def test_the_process_that_listens_on_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listener_on(port) == os.getpid()
    assert listener_on(port) is None


def test_the_process_that_holds_a_log_directory_is_found(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    with leadline(tmp_path / "data") as broker:
        assert holder_of(broker.directory) == broker.pid
        broker.stop()
        assert holder_of(broker.directory) is None


def test_a_process_is_named_by_its_command() -> None:
    assert process_text(os.getpid()).startswith(f"pid {os.getpid()} (")
    assert process_text(1 << 30) == f"pid {1 << 30}"
