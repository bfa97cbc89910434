"""The name of an Iceberg table in a catalog: CATALOG:NAMESPACE.NAME, where a namespace may have several parts.

A part with other characters than letters, digits, _ and - is in backticks, as in SQL. A backtick in it is doubled:

    prod:sales.orders    prod:sales.eu.orders    prod:`sales.eu`.`orders 2026`

Pure: text in, names out.
"""

import re
from dataclasses import dataclass, replace

from leadline.spark.table.table import TableError

PART = re.compile(r"`((?:[^`]|``)+)`|([^`.:/]+)")
PLAIN = re.compile(r"[\w-]+")
CATALOG = re.compile(r"([\w-]+):(?!/)(.*)", re.DOTALL)
EXPECTED = (
    "expected CATALOG:NAMESPACE.NAME, with backticks around a part that has other characters than letters and digits"
)


@dataclass(frozen=True, slots=True)
class CatalogName:
    catalog: str
    namespace: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, text: str) -> "CatalogName | None":
        """None: the text is a path or a URI."""
        match = CATALOG.fullmatch(text)
        if match is None or "/" in re.sub(r"`[^`]*`", "", text):
            return None
        parts = _parts(match[2])
        if parts is None or len(parts) < 2:
            raise TableError(f"{text} is not the name of a table: {EXPECTED}")
        return cls(match[1], tuple(parts[:-1]), parts[-1])

    @property
    def identifier(self) -> tuple[str, ...]:
        return (*self.namespace, self.name)

    def with_suffix(self, suffix: str) -> "CatalogName":
        return replace(self, name=self.name + suffix)

    def __str__(self) -> str:
        return f"{self.catalog}:{'.'.join(map(_quoted, self.identifier))}"


def _parts(text: str) -> list[str] | None:
    """None: the text is not a list of names."""
    parts, position = list[str](), 0
    while (match := PART.match(text, position)) is not None:
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            return None
        position += 1
    return None


def _quoted(part: str) -> str:
    return part if PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`"
