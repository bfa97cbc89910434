"""Reads all error codes of a response, except NONE.

A function of plain loops is compiled for each kind of response when it is first asked for.
"""

from collections.abc import Callable, Iterator
from functools import cache

from leadline.wire.classes import Message, message_class
from leadline.wire.schema import StructSchema

ERROR_CODE = "error_code"

ReadErrorCodes = Callable[[Message], list[int]]


def error_codes(message: Message) -> list[int]:
    return _reader(type(message).__name__)(message)


@cache
def _reader(name: str) -> ReadErrorCodes:
    lines = ["def read(element0):", "    codes = []", *_loops(message_class(name).SPEC, 0), "    return codes"]
    namespace: dict[str, ReadErrorCodes] = {}
    exec(compile("\n".join(lines), f"<error codes of {name}>", "exec"), namespace)
    return namespace["read"]


def _loops(struct: StructSchema, depth: int) -> Iterator[str]:
    indent, element = "    " * (depth + 1), f"element{depth}"
    if any(field.name == ERROR_CODE and not field.is_array for field in struct.fields):
        yield f"{indent}if {element}.{ERROR_CODE}:"
        yield f"{indent}    codes.append({element}.{ERROR_CODE})"
    for field in struct.fields:
        if field.struct is not None and field.is_array and (inner := list(_loops(field.struct, depth + 1))):
            yield f"{indent}for element{depth + 1} in {element}.{field.name} or ():"
            yield from inner
