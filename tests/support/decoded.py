"""Records as the decoder hands them out, for tests of what becomes of them."""

import pyarrow as pa

from leadline.spark.batches.decode import SCHEMA_WITH_HEADERS


def decoded(*values: bytes | None, keys: "list[bytes | None] | None" = None, first: int = 100) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array([1_700_000_000_000] * count, pa.timestamp("ms", "UTC")),
        "timestamp_type": pa.array([0] * count, pa.int32()),
        "key": pa.array(keys or [b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[]] * count, SCHEMA_WITH_HEADERS.field("headers").type),
    }
    return pa.record_batch(list(columns.values()), schema=SCHEMA_WITH_HEADERS)
