"""The table formats, by name, and the place of a table's dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leadline.spark.table.catalog_name import CatalogName
from leadline.spark.table.table import Table

TABLE_FORMATS = ("delta", "iceberg")
DEAD, DELETES = "_dead_letters", "_deletes"


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is, for this process and for tasks."""

    kind: str  # delta or iceberg
    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold secrets

    def open(self) -> Table:
        return open_table(self.kind, self.uri, self.options)

    @property
    def dead_letters(self) -> "TablePlace":
        return self._beside(DEAD)

    @property
    def deletes(self) -> "TablePlace":
        return self._beside(DELETES)

    def _beside(self, suffix: str) -> "TablePlace":
        name = CatalogName.of(self.uri) if self.kind == "iceberg" else None
        uri = self.uri.rstrip("/") + suffix if name is None else str(name.with_suffix(suffix))
        return TablePlace(self.kind, uri, self.options)


def open_table(kind: str, uri: str, options: Mapping[str, str] | None = None) -> Table:
    """A table that exists or can be created. The libraries of its format are loaded only now."""
    if kind == "iceberg":
        from leadline.spark.table.iceberg import Iceberg

        return Iceberg(uri, options)
    from leadline.spark.table.delta import Delta

    return Delta(uri, options)
