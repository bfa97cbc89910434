"""Python as it is on a system that is not Linux: the calls and constants that only Linux has are taken away.

`python -m tests.support.other_system` does that before it imports Leadline. It then runs the command of its arguments.
Without arguments it runs a cluster, and prints the lengths of what was read back from it.
"""

import errno
import fcntl
import mmap
import os
import select
import selectors
import socket
import sys
from importlib import import_module
from types import ModuleType

LINUX_ONLY: dict[ModuleType, tuple[str, ...]] = {
    errno: ("ENONET", "EBADFD"),
    mmap: ("MADV_DONTFORK", "MADV_REMOVE"),
    os: (
        *("RWF_NOWAIT", "RWF_DSYNC", "posix_fadvise", "POSIX_FADV_WILLNEED", "posix_fallocate", "preadv", "pwritev"),
        *("memfd_create", "MFD_CLOEXEC", "pipe2", "eventfd", "sched_yield", "sched_getaffinity", "sched_setaffinity"),
        *("pidfd_open", "splice", "copy_file_range", "O_DIRECT", "O_PATH", "O_TMPFILE", "O_NOATIME", "fdatasync"),
    ),
    select: ("epoll", "EPOLLIN", "EPOLLOUT", "EPOLLET"),
    selectors: ("EpollSelector",),
    socket: (
        *("MSG_MORE", "SOCK_NONBLOCK", "SOCK_CLOEXEC", "TCP_CONGESTION", "TCP_CORK", "TCP_QUICKACK"),
        *("SO_PASSCRED", "SCM_CREDENTIALS", "SO_PEERCRED", "SO_BINDTODEVICE", "TCP_INFO"),
    ),
    fcntl: ("F_SETPIPE_SZ", "F_OFD_SETLK", "F_ADD_SEALS"),
}


def take_away() -> None:
    for module, names in LINUX_ONLY.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[assignment, misc]
    of_linux = os.sendfile

    def to_sockets(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        """As on macOS: a file is sent to sockets alone, and a count of 0 would mean all."""
        assert count > 0
        try:
            socket.socket(fileno=os.dup(out_fd)).close()
        except OSError:
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK)) from None
        return of_linux(out_fd, in_fd, offset, count)

    os.sendfile = to_sockets  # type: ignore[assignment]


def run_a_cluster() -> None:
    from leadline.runtime import descriptor_path
    from leadline.testing import LocalCluster

    descriptor_path.FOLDERS = ("/dev/fd", "/dev/fd")
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=2)
        cluster.produce("orders", ["one", ("anna", "two"), "x" * 200_000])
        cluster.broker(1).restart()
        print([len(value or "") for value in cluster.values("orders")])


if __name__ == "__main__":
    take_away()
    if sys.argv[1:]:
        sys.exit(import_module("leadline.cli").main())
    run_a_cluster()
