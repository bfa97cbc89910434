"""Writes and compiles the function that decodes one version of a message: flat, all structs in nested loops.

A peer's numbers are not trusted: a length is compared with the remaining bytes before anything is allocated, and a
count with the least size of that many elements. The schema alone decides how deep structs nest.
As an element may take one byte here and hundreds in memory, there is a limit to all elements of a message together.
It keeps the worst request of few bytes below 50 MB, and decoded within half a second. Requests of clients have hundreds
of elements, those between brokers one for each partition: lists of numbers, such as replicas, hardly count.
Tagged fields have a limit of their own, in each structure and in the header.
A string that is not UTF-8 is seldom, so that the message is then decoded once more, with replacement characters.
A message without records is read from `bytes`, the fastest to take strings from; one with records from a memoryview,
so that they come out as slices of it.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct

from leadline.model import NO_ID
from leadline.wire import primitives, schema
from leadline.wire.classes import Decoder, Message, message_class
from leadline.wire.codegen import CODES, SourceLines
from leadline.wire.schema import EMPTY


def compile_decoder(kind: type[Message], version: int, *, is_lenient: bool = False) -> Decoder:
    """`is_lenient`: takes strings that are not UTF-8 as well, which costs more for all of them."""
    title = f"{kind.__name__} v{version}, decode{' leniently' if is_lenient else ''}"
    function = _Writer(kind, version, is_lenient).source.compile(title, "decode")
    return function  # type: ignore[return-value]


@cache
def _lenient(name: str, version: int) -> Decoder:
    return compile_decoder(message_class(name), version, is_lenient=True)


class _Writer:
    def __init__(self, kind: type[Message], version: int, is_lenient: bool) -> None:
        self.kind, self.version, self.is_lenient = kind, version, is_lenient
        self.is_flexible = version in kind.FLEXIBLE
        self.has_records = any(
            field.kind == "records" for inner in kind.structs.values() for field in inner.SPEC.fields
        )
        self.source = SourceLines(
            {
                **vars(primitives),
                **kind.structs,
                "new": object.__new__,
                "NO_ID": NO_ID,
                "StructError": struct.error,
                "decode_leniently": lambda data, p: _lenient(kind.__name__, version)(data, p),
            }
        )
        self._run: list[tuple[str, str]] = []  # neighbours of fixed size: code and target
        self._ids: list[str] = []  # targets in the run that hold 16 bytes and shall hold an id
        self._function()

    def _function(self) -> None:
        line, block = self.source.line, self.source.block
        what = f"{self.kind.__name__} v{self.version}"
        form = "memoryview" if self.has_records else "bytes"
        with block("def decode(data, p):"):
            with block(f"if type(data) is not {form}:"):
                line(f"data = {form}(data)")
            line("start, end = p, len(data)")
            line(f"left = {primitives.MOST_ELEMENTS}")
            with block("try:"):
                self._struct(self.kind.SPEC, "m", what)
                line("return m, p")
            with block("except (StructError, IndexError):"):
                line(f"raise truncated({what!r}, p, end) from None")
            with block("except UnicodeDecodeError:"):
                line("return decode_leniently(data, start)")

    def _struct(self, spec: schema.StructSchema, target: str, path: str) -> None:
        self._flush()
        self.source.line(f"{target} = new({spec.name})")
        for field in spec.absent(self.version):
            self.source.line(f"{target}.{field.name} = {_default(field)}")
        for field in spec.present(self.version):
            self._field(field, f"{target}.{field.name}", f"{path} {field.name}")
        if self.is_flexible:
            self._tags(spec, target, path)
        self._flush()

    def _field(self, field: schema.FieldSchema, target: str, path: str) -> None:
        is_nullable = self.version in field.nullable
        is_compact = self.is_flexible and not field.is_rigid
        if field.is_array:
            self._array(field, target, is_nullable, path)
        elif field.struct is not None:
            self._one_struct(field.struct, target, is_nullable, path)
        elif field.kind in CODES:
            self._fixed(field.kind, target)
        else:
            self._lengthy(field.kind, target, is_nullable, is_compact, path)

    def _fixed(self, kind: str, target: str) -> None:
        self._run.append((CODES[kind], target))
        if kind == "uuid":
            self._ids.append(target)

    def _flush(self) -> None:
        """Reads the values gathered until now, in one call."""
        if [code for code, _ in self._run] == ["B"]:
            self.source.line(f"{self._run[0][1]} = data[p]")
            self.source.line("p += 1")
        elif self._run:
            layout = "".join(code for code, _ in self._run)
            targets = ", ".join(target for _, target in self._run)
            unpack = self.source.method(layout, "unpack_from")
            self.source.line(f"{targets}{',' if len(self._run) == 1 else ''} = {unpack}(data, p)")
            self.source.line(f"p += {Struct('>' + layout).size}")
            for target in self._ids:
                self.source.line(f"{target} = id_of({target})")
        self._run.clear()
        self._ids.clear()

    def _length(self, code: str, is_compact: bool, path: str) -> str:
        """Reads a length, or -1, into a local name."""
        n = self.source.fresh("n")
        self._run.append(("B" if is_compact else code, n))
        self._flush()
        if is_compact:
            with self.source.block(f"if {n} > 127:"):
                self.source.line(f"{n}, p = read_varint(data, p - 1, {path!r})")
            self.source.line(f"{n} -= 1")
        return n

    @contextmanager
    def _unless_null(self, n: str, target: str, is_nullable: bool) -> Iterator[None]:
        if not is_nullable:
            yield
            return
        with self.source.block(f"if {n} == -1:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            yield

    def _lengthy(self, kind: str, target: str, is_nullable: bool, is_compact: bool, path: str) -> None:
        """A string, bytes or records."""
        line, block = self.source.line, self.source.block
        n = self._length("h" if kind == "string" else "i", is_compact, path)
        with self._unless_null(n, target, is_nullable):
            with block(f"if not 0 <= {n} <= end - p:"):
                line(f"raise bad_length({path!r}, p, {n}, end)")
            if kind == "string" and is_compact:
                with block(f"if {n} > {primitives.MAX_STRING}:"):
                    line(f"raise too_long({path!r}, p, {n})")
            piece = f"data[p : p + {n}]"
            line(f"{target} = {self._converted(kind, piece)}")
            line(f"p += {n}")

    def _converted(self, kind: str, piece: str) -> str:
        if kind == "string" and self.is_lenient:
            return f"text({piece})"
        if kind == "string":
            return f"str({piece}, 'utf-8')" if self.has_records else f"{piece}.decode()"
        return f"bytes({piece})" if kind == "bytes" and self.has_records else piece

    def _array(self, field: schema.FieldSchema, target: str, is_nullable: bool, path: str) -> None:
        line, block = self.source.line, self.source.block
        n = self._length("i", self.is_flexible, path)
        with self._unless_null(n, target, is_nullable):
            least = self._least_of(field.kind, field.struct)
            assert least > 0, f"{path}: elements that take no bytes could be any number"
            with block(f"if not 0 <= {n} * {least} <= end - p:"):
                line(f"raise bad_length({path!r}, p, {n}, end)")
            if field.kind in CODES and field.kind != "uuid":
                self._count(f"{n} >> 2", path)  # numbers are made many at a time, and take less memory
                line(f"{target} = [*numbers({n}, {CODES[field.kind]!r}).unpack_from(data, p)]")
                line(f"p += {n} * {least}")
            else:
                self._count(n, path)
                self._elements(field, target, n, path)

    def _elements(self, field: schema.FieldSchema, target: str, n: str, path: str) -> None:
        elements, element = self.source.fresh("a"), self.source.fresh("x")
        self.source.line(f"{elements} = {target} = []")
        with self.source.block(f"for _ in range({n}):"):
            if field.struct is not None:
                self._struct(field.struct, element, path)
            elif field.kind in CODES:
                self._fixed(field.kind, element)
            else:
                self._lengthy(field.kind, element, False, self.is_flexible, path)
            self._flush()
            self.source.line(f"{elements}.append({element})")

    def _one_struct(self, spec: schema.StructSchema, target: str, is_nullable: bool, path: str) -> None:
        value = self.source.fresh("x")
        if not is_nullable:
            self._struct(spec, value, path)
            self.source.line(f"{target} = {value}")
            return
        mark = self.source.fresh("n")
        self._run.append(("b", mark))
        self._flush()
        self.source.line(f"{value} = None")
        with self.source.block(f"if {mark} >= 0:"):
            self._struct(spec, value, path)
        self.source.line(f"{target} = {value}")

    def _tags(self, spec: schema.StructSchema, target: str, path: str) -> None:
        """The count of tagged fields is read together with the values before it, as it is nearly always 0."""
        line, block = self.source.line, self.source.block
        fields = spec.tagged(self.version)
        for field in fields:
            line(f"{target}.{field.name} = {_default(field)}")
        count = self.source.fresh("t")
        self._run.append(("B", count))
        self._flush()
        with block(f"if {count}:"):
            line(f"{count}, p = read_varint(data, p - 1, {path!r})")
            with block(f"if {count} * 2 > end - p:"):
                line(f"raise bad_length({path!r}, p, {count}, end)")
            with block(f"if {count} > {primitives.MOST_TAGS}:"):
                line(f"raise too_many_tags({path!r}, p, {count})")
            self._count(count, path)
            if fields:
                self._known_tags(fields, target, count, path)
            else:
                line(f"p = skip_tags(data, p, {count}, {path!r})")

    def _count(self, n: str, path: str) -> None:
        """Subtracts `n` elements from the rest."""
        self.source.line(f"left -= {n}")
        with self.source.block("if left < 0:"):
            self.source.line(f"raise too_many({path!r}, p, {n})")

    def _known_tags(self, fields: list[schema.FieldSchema], target: str, count: str, path: str) -> None:
        line, block, fresh = self.source.line, self.source.block, self.source.fresh
        tag, stop, tags_read = fresh("t"), fresh("t"), fresh("t")
        line(f"{tags_read} = 0")
        with block(f"for _ in range({count}):"):
            line(f"{tag}, p = read_varint(data, p, {path!r})")
            line(f"{stop}, p = read_varint(data, p, {path!r})")
            with block(f"if {stop} > end - p:"):
                line(f"raise bad_length({path!r}, p, {stop}, end)")
            line(f"{stop} += p")
            for i, field in enumerate(fields):
                with block(f"{'elif' if i else 'if'} {tag} == {field.tag}:"):
                    with block(f"if {tags_read} & {1 << i}:"):
                        line(f"raise duplicate_tag({path!r}, p)")
                    line(f"{tags_read} |= {1 << i}")
                    self._field(field, f"{target}.{field.name}", f"{path} {field.name}")
                    self._flush()
                    with block(f"if p != {stop}:"):
                        line(f"raise bad_tag_size({path!r}, p, {stop})")
            line(f"p = {stop}")

    def _least_of(self, kind: str, spec: schema.StructSchema | None) -> int:
        """The fewest bytes that a value takes."""
        if spec is not None:
            return sum(map(self._least, spec.present(self.version))) + self.is_flexible
        if kind in CODES:
            return Struct(">" + CODES[kind]).size
        return 1 if self.is_flexible else 2 if kind == "string" else 4

    def _least(self, field: schema.FieldSchema) -> int:
        if field.is_array:
            return 1 if self.is_flexible else 4
        if field.struct is not None and self.version in field.nullable:
            return 1
        return self._least_of(field.kind, field.struct)


def _default(field: schema.FieldSchema) -> str:
    if field.default == EMPTY:
        return "[]" if field.is_array else f"{field.kind}.DEFAULT"
    return "NO_ID" if field.default == NO_ID else repr(field.default)
