"""The counts of arrays in requests: where they stand, from the schema, for tests that announce more than they send."""

from collections.abc import Iterator
from struct import pack
from typing import NamedTuple

from leadline.wire import schema
from leadline.wire.primitives import write_varint

SIZES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16}


class ArrayPlace(NamedTuple):
    """An array of a message in one version."""

    path: str
    front: bytes  # all that stands before the count
    is_compact: bool
    is_tagged: bool  # the size of the field belongs between `front` and the count
    element: bytes  # the smallest

    def __str__(self) -> str:
        return self.path

    def body(self, count: int, rest: bytes) -> bytes:
        announced = write_varint(count + 1) if self.is_compact else pack(">i", count)
        size = write_varint(len(announced) + len(rest)) if self.is_tagged else b""
        return self.front + size + announced + rest


def arrays_of(name: str, version: int) -> Iterator[ArrayPlace]:
    """Each array of a message, those inside the elements of others, too."""
    message = schema.message(name)
    yield from _Walk(version, version in message.head.flexible).arrays(message.root, name, b"")


class _Walk(NamedTuple):
    version: int
    is_flexible: bool

    def arrays(self, struct: schema.StructSchema, path: str, front: bytes) -> Iterator[ArrayPlace]:
        for field in struct.present(self.version):
            yield from self._inside(field, f"{path}.{field.name}", front)
            front += self._smallest(field)
        for field in struct.tagged(self.version):
            assert field.tag is not None
            if field.is_array:
                yield self._place(field, f"{path}.{field.name}", front + b"\1" + write_varint(field.tag), True)

    def _inside(self, field: schema.FieldSchema, path: str, front: bytes) -> Iterator[ArrayPlace]:
        if field.is_array:
            yield self._place(field, path, front, False)
            front += b"\2" if self.is_flexible else pack(">i", 1)
        elif field.struct is not None and self.version in field.nullable:
            front += b"\1"
        if field.struct is not None:
            yield from self.arrays(field.struct, path, front)

    def _place(self, field: schema.FieldSchema, path: str, front: bytes, is_tagged: bool) -> ArrayPlace:
        return ArrayPlace(path, front, self.is_flexible, is_tagged, self._element(field))

    def _smallest(self, field: schema.FieldSchema) -> bytes:
        if field.is_array:
            return b"\1" if self.is_flexible else bytes(4)
        if field.struct is not None and self.version in field.nullable:
            return b"\1" + self._element(field)
        return self._element(field)

    def _element(self, field: schema.FieldSchema) -> bytes:
        if field.struct is not None:
            parts = b"".join(map(self._smallest, field.struct.present(self.version)))
            return parts + (b"\0" if self.is_flexible else b"")
        if field.kind in SIZES:
            return bytes(SIZES[field.kind])
        if self.is_flexible and not field.is_rigid:
            return b"\1"
        return bytes(2 if field.kind == "string" else 4)
