"""Where tables live, by the name of their format."""

from leadline.spark.table.table import Table

TABLE_FORMATS = ("delta", "iceberg")


def open_table(kind: str, uri: str) -> Table:
    """A table that is there, or may be created. What its format needs is loaded now."""
    if kind == "iceberg":
        from leadline.spark.table.iceberg import Iceberg

        return Iceberg(uri)
    from leadline.spark.table.delta import Delta

    return Delta(uri)
