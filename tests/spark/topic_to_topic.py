"""A stream from one topic to another, until somebody ends it: what the test under fire starts and kills.

python -m tests.spark.topic_to_topic SERVERS TOPIC OUT CHECKPOINT (on | end)
"""

import sys

from leadline.spark.session import session
from tests.spark.conftest import QUICK_TO_START, SMALL


def main(servers: str, topic: str, out: str, checkpoint: str, until: str) -> None:
    spark = session("under fire", master="local[2,4]", settings=SMALL, java_options=QUICK_TO_START)
    given = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("leadline").options(**given, subscribe=topic, startingOffsets="earliest")
    writer = rows.option("maxOffsetsPerTrigger", "50").load().writeStream.format("leadline").options(**given, topic=out)
    trigger = writer.trigger(availableNow=True) if until == "end" else writer.trigger(processingTime="0 seconds")
    trigger.option("checkpointLocation", checkpoint).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
