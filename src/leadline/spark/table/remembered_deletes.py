"""The deletes of a table by key that the table itself does not show: TABLE_deletes, a table beside it.

A row for each delete that was the newest change of its key, and for each truncate (without a key). It is appended to
before the table gets the batch, with the batch's number and its end, as dead letters are: a batch that comes again
finds its own deletes there, and knows them by their offsets.
"""

from dataclasses import replace

import pyarrow as pa

from leadline.spark.table.change_events import CHANGE_COLUMNS
from leadline.spark.table.payload import BESIDE
from leadline.spark.table.table import OriginColumns, TableOrigin

DELETES_COLUMNS = OriginColumns.of("debezium")
DELETES = pa.schema([*(BESIDE.field(name) for name in DELETES_COLUMNS.names), *CHANGE_COLUMNS])


def deletes_origin(origin: TableOrigin) -> TableOrigin:
    return replace(origin, format="debezium", mode="append", partition_by="none", history_columns="", masks="")
