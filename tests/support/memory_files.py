"""A disk in the memory of one process: no path of it exists in the system, and no descriptor is one of the system's.

What asks the system instead of the port therefore fails.
"""

from leadline.runtime.ports import SystemTime
from leadline.simulation.virtual_disk import TOTAL_BYTES, MountedDisk, VirtualDisk

__all__ = ["TOTAL_BYTES", "MemoryFiles"]


class MemoryFiles(MountedDisk):
    def __init__(self) -> None:
        super().__init__(VirtualDisk(SystemTime()), "memory")
