"""Calls that only Linux has: what Leadline does where they do not exist. docs/decisions/0060 lists them."""

import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leadline.cli import processes
from leadline.runtime import descriptor_path, notify_socket, page_cache, ports
from leadline.runtime.memory_file import memory_file
from leadline.runtime.notify_socket import NOTIFY_SOCKET, NotifyReceiver, NotifySender
from leadline.runtime.ports import OsFiles, raise_descriptor_limit

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "tests.support.other_system"]
TIMEOUT_S = 300


def test_a_cluster_of_the_test_kit_runs_without_calls_of_linux() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.stdout, done.returncode) == ("[3, 3, 200000]\n", 0), done.stderr


def test_a_broker_starts_and_stops_without_calls_of_linux(tmp_path: Path) -> None:
    command = [*COMMAND, "start", "--port", "0", "--set", f"log.dirs={tmp_path}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as broker:
        assert broker.stdout is not None
        lines = []
        for line in broker.stdout:
            lines.append(line)
            if line.startswith("  try "):
                broker.send_signal(signal.SIGTERM)
    assert broker.returncode == 0, "".join(lines)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_without_memory_files_a_key_is_in_a_file_of_its_owner_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with memory_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_without_proc_descriptors_have_paths_in_dev(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptor_path, "FOLDERS", ("/no/such/folder", "/dev/fd"))
    assert descriptor_path.descriptor_path(7) == "/dev/fd/7"


def test_where_the_kernel_does_not_tell_the_sender_of_a_notice_the_notice_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_socket, "_PASS_CREDENTIALS", None)
    with closing(NotifyReceiver()) as receiver:
        folder = Path(receiver.name).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        NotifySender({NOTIFY_SOCKET: receiver.name}).notify("READY=1")
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as stranger:
            stranger.sendto(b"READY=1", receiver.name)
        assert list(receiver.notices()) == [(os.getpid(), {"READY": "1"})]
    assert not folder.exists()


def test_without_probes_all_counts_as_cached_and_a_file_is_loaded_by_reading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def only_to_sockets(*_: int) -> int:
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))

    def noted_pread(fd: int, count: int, position: int) -> bytes:
        positions.append(position)
        return pread(fd, count, position)

    path, pread = tmp_path / "file", os.pread
    positions: list[int] = []
    path.write_bytes(bytes(600_000))
    monkeypatch.setattr(page_cache, "_NOWAIT", None)
    monkeypatch.setattr(os, "sendfile", only_to_sockets)
    monkeypatch.delattr(os, "posix_fadvise")
    monkeypatch.setattr(os, "pread", noted_pread)
    with path.open("rb") as file:
        assert page_cache.is_cached(file.fileno(), 0, 600_000)
        page_cache.request_readahead(file.fileno(), 0, 600_000)
        page_cache.load(file.fileno(), 100, 900_000)
    assert positions == [100, 262_244, 524_388, 600_000]


def test_without_sync_file_range_nothing_is_written_back_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_sync_file_range", lambda: None)
    assert not page_cache.write_back(0, 0, 0)


def test_without_preadv_a_buffer_is_filled_by_a_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "preadv")
    path, buffer = tmp_path / "file", bytearray(8)
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        assert OsFiles.read_into(file.fileno(), memoryview(buffer), 4) == 6
    assert buffer == b"456789\0\0"


FULL_FSYNC = 51  # F_FULLFSYNC of macOS


@pytest.mark.parametrize("code", [0, errno.ENOTSUP, errno.EIO])
def test_a_flush_reaches_the_disk_where_fsync_alone_does_not(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls = []

    def full_fsync(fd: int, command: int) -> None:
        calls.append(command)
        if code:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(ports, "_FULL_FSYNC", FULL_FSYNC)
    monkeypatch.setattr(fcntl, "fcntl", full_fsync)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(0))
    if code == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            OsFiles.fsync(0)
    else:
        OsFiles.fsync(0)
    assert calls == ([FULL_FSYNC, 0] if code == errno.ENOTSUP else [FULL_FSYNC])


def test_where_the_hard_limit_of_descriptors_is_refused_the_one_of_macos_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [256, resource.RLIM_INFINITY]

    def set_limits(_: int, values: tuple[int, int]) -> None:
        if values[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = values

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    assert raise_descriptor_limit() == 10_240
    assert limits == [10_240, resource.RLIM_INFINITY]


def test_without_proc_processes_are_listed_by_ps_and_none_is_found_by_its_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path / "none")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert processes.listener_on(server.getsockname()[1]) is None
    assert processes.process_text(os.getpid()) == f"pid {os.getpid()}"
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        assert list(processes.processes_of_session(sleeper.pid)) == [sleeper.pid]
    finally:
        sleeper.kill()
        sleeper.wait()
