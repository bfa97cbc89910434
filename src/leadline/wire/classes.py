"""Makes the classes of a message, from its part of the schema, when it is first asked for.

Keyword arguments only, all with the defaults of the schema; equal if all fields are; shown without defaults.
The structs of a message are attributes of its class, all on one level: `FetchRequest.FetchPartition`.

A field that holds a struct holds, by default, one that is shared and refuses to be changed: assign a new one.
So the encoder knows a default by its identity, and a partition of a fetch does not carry three structs of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import ClassVar, NoReturn, TypeVar, dataclass_transform

from leadline.model import NO_ID, Buffer
from leadline.runtime.steps import Steps
from leadline.wire import schema
from leadline.wire.primitives import Piece
from leadline.wire.schema import EMPTY

Decoder = Callable[[Buffer, int], "tuple[Message, int]"]
Encoder = Callable[["Message", bytearray], list[Piece]]
StepEncoder = Callable[["Message", bytearray], Steps[list[Piece]]]


@dataclass_transform(kw_only_default=True)
class Struct:
    """What all messages and the structs in them have in common."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    SPEC: ClassVar[schema.StructSchema]
    DEFAULT: ClassVar["Struct"]  # shared, and not to be changed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.SPEC is not other.SPEC:
            return NotImplemented
        return all(value == theirs for (_, value), (_, theirs) in zip(self._items(), other._items(), strict=True))

    def __repr__(self) -> str:
        shown = (
            f"{name}={value!r}"
            for (name, value), (_, default) in zip(self._items(), self.DEFAULT._items(), strict=True)
            if value != default
        )
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _items(self) -> Iterator[tuple[str, object]]:
        return ((field.name, getattr(self, field.name)) for field in self.SPEC.fields)


class Message(Struct):
    """One that stands alone: a request, a response, a header, the content of a record or of a bytes field."""

    __slots__ = ()
    API_KEY: ClassVar[int | None]
    VERSIONS: ClassVar[range]
    FLEXIBLE: ClassVar[range]  # versions with compact lengths and tagged fields
    structs: ClassVar[dict[str, type[Struct]]]
    decoders: ClassVar[dict[int, Decoder]]  # by version, once compiled
    encoders: ClassVar[dict[int, Encoder]]
    step_encoders: ClassVar[dict[int, StepEncoder]]  # for long messages


S = TypeVar("S", bound=Struct)
T = TypeVar("T")
NOT_ENCODED = -1


class SharedArray(list[T]):
    """The topic states of several requests. They are encoded once for all of them, and must not change afterwards."""

    __slots__ = ("encoded", "encoded_version")

    def __init__(self, elements: Iterable[T] = ()) -> None:
        super().__init__(elements)
        self.encoded_version = NOT_ENCODED  # of the request
        self.encoded = b""


@cache
def message_class(name: str) -> type[Message]:
    """KeyError if there is no such message."""
    spec = schema.message(name)
    namespace: dict[str, object] = {
        "Struct": Struct,
        "Message": Message,
        "EMPTY": EMPTY,
        "NO_ID": NO_ID,
        "default": _default,
        "__name__": "leadline.wire.messages",
    }
    source = "\n".join(line for struct in spec.structs for line in _source(struct, spec.root))
    exec(compile(source, f"<classes of {name}>", "exec"), namespace)
    kind = namespace[name]
    assert isinstance(kind, type)
    assert issubclass(kind, Message)
    kind.API_KEY, kind.VERSIONS, kind.FLEXIBLE = spec.head.api_key, spec.head.versions, spec.head.flexible
    kind.structs, kind.decoders, kind.encoders, kind.step_encoders = {}, {}, {}, {}
    for struct in spec.structs:
        inner = namespace[struct.name]
        assert isinstance(inner, type)
        assert issubclass(inner, Struct)
        inner.SPEC, kind.structs[struct.name] = struct, inner
        if inner is not kind:
            setattr(kind, struct.name, inner)
    return kind


def _source(struct: schema.StructSchema, root: schema.StructSchema) -> Iterator[str]:
    names = [field.name for field in struct.fields]
    yield f"class {struct.name}({'Message' if struct is root else 'Struct'}):"
    yield f"    __qualname__ = {(struct.name if struct is root else f'{root.name}.{struct.name}')!r}"
    yield f"    __slots__ = {tuple(names)!r}"
    if names:
        yield f"    def __init__(self, *, {', '.join(map(_argument, struct.fields))}):"
        yield from (f"        self.{field.name} = {_value(field)}" for field in struct.fields)
    yield f"{struct.name}.DEFAULT = default({struct.name})"


def _argument(field: schema.FieldSchema) -> str:
    if field.default == EMPTY:
        return f"{field.name}={'EMPTY' if field.is_array else f'{field.kind}.DEFAULT'}"
    return f"{field.name}={'NO_ID' if field.default == NO_ID else repr(field.default)}"


def _value(field: schema.FieldSchema) -> str:
    """A list of its own for each new message."""
    return f"[] if {field.name} is EMPTY else {field.name}" if field.is_array else field.name


def _default(kind: type[S]) -> S:
    """A struct of defaults that stays one."""

    def refuse(self: Struct, name: str, value: object) -> NoReturn:
        raise AttributeError(f"this {kind.__qualname__} is the default of many: assign a new one")

    def reduce(self: Struct) -> tuple[type[Struct], tuple[()]]:
        return kind, ()

    shared = kind()
    body = {"__slots__": (), "__qualname__": kind.__qualname__, "__setattr__": refuse, "__reduce__": reduce}
    object.__setattr__(shared, "__class__", type(kind.__name__, (kind,), body))
    return shared
