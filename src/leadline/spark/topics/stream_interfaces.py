"""Spark's interfaces of streams in Python that came after Spark 4.0, and what takes their place in an older Spark.

4.1   DataSourceStreamArrowWriter: the writer of a stream gets Arrow batches
4.2   ReadLimit, SupportsTriggerAvailableNow: Spark tells the reader of a stream where a batch begins and how large it
      may be, and the reader where a run with the trigger availableNow ends
"""

import pyspark
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from leadline.spark.topics.options import ReadOptions
from leadline.spark.topics.source_options import BadOption

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
except ImportError:  # names alone: a Spark without them asks for none
    HAS_READ_LIMITS = False

    class ReadLimit: ...  # type: ignore[no-redef]

    class ReadAllAvailable(ReadLimit): ...  # type: ignore[no-redef]

    class ReadMaxBytes(ReadLimit): ...  # type: ignore[no-redef]

    class ReadMaxRows(ReadLimit): ...  # type: ignore[no-redef]

    class SupportsTriggerAvailableNow: ...  # type: ignore[no-redef]


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc, no-redef]
        """Spark 4.0 gives Arrow batches to each DataSourceArrowWriter, in streams as well."""


__all__ = [
    "HAS_READ_LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "check_limits",
]


def check_limits(options: ReadOptions) -> None:
    """BadOption if the options limit a batch, and this Spark has no limits.

    It could be done for all triggers but availableNow, of which the source is not told: there it would read one batch
    of that size and leave the rest.
    """
    limits = {
        "maxOffsetsPerTrigger": options.max_offsets,
        "maxBytesPerTrigger": options.max_bytes,
        "minOffsetsPerTrigger": options.min_offsets,
    }
    if not HAS_READ_LIMITS and (requested := [name for name, limit in limits.items() if limit is not None]):
        raise BadOption(
            f"{', '.join(requested)}: Spark {pyspark.__version__} has no limits of a batch for sources in Python. They "
            "need Spark 4.2 or newer. Without them, a batch is all that is there"
        )
