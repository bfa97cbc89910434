"""A stream from one topic to another, until somebody ends it: test_stream_under_faults.py starts and kills it.

python -m tests.spark.topic_to_topic SERVERS TOPIC OUT CHECKPOINT (on | end)
"""

import sys

from leadline.spark.session import session
from leadline.spark.topics.stream_interfaces import HAS_READ_LIMITS
from tests.spark.conftest import SMALL


def main(servers: str, topic: str, out: str, checkpoint: str, until: str) -> None:
    spark = session("under faults", master="local[2,4]", settings=SMALL)
    cluster = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("leadline").options(**cluster, subscribe=topic, startingOffsets="earliest")
    if (
        until == "on" and HAS_READ_LIMITS
    ):  # many batches, so that one is under way at any moment; else all that is left is one batch
        rows = rows.option("maxOffsetsPerTrigger", "50")
    writer = rows.load().writeStream.format("leadline").options(**cluster, topic=out)
    trigger = writer.trigger(availableNow=True) if until == "end" else writer.trigger(processingTime="0 seconds")
    trigger.option("checkpointLocation", checkpoint).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
