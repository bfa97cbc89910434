"""Writes and compiles the function that encodes one version of a message: flat, all structs in nested loops.

It appends to the bytearray that it is given and returns the pieces of the whole; the first is that bytearray.
Messages are ours, so nothing is checked beyond what Python checks by itself: what does not fit raises somewhere, and
`misfit` then looks for the field at fault.

A SharedArray is encoded once, with the first request that contains it. The others copy the bytes.

For long messages there is a function that encodes in steps: it yields after each struct of an array.
"""

import struct

from leadline.model import NO_ID
from leadline.wire import primitives, schema
from leadline.wire.classes import Encoder, Message, SharedArray, StepEncoder
from leadline.wire.codegen import CODES, SourceLines
from leadline.wire.encode_errors import NotInVersion, misfit
from leadline.wire.schema import EMPTY


def compile_encoder(kind: type[Message], version: int) -> Encoder:
    function = _Writer(kind, version).source.compile(f"{kind.__name__} v{version}, encode", "encode")
    return function  # type: ignore[return-value]


def compile_step_encoder(kind: type[Message], version: int) -> StepEncoder:
    writer = _Writer(kind, version, in_steps=True)
    function = writer.source.compile(f"{kind.__name__} v{version}, encode in steps", "encode")
    return function  # type: ignore[return-value]


class _Writer:
    def __init__(self, kind: type[Message], version: int, *, in_steps: bool = False) -> None:
        self.kind, self.version, self._in_steps = kind, version, in_steps
        self.is_flexible = version in kind.FLEXIBLE
        names = {"NO_ID": NO_ID, "StructError": struct.error, "misfit": misfit, "SharedArray": SharedArray}
        self.source = SourceLines({**vars(primitives), **kind.structs, **names, "NotInVersion": NotInVersion})
        self._out = "out"  # where to write
        self._run: list[tuple[str, str]] = []  # neighbours of fixed size: code and expression
        self._function()

    def _function(self) -> None:
        line, block = self.source.line, self.source.block
        with block("def encode(m, out):"):
            with block("try:"):
                line("pieces = []")
                self._struct(self.kind.SPEC, "m", self.kind.__name__)
            with block("except (StructError, AttributeError, TypeError, ValueError) as error:"):
                line(f"raise misfit(m, {self.version}, error) from error")
            with block("if out:"):
                line("pieces.append(out)")
            line("return pieces")

    def _struct(self, spec: schema.StructSchema, value: str, path: str) -> None:
        for field in spec.absent(self.version):
            if not field.is_ignorable:
                with self.source.block(f"if {_differs(field, f'{value}.{field.name}')}:"):
                    self.source.line(f"raise NotInVersion({f'{path}.{field.name}'!r}, {self.version})")
        for field in spec.present(self.version):
            self._field(field, f"{value}.{field.name}", f"{path}.{field.name}")
        if self.is_flexible:
            self._tags(spec, value, path)
        self._flush()

    def _field(self, field: schema.FieldSchema, value: str, path: str) -> None:
        is_nullable = self.version in field.nullable
        is_compact = self.is_flexible and not field.is_rigid
        if field.is_array:
            self._array(field, value, is_nullable, path)
        elif field.struct is not None:
            self._one_struct(field.struct, value, is_nullable, path)
        elif field.kind in CODES:
            self._fixed(field.kind, value)
        elif field.kind == "records":
            assert self._out == "out", f"{path}: records in a tagged field cannot be a piece of their own"
            self._flush()
            self.source.line(f"out = put_records({value}, out, pieces, {is_compact}, {is_nullable})")
        else:
            self._lengthy(field.kind, value, is_nullable, is_compact)

    def _fixed(self, kind: str, value: str) -> None:
        self._run.append((CODES[kind], f"{value}.bytes" if kind == "uuid" else value))

    def _flush(self) -> None:
        """Writes the values gathered until now, in one call."""
        if [code for code, _ in self._run] == ["x"]:
            self.source.line(f"{self._out}.append(0)")
        elif self._run:
            pack = self.source.method("".join(code for code, _ in self._run), "pack")
            values = ", ".join(value for code, value in self._run if code != "x")
            self.source.line(f"{self._out} += {pack}({values})")
        self._run.clear()

    def _length(self, code: str, value: str, is_compact: bool) -> None:
        if not is_compact:
            self._run.append((code, f"len({value})"))
            self._flush()
            return
        self._flush()
        long = "string_length" if code == "h" else "array_length"
        n = self.source.fresh("n")
        self.source.line(f"{n} = len({value})")
        self.source.line(f"{self._out} += VARINTS[{n} + 1] if {n} < 127 else {long}({n})")

    def _null(self, code: str, is_compact: bool) -> None:
        null = b"\0" if is_compact else b"\xff\xff" if code == "h" else b"\xff\xff\xff\xff"
        self.source.line(f"{self._out} += {null!r}")

    def _lengthy(self, kind: str, value: str, is_nullable: bool, is_compact: bool) -> None:
        """A string or bytes."""
        line, block = self.source.line, self.source.block
        code = "h" if kind == "string" else "i"
        local = self.source.fresh("s")
        encoded = f"{value}.encode()" if kind == "string" else value
        if not is_nullable:
            line(f"{local} = {encoded}")
            self._length(code, local, is_compact)
            line(f"{self._out} += {local}")
            return
        self._flush()
        with block(f"if {value} is None:"):
            self._null(code, is_compact)
        with block("else:"):
            line(f"{local} = {encoded}")
            self._length(code, local, is_compact)
            line(f"{self._out} += {local}")

    def _array(self, field: schema.FieldSchema, value: str, is_nullable: bool, path: str) -> None:
        line, block = self.source.line, self.source.block
        local = self.source.fresh("a")
        line(f"{local} = {value}")
        if not is_nullable:
            self._elements(field, local, path)
            return
        self._flush()
        with block(f"if {local} is None:"):
            self._null("i", self.is_flexible)
        with block("else:"):
            self._elements(field, local, path)

    def _elements(self, field: schema.FieldSchema, values: str, path: str) -> None:
        if not self._may_be_shared(field):
            self._own_elements(field, values, path)
            return
        line, block = self.source.line, self.source.block
        self._flush()
        with block(f"if type({values}) is SharedArray:"):
            with block(f"if {values}.encoded_version != {self.version}:"):
                line(f"before = len({self._out})")
                self._own_elements(field, values, path)
                line(f"{values}.encoded_version, {values}.encoded = {self.version}, bytes({self._out}[before:])")
            with block("else:"):
                line(f"{self._out} += {values}.encoded")
        with block("else:"):
            self._own_elements(field, values, path)

    def _may_be_shared(self, field: schema.FieldSchema) -> bool:
        """Whether a field is in the topic states that the controller sends to many brokers."""
        return field.name == "topic_states" and field.struct is not None and self._out == "out"

    def _own_elements(self, field: schema.FieldSchema, values: str, path: str) -> None:
        self._length("i", values, self.is_flexible)
        if field.kind in CODES and field.kind != "uuid":
            self.source.line(f"{self._out} += numbers(len({values}), {CODES[field.kind]!r}).pack(*{values})")
            return
        element = self.source.fresh("x")
        with self.source.block(f"for {element} in {values}:"):
            if field.struct is not None:
                self._struct(field.struct, element, path)
            elif field.kind in CODES:
                self._fixed(field.kind, element)
            else:
                self._lengthy(field.kind, element, False, self.is_flexible)
            self._flush()
            if self._in_steps and field.struct is not None:
                self.source.line("yield")

    def _one_struct(self, spec: schema.StructSchema, value: str, is_nullable: bool, path: str) -> None:
        local = self.source.fresh("x")
        self.source.line(f"{local} = {value}")
        if not is_nullable:
            self._struct(spec, local, path)
            return
        self._flush()
        with self.source.block(f"if {local} is None:"):
            self.source.line(f"{self._out}.append(255)")
        with self.source.block("else:"):
            self.source.line(f"{self._out}.append(1)")
            self._struct(spec, local, path)

    def _tags(self, spec: schema.StructSchema, value: str, path: str) -> None:
        """Nearly always there are none to write: then their count is written together with the values before it."""
        line, block = self.source.line, self.source.block
        fields = spec.tagged(self.version)
        if not fields:
            self._run.append(("x", ""))
            return
        self._flush()
        all_default = " and ".join(_is_default_at_first_sight(field, f"{value}.{field.name}") for field in fields)
        with block(f"if {all_default}:"):
            line(f"{self._out}.append(0)")
        with block("else:"):
            count, all_tags, one = self.source.fresh("k"), self.source.fresh("g"), self.source.fresh("g")
            line(f"{count} = 0")
            line(f"{all_tags} = bytearray()")
            for field in fields:
                with block(f"if {_differs(field, f'{value}.{field.name}')}:"):
                    line(f"{count} += 1")
                    line(f"{one} = bytearray()")
                    before, self._out = self._out, one
                    self._field(field, f"{value}.{field.name}", f"{path}.{field.name}")
                    self._flush()
                    self._out = before
                    line(f"{all_tags} += write_varint({field.tag}) + write_varint(len({one})) + {one}")
            line(f"{self._out} += write_varint({count}) + {all_tags}")


def _differs(field: schema.FieldSchema, value: str) -> str:
    """The condition under which a field is not at its default."""
    if field.default is None:
        return f"{value} is not None"
    if field.default == EMPTY:
        if not field.is_array:
            return f"{value} is not {field.kind}.DEFAULT and {value} != {field.kind}.DEFAULT"
        return f"{value} is None or len({value})"
    return f"{value} != {'NO_ID' if field.default == NO_ID else repr(field.default)}"


def _is_default_at_first_sight(field: schema.FieldSchema, value: str) -> str:
    """Cheap, and wrong at most in one direction: a default that it does not recognise is compared again."""
    if field.struct is not None and not field.is_array and field.default == EMPTY:
        return f"{value} is {field.kind}.DEFAULT"
    return f"not ({_differs(field, value)})"
