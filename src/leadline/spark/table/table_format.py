"""The table formats, by name."""

from leadline.spark.table.table import Table

TABLE_FORMATS = ("delta", "iceberg")


def open_table(kind: str, uri: str) -> Table:
    """A table that exists or can be created. The libraries of its format are loaded only now."""
    if kind == "iceberg":
        from leadline.spark.table.iceberg import Iceberg

        return Iceberg(uri)
    from leadline.spark.table.delta import Delta

    return Delta(uri)
