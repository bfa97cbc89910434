"""Kafka's tool that fetches from all replicas of partitions and compares what they hold. It runs until it is killed."""

import subprocess

from . import jars
from .tools import TOOLS

DIFFERENCES = ("doesn't match replica", "unmatched checksum")


def verified(bootstrap: str, topic: str) -> str:
    """The first report after what there is has been compared. Fails if the tool finds a difference."""
    where = ("--broker-list", bootstrap, "--topics-include", topic, "--time", "-2")
    called = jars.command(TOOLS["replica-verification"], *where, "--report-interval-ms", "500")
    process = subprocess.Popen(called, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            assert not any(text in line for text in DIFFERENCES), line
            if "max lag is 0" in line:
                return line.strip().partition(": ")[2]
    finally:
        process.kill()
        process.communicate()
    raise AssertionError("the tool ended without a report")
