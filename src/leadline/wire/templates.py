"""Templates: messages whose bytes are always the same except for some numbers.

A template matches a message by comparing the constant bytes, and writes one by filling the numbers in. It is made from
a specimen that the codec writes, with `LONG` in place of each number of eight bytes and `INT` in place of each number
of four. So a template knows no format. Neither marker is UTF-8, and neither starts with a byte that occurs elsewhere in
a marker. If the number of blanks is the expected one, then every blank is a number field.
"""

import re
from collections.abc import Sequence
from struct import Struct

from leadline.model import Buffer

LONG, INT = 0x7B01_D2C3_94A5_E6F8, 0x6C1E_9D3A

_LONG, _INT = LONG.to_bytes(8), INT.to_bytes(4)
_BLANK = re.compile(b"(" + re.escape(_LONG) + b"|" + re.escape(_INT) + b")")


class Template:
    __slots__ = ("_constants", "_parts", "_struct", "blanks")

    def __init__(self, specimen: Buffer) -> None:
        parts = _BLANK.split(specimen)  # constant bytes and blanks alternate
        kinds = ("q" if part == _LONG else "i" if part == _INT else f"{len(part)}s" for part in parts)
        self._struct = Struct(">" + "".join(kinds))
        self._constants = tuple(parts[::2])
        self._parts: list[bytes | int] = [*parts]
        self.blanks = len(parts) // 2

    def match(self, data: Buffer) -> tuple[int, ...] | None:
        """The numbers in a message of this template; None for any other message."""
        if len(data) != self._struct.size:
            return None
        fields = self._struct.unpack_from(data)
        return fields[1::2] if fields[::2] == self._constants else None

    def fill(self, numbers: Sequence[int]) -> bytes:
        parts = self._parts.copy()
        parts[1::2] = numbers
        return self._struct.pack(*parts)
