"""CRC-32C, the checksum of batches: compiled here where the processor has an instruction for it, else by a library.

Both take the same time. The library takes a third of the start of a compaction process to import.

Pure: chooses.
"""

from collections.abc import Callable
from importlib import import_module

from leadline.model import Buffer
from leadline.records.compiled_part import compiled_walker


def _chosen() -> Callable[[Buffer], int]:
    if compiled_walker is not None and compiled_walker.HAS_CRC_INSTRUCTION:
        return compiled_walker.crc32c
    library: Callable[[Buffer], int] = import_module("crc32c").crc32c
    return library


crc32c = _chosen()
