"""leadline pipeline mirror: copies topics to another cluster, exactly once, with a map of the offsets."""

import argparse
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, size_text, time_text
from leadline.admin.json_values import Json
from leadline.admin.times import duration_ms
from leadline.cli.options import add_command, at_least
from leadline.cli.output import add_output_option
from leadline.cli.pipeline.job import (
    ProgressLine,
    add_spark_options,
    check_reachable,
    client_properties,
    job,
    lag_text,
    print_totals,
    start_spark,
    stop_spark,
    until_ended,
)

if TYPE_CHECKING:
    from leadline.spark.mirror.mirror import Mirror, MirrorSpec, RoundSummary
    from leadline.spark.topics.options import TopicSelection

EXAMPLES = """
  leadline pipeline mirror orders,users --to far:9092           and new records, until Ctrl-C
  leadline pipeline mirror orders --to far:9092 --once          all records, then exit
  leadline pipeline mirror --pattern 'shop-.*' --to far:9092 --groups '.*'      with the offsets of groups
  leadline pipeline mirror orders --to far:9092 --prefix near.  as near.orders
  leadline pipeline mirror orders --to far:9093 --to-config far.properties
"""
DESCRIPTION = """\
Copy topics of a source cluster to a target cluster, from their first record, and keep the copies up to date.

Partitions, order, keys, values, headers, times and compression stay the same. Each record is copied once: records, the
map of their offsets and the progress are one transaction of the target. The source needs no state. After a crash the
same command continues where the copy ends. A second mirror with the same name takes over from the first. Topics that
the target lacks are created with the same partitions and settings.

The topic leadline-mirror-NAME of the target holds the map of the offsets. With --groups, groups can continue on the
target where they stopped on the source. Groups that have members on the target are left alone."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "mirror",
        run,
        help="copy topics to another cluster, exactly once, with a map of the offsets",
        usage="pipeline mirror (TOPICS | --pattern REGEX) --to HOST:PORT [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
    )
    parser.add_argument("topics", metavar="TOPICS", nargs="?", help="names of topics, separated by commas")
    parser.add_argument(
        "--pattern",
        type=regular_expression,
        metavar="REGEX",
        help="all topics whose whole name matches, including later ones",
    )
    target = parser.add_argument_group("the target cluster")
    target.add_argument("--to", metavar="HOST:PORT", required=True, help="addresses of brokers, separated by commas")
    target.add_argument(
        "--to-config", metavar="FILE", type=Path, help="file of client properties, such as security settings"
    )
    target.add_argument(
        "--to-property", action="append", default=[], metavar="KEY=VALUE", help="one client property; repeatable"
    )
    target.add_argument("--prefix", default="", metavar="TEXT", help="prefix of the topics' names on the target")
    copying = parser.add_argument_group("how to copy")
    copying.add_argument(
        "--name", type=mirror_name, metavar="NAME", help="name of this mirror (default: made from the topics)"
    )
    copying.add_argument(
        "--groups", type=regular_expression, metavar="REGEX", help="copy the committed offsets of matching groups"
    )
    copying.add_argument("--once", action="store_true", help="process what is available, then exit")
    copying.add_argument(
        "--interval", type=duration_ms, default=2000, metavar="TIME", help="poll interval (default 2s)"
    )
    copying.add_argument(
        "--batch-bytes", type=at_least(1), default=256 << 20, metavar="N", help="maximum bytes per transaction"
    )
    copying.add_argument(
        "--staging", metavar="DIR", help="directory that driver and executors share (default: a local one)"
    )
    copying.add_argument(
        "--allow-data-loss", action="store_true", help="continue if records were deleted before they were read"
    )
    add_output_option(parser)
    add_spark_options(parser)


@dataclass(slots=True)
class MirrorTotals:
    """What all rounds of a run did."""

    rounds: int = 0
    records: int = 0
    size: int = 0

    def add(self, summary: "RoundSummary") -> None:
        self.rounds += bool(summary.records)
        self.records += summary.records
        self.size += summary.size

    def line(self, summary: "RoundSummary", seconds: float) -> str:
        rate = f"{self.records / max(seconds, 0.001):,.0f}/s"
        behind = lag_text(summary.lag_offsets, summary.lag_bytes, summary.newest_ms)
        busy = f"; groups with members are not changed: {', '.join(summary.busy_groups)}" if summary.busy_groups else ""
        return f"{count_text(self.records, 'record')} ({size_text(self.size)}), {rate}; {behind}{busy}"

    def summary(self, options: argparse.Namespace, seconds: float) -> str:
        what = options.topics or options.pattern
        return (
            f"{what} to {options.to}: {count_text(self.records, 'record')} ({size_text(self.size)}) "
            f"in {count_text(self.rounds, 'transaction')}, in {time_text(seconds)}"
        )

    def json(self, options: argparse.Namespace, seconds: float) -> Json:
        return {
            "topics": options.topics or options.pattern,
            "to": options.to,
            "records": self.records,
            "bytes": self.size,
            "transactions": self.rounds,
            "seconds": round(seconds, 3),
        }


@job
def run(options: argparse.Namespace) -> int:
    source, target = clusters_of(options)
    if source["bootstrap.servers"] == target["bootstrap.servers"] and not options.prefix:
        raise Failure(f"--to {options.to}: a topic cannot be copied onto itself; --prefix gives the copy another name")
    _topics(options)
    for properties in (source, target):
        check_reachable(properties, options.timeout)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.mirror.mirror import Mirror, on_spark

    spec = spec_of(options)
    with ExitStack() as resources:
        source, target = (
            resources.enter_context(ClusterClient(spec.source)),
            resources.enter_context(ClusterClient(spec.target)),
        )
        spark = start_spark(options, f"mirror {spec.name}")
        resources.callback(stop_spark, spark)
        return _follow(options, Mirror(spec, on_spark(spark), source, target))


def clusters_of(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """The client properties of the source and of the target."""
    target_options = argparse.Namespace(
        bootstrap_server=options.to,
        command_config=options.to_config,
        property=options.to_property,
        timeout=options.timeout,
    )
    return client_properties(options), client_properties(target_options)


def spec_of(options: argparse.Namespace) -> "MirrorSpec":
    from leadline.spark.mirror.mirror import MirrorSpec

    source, target = clusters_of(options)
    return MirrorSpec(
        name=_name(options),
        source=source,
        target=target,
        topics=_topics(options),
        prefix=options.prefix,
        groups=options.groups,
        batch_bytes=options.batch_bytes,
        fail_on_data_loss=not options.allow_data_loss,
        staging=options.staging,
    )


def _topics(options: argparse.Namespace) -> "TopicSelection":
    from leadline.spark.topics.options import SubscribedTopics, TopicPattern

    if (options.topics is None) == (options.pattern is None):
        raise Failure("exactly one is needed: names of topics, or --pattern")
    if options.topics is None:
        return TopicPattern(options.pattern)
    names = tuple(filter(None, (name.strip() for name in options.topics.split(","))))
    if not names:
        raise Failure(f"{options.topics!r} names no topic: expected names, separated by commas")
    return SubscribedTopics(names)


def regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def mirror_name(text: str) -> str:
    """It becomes part of a topic's name on the target."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected letters, digits, dots, dashes and underscores")
    return text


def _name(options: argparse.Namespace) -> str:
    """The default is made from the topics, so mirrors of other topics have other names."""
    name: str | None = options.name
    return name or re.sub(r"[^a-zA-Z0-9._-]+", "-", f"{options.prefix}{options.topics or options.pattern}")[:200]


def _follow(options: argparse.Namespace, mirror: "Mirror") -> int:
    """Copy until everything is copied (--once) or Ctrl-C, then print a summary."""
    totals, started = MirrorTotals(), time.monotonic()

    def work() -> None:
        mirror.load()
        with ProgressLine() as line:
            while True:
                summary = mirror.round()
                totals.add(summary)
                line.show(totals.line(summary, time.monotonic() - started))
                if summary.lag_offsets:
                    continue
                if options.once:
                    break
                time.sleep(options.interval / 1000)

    code = until_ended(work, endless=not options.once)
    seconds = time.monotonic() - started
    print_totals(options, totals.json(options, seconds), totals.summary(options, seconds))
    return code
