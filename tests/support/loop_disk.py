"""A disk of its own for a process: ext4 in a file, mounted through a loop device. It can fail as real disks do.

disk = LoopDisk(path / "broker1.img", path / "broker1")
disk.make()
disk.fill()             all room is taken, until `free`
disk.make_read_only()   the kernel finds an error, and takes no write any more (EROFS)
disk.fail()             nothing can be read or written any more (EIO), and what was not synced is lost
disk.repair()           it is unmounted, checked and mounted again: nobody may use it meanwhile

Law: what was synced before it failed is there after the repair; ext4's journal is replayed as after a power failure.
"""

import ctypes
import fcntl
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from struct import pack

MEGABYTE = 1 << 20
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
WITHOUT_FLUSH = 2  # its argument: not even the journal is written
BALLAST = "ballast"
CLONE_NEWNS = 0x00020000

_libc = ctypes.CDLL(None, use_errno=True)


def own_mounts() -> None:
    """What this process mounts from now on is its own, and ends with it and with what it starts.

    Only before it has other threads.
    """
    if _libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")


class LoopDisk:
    def __init__(self, image: Path, mount: Path, megabytes: int = 256) -> None:
        self.image, self.mount, self.megabytes = image, mount, megabytes

    def make(self) -> None:
        self.mount.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(self.megabytes * MEGABYTE)
        _run("mkfs.ext4", "-q", "-m", "0", "-J", "size=4", str(self.image))
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,discard,errors=remount-ro", str(self.image), str(self.mount))
        with suppress(FileNotFoundError):
            (self.mount / "lost+found").rmdir()  # Apache Kafka takes it for a partition with a wrong name

    def fill(self) -> None:
        """To the last block."""
        with (self.mount / BALLAST).open("wb") as file:
            room = shutil.disk_usage(self.mount).free
            while room >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), room)
                except OSError:
                    room //= 2

    def free(self) -> None:
        (self.mount / BALLAST).unlink(missing_ok=True)

    def make_read_only(self) -> None:
        device = os.path.basename(_output("findmnt", "-no", "SOURCE", str(self.mount)))
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("on request")

    def fail(self) -> None:
        descriptor = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, pack("I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def repair(self) -> None:
        self.remove()
        done = subprocess.run(["fsck.ext4", "-y", str(self.image)], capture_output=True, text=True)
        if done.returncode > 1:  # 1: errors were corrected
            raise RuntimeError(f"fsck of {self.image}: {done.stdout}{done.stderr}")
        self._mount()

    def remove(self) -> None:
        _run("umount", str(self.mount))


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _run(*command: str) -> None:
    _output(*command)
