"""Notices by the protocol of sd_notify(3)."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from leadline.runtime.notify_socket import MAX_NOTICE_BYTES, NOTIFY_SOCKET, NotifyReceiver, NotifySender


def test_a_notice_arrives_with_the_process_that_sent_it() -> None:
    with closing(NotifyReceiver()) as receiver:
        sender = NotifySender({NOTIFY_SOCKET: receiver.name})
        sender.notify("READY=1", "STATUS=serves 3 partitions of a=b")
        sender.notify("STOPPING=1")
        assert list(receiver.notices()) == [
            (os.getpid(), {"READY": "1", "STATUS": "serves 3 partitions of a=b"}),
            (os.getpid(), {"STOPPING": "1"}),
        ]
        assert list(receiver.notices()) == []


def test_a_notice_arrives_at_a_path_as_systemd_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a path of a socket is short
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind("notify")
        NotifySender({NOTIFY_SOCKET: "notify"}).notify("STATUS=one\nline", "READY=1")
        assert manager.recv(MAX_NOTICE_BYTES) == b"STATUS=one line\nREADY=1"


@pytest.mark.parametrize("environment", [{}, {NOTIFY_SOCKET: ""}, {NOTIFY_SOCKET: "@nobody/listens/here"}])
def test_without_a_reader_nothing_happens(environment: dict[str, str]) -> None:
    NotifySender(environment).notify("READY=1")


def test_a_notice_that_no_reader_has_room_for_is_dropped() -> None:
    with closing(NotifyReceiver()) as receiver:
        sender = NotifySender({NOTIFY_SOCKET: receiver.name})
        for _ in range(10_000):
            sender.notify("STATUS=" + "x" * 2 * MAX_NOTICE_BYTES)
        notices = list(receiver.notices())
    assert 0 < len(notices) < 10_000
    assert len(notices[0][1]["STATUS"]) == MAX_NOTICE_BYTES - len("STATUS=")
