"""Forms: bytes that are always the same but for some numbers.

What is said again and again with other numbers is understood by comparing the rest, and written by filling them in. A
form is made of a specimen, which the codec writes as it writes anything: with `LONG` where a number of eight bytes will
stand and `INT` where one of four will. So a form knows no format. Neither of the two is UTF-8, nor begins with a byte
that either has elsewhere: a specimen with as many blanks as it should have, has each where it should be.
"""

import re
from collections.abc import Sequence
from struct import Struct

from leadline.model import Buffer

LONG, INT = 0x7B01_D2C3_94A5_E6F8, 0x6C1E_9D3A

_LONG, _INT = LONG.to_bytes(8), INT.to_bytes(4)
_BLANK = re.compile(b"(" + re.escape(_LONG) + b"|" + re.escape(_INT) + b")")


class Form:
    __slots__ = ("_constants", "_parts", "_struct", "blanks")

    def __init__(self, specimen: Buffer) -> None:
        parts = _BLANK.split(specimen)  # by turns what stays and a blank
        kinds = ("q" if part == _LONG else "i" if part == _INT else f"{len(part)}s" for part in parts)
        self._struct = Struct(">" + "".join(kinds))
        self._constants = tuple(parts[::2])
        self._parts: list[bytes | int] = [*parts]
        self.blanks = len(parts) // 2

    def read(self, data: Buffer) -> tuple[int, ...] | None:
        """The numbers, if this is the form that was filled in."""
        if len(data) != self._struct.size:
            return None
        found = self._struct.unpack_from(data)
        return found[1::2] if found[::2] == self._constants else None

    def fill(self, numbers: Sequence[int]) -> bytes:
        parts = self._parts.copy()
        parts[1::2] = numbers
        return self._struct.pack(*parts)
