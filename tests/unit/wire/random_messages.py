"""Messages with random content, made from the schema: every field of a version, and none that it lacks."""

import random
import string
from collections.abc import Callable
from uuid import UUID

from leadline.wire import schema
from leadline.wire.classes import Message, Struct, message_class
from leadline.wire.schema import EMPTY

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ALPHABET = string.ascii_letters + string.digits + "äß€漢😀\0\n"
MESSAGES = list(schema.heads())
VERSIONS_OF_MESSAGES = [(name, version) for name, head in schema.heads().items() for version in head.versions]


class RandomValues:
    """`is_tame`: small numbers and short strings, which are also valid as times and enums."""

    def __init__(self, seed: int | str, *, is_tame: bool = False, most: int = 3) -> None:
        self.random = random.Random(seed)
        self.is_tame, self.most = is_tame, most

    def message(self, name: str, version: int) -> Message:
        message = self._struct(message_class(name), message_class(name), version)
        assert isinstance(message, Message)
        return message

    def _struct(self, kind: type[Struct], root: type[Message], version: int) -> Struct:
        make: Callable[..., Struct] = kind
        fields = [field for field in kind.SPEC.fields if version in field.versions]
        return make(**{field.name: self._field(field, root, version) for field in fields})

    def _field(self, field: schema.FieldSchema, root: type[Message], version: int) -> object:
        if version in field.nullable and self.random.random() < 0.25:
            return None
        if field.tag is not None and self.random.random() < 0.3 and field.default != EMPTY:
            return field.default
        if not field.is_array:
            return self._value(field, root, version)
        return [self._value(field, root, version) for _ in range(self.random.randint(0, self._most(field)))]

    def _most(self, field: schema.FieldSchema) -> int:
        is_long = field.struct is None and not self.is_tame and self.random.random() < 0.05
        return 300 if is_long else self.most

    def _value(self, field: schema.FieldSchema, root: type[Message], version: int) -> object:
        if field.struct is not None:
            return self._struct(root.structs[field.kind], root, version)
        if field.kind in BITS:
            return self._integer(field)
        if field.kind == "string":
            return "".join(self.random.choices(ALPHABET[:62] if self.is_tame else ALPHABET, k=self._length()))
        others: dict[str, Callable[[], object]] = {
            "bool": lambda: self.random.random() < 0.5,
            "uint16": lambda: self.random.randrange(2**16),
            "float64": lambda: self.random.uniform(-1e9, 1e9),
            "uuid": lambda: UUID(int=self.random.getrandbits(128)),
            "bytes": lambda: self.random.randbytes(self._length()),
            "records": lambda: self.random.randbytes(self._length()),
        }
        return others[field.kind]()

    def _integer(self, field: schema.FieldSchema) -> int:
        if self.is_tame:
            return 0 if "error_code" in field.name else self.random.randint(1, 100)
        half = 1 << BITS[field.kind] - 1
        return self.random.choice((0, 1, -1, half - 1, -half, self.random.randrange(-half, half)))

    def _length(self) -> int:
        return self.random.choice((0, 1, 5, 20) if self.is_tame else (0, 1, 5, 20, 126, 127, 128, 300))
