"""CRC-32C, compiled or from the library: the same numbers."""

import os
from importlib import import_module

import pytest

from leadline.records.checksum import crc32c


@pytest.mark.parametrize(("data", "crc"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA)])
def test_the_checksum_is_castagnolis(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1023, 100_000])
def test_it_agrees_with_the_library_at_every_length_and_alignment(size: int) -> None:
    data = os.urandom(size + 8)
    library = import_module("crc32c").crc32c
    for start in range(8):
        view = memoryview(data)[start : start + size]
        assert crc32c(view) == library(view)
