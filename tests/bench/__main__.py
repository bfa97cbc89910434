"""Runs the benchmarks: `python -m tests.bench [NAME...]`, from the repository's root.

Prints both sides of every ratio. A goal that is missed is said, and is no failure; that the two sides did not do the
same work is one.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.bench import (
    appending,
    authorization,
    cleaning,
    cluster,
    controlling,
    opening,
    partitions,
    reading,
    recovery,
    spark_files,
    spark_topics,
)
from tests.bench.load import (
    codecs,
    disturbed,
    flushed,
    groups,
    guarantees,
    neighbour,
    paced,
    secured,
    several_brokers,
    start,
    steady,
)
from tests.bench.results import Row, heading, table
from tests.bench.run import Progress, Run
from tests.bench.sides import DifferentWork
from tests.conformance.kafka import jars

NEEDED_BYTES = 4_000_000_000

BENCHMARKS: dict[str, tuple[Callable[[Run], list[Row]], str]] = {
    "recovery": (recovery.measure, "open a log after an unclean stop; goal: twice as fast as Kafka"),
    "open": (opening.measure, "open 1,000 partitions after a clean stop; goal: below 2 s"),
    "partitions": (partitions.measure, "50,000 partitions with 4,096 descriptors; goal: 25 s to start, 8 KB each"),
    "append": (appending.measure, "append as leader and as follower"),
    "read": (reading.measure, "find what to send for an offset, and send it"),
    "cleaner": (cleaning.measure, "compact a log; goal: 1.5 times Kafka's speed"),
    "decode": (spark_files.measure_decoding, "batches into columns; goal: 2 million records/s a core, compiled 6"),
    "audit": (spark_files.measure_audit, "check the files of replicas; goal: 500 MB/s a core"),
    "topics": (spark_topics.measure, "topics into Spark and Parquet; goal: twice Spark's connector, streams 1.5 times"),
    "start": (start.measure, "start a broker; goal: below 0.5 s to its first answer"),
    "load": (steady.measure, "produce to a broker and fetch from it; goal: several times Kafka's speed"),
    "codecs": (codecs.measure, "produce with each codec; goal: twice Kafka's rate for half its CPU"),
    "crowd": (steady.measure_in_a_crowd, "the same with 2,000 connections and partitions; goal: a fifth less at most"),
    "flush": (flushed.measure, "flush.messages=1 with 1, 8 and 64 producers; goal: twice Kafka's rate from 8 on"),
    "guarantees": (guarantees.measure, "acks=all, idempotent, transactional; goal: twice Kafka's rate, half its CPU"),
    "secured": (secured.measure, "the same with TLS, logins and ACLs; goal: 0.7 of Kafka's CPU per MB, twice its rate"),
    "groups": (groups.measure, "let groups settle, commit offsets; goal: Kafka's speed"),
    "authorization": (authorization.measure, "what the authorizer adds to a request; goal: at most 1 us"),
    "paced": (paced.measure, "requests at fixed rates; goal: at most 1.3 times the CPU of a loop that always sleeps"),
    "controller": (controlling.measure, "the controller of 200,000 partitions; goal: linear, no turn above 50 ms"),
    "cluster": (cluster.measure, "three brokers, RF 3, acks=all; goal: 3 times Kafka's speed, 1 s without a leader"),
    "host": (several_brokers.measure, "1 and 2 brokers of one host beside one broker of Kafka"),
    "cold": (disturbed.measure_cold, "round trips while others read from the disk; goal: p99 at most tripled"),
    "neighbour": (neighbour.measure, "produce after another process wrote 2 GB; goal: Kafka's speed"),
    "flood": (disturbed.measure_flood, "round trips while others write in masses; goal: p99 at most tripled"),
}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones; all, if none is named")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it runs")
    parser.add_argument("--rounds", type=int, help="how often both sides are measured (5; quick: 2)")
    parser.add_argument("--dir", type=Path, help="where the logs are made, on the disk that matters (a temporary one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to a file")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(BENCHMARKS)})")
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


def machine() -> dict[str, object]:
    java = subprocess.run([jars.java(), "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "kafka": f"Apache Kafka {jars.VERSION}",
        "java": java.splitlines()[0],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "os": platform.platform(),
    }


def _processor() -> str:
    """On Linux only the kernel knows its name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    if options.list:
        print("\n".join(f"{name:14}{about}" for name, (_, about) in BENCHMARKS.items()))
        return 0
    progress, about = Progress(), machine()
    results: dict[str, list[dict[str, object]]] = {}
    print("; ".join(map(str, about.values())))
    print(f"load {os.getloadavg()[0]:.1f} before; {options.rounds} rounds, the two sides in turns")
    print("on a busy machine believe the best, in parentheses, and the CPU time rather than the median\n")
    print(heading(), flush=True)
    with tempfile.TemporaryDirectory(prefix="leadline-bench-", dir=options.dir) as scratch:
        if not options.quick and shutil.disk_usage(scratch).free < NEEDED_BYTES:
            print(f"too little room in {scratch}: {NEEDED_BYTES / 1e9:.0f} GB are needed; see --dir", file=sys.stderr)
            return 1
        for name in options.names or BENCHMARKS:
            folder = Path(scratch, name)
            folder.mkdir()
            rows = BENCHMARKS[name][0](Run(folder, options.quick, options.rounds, progress))
            progress.clear()
            print(table(name, rows, judged=not options.quick), flush=True)
            results[name] = [row.to_json() for row in rows]
            shutil.rmtree(folder)
    print(f"\nload {os.getloadavg()[0]:.1f} after")
    if options.json:
        report = {"quick": options.quick, "rounds": options.rounds, "machine": about, "benchmarks": results}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DifferentWork as error:
        sys.exit(f"\nthe two sides did not do the same work: {error}")
    except pytest.skip.Exception as missing:
        sys.exit(f"\nthe benchmarks cannot run here: {missing}")
