"""A path that names a descriptor of this process: for libraries that take paths alone."""

import os

FOLDERS = (
    "/proc/self/fd",
    "/dev/fd",
)  # the first one on Linux; macOS has the second


def descriptor_path(fd: int) -> str:
    return next((f"{folder}/{fd}" for folder in FOLDERS if os.path.isdir(folder)), f"{FOLDERS[-1]}/{fd}")
