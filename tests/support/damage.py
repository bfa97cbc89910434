"""Damage: batches that are wrong inside although their checksum is right, files with bytes that do not belong there."""

import random
from pathlib import Path
from struct import pack_into

from leadline.records.batch import CRC_AT, crc_of


def with_right_crc(batch: bytearray) -> bytearray:
    pack_into(">I", batch, CRC_AT, crc_of(batch, 0, len(batch)))
    return batch


def spoil(path: Path, rnd: random.Random) -> None:
    """Bytes lost, changed, put in or repeated."""
    data = bytearray(path.read_bytes())
    at, end = sorted(rnd.randrange(len(data) + 1) for _ in range(2))
    match rnd.randrange(6):
        case 0:
            del data[at:]
        case 1:
            data[at : at + 4] = rnd.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4), b"\x80\0\0\0"])
        case 2:
            data[at:end] = rnd.randbytes(rnd.randrange(200))
        case 3:
            data[at:at] = data[at:end]
        case 4:
            data += bytes(rnd.randrange(500))
        case 5:
            data[at:end] = bytes(end - at)
    path.write_bytes(data)
