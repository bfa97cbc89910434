"""Python source in the making, for functions that are compiled at run time: lines, indentation, names.

Fixed-size values that stand next to each other on the wire are gathered and handled by one `struct.Struct`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct

# How `struct` writes the types of fixed size.
CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class SourceLines:
    def __init__(self, names: dict[str, object]) -> None:
        self.names = names  # what the function may refer to
        self._lines: list[str] = []
        self._indent = 0
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """A new local name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def method(self, layout: str, method: str) -> str:
        """The name of a bound method of the Struct with this layout."""
        name = f"{method}_{layout.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + layout), method)
        return name

    def compile(self, title: str, name: str) -> Callable[..., object]:
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.names)
        function = self.names[name]
        assert callable(function)
        return function
