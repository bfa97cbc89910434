"""Findings in log directories: segments from before Kafka 0.11, and directories that were formatted for KRaft.

Leadline neither opens nor replicates messages from before 0.11. The first batch of each segment is checked: its magic
is the byte at 16, in every message format. A log changes to a newer format as its brokers do, so older messages come
first.
"""

from collections.abc import Iterator
from pathlib import Path

from leadline.broker.identity import VERSION, ZOOKEEPERS_VERSION
from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.cli.migrate.settings_findings import KRAFT_CURE
from leadline.config.properties import decode_properties
from leadline.log.names import META_PROPERTIES_FILE
from leadline.records.batch import MAGIC

MAGIC_AT = 16
OLD_SEGMENT_CURE = "wait until retention has deleted them, or copy the topic to a new one: leadline pipeline mirror"


def judge_log_dir(directory: Path) -> Iterator[MigrationFinding]:
    """Raises OSError if the directory cannot be read."""
    meta = directory / META_PROPERTIES_FILE
    if meta.exists() and decode_properties(meta.read_bytes()).get(VERSION, ZOOKEEPERS_VERSION) != ZOOKEEPERS_VERSION:
        yield MigrationFinding(Severity.BLOCKS, Area.MODE, "formatted for KRaft", KRAFT_CURE, (str(directory),))
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        for segment in sorted(folder.glob("*.log")):
            with segment.open("rb") as file:
                head = file.read(MAGIC_AT + 1)
            if len(head) > MAGIC_AT and head[MAGIC_AT] < MAGIC:
                what = f"message format {head[MAGIC_AT]}, from before Kafka 0.11"
                yield MigrationFinding(Severity.BLOCKS, Area.STORAGE, what, OLD_SEGMENT_CURE, (str(segment),))
