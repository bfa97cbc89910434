"""Lineage of a commit as OpenLineage events: which offsets of which topic became which table.

A commit is a run of the job that writes the table: one START event and one COMPLETE event, after version 2-0-2 of the
specification. Its run id is made from the table, its topic and the batch's number: a receiver recognises an event that
comes twice. Datasets have the names of OpenLineage's conventions: kafka://host:port and the topic; file, s3://bucket
and the like, and the path. A table in a catalog has the catalog's name.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from leadline import __version__
from leadline.spark.errors import without_credentials
from leadline.spark.ranges import Range

Event = dict[str, object]

SPEC = "https://openlineage.io/spec"
PRODUCER = f"urn:leadline:{__version__}"
RUN_EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
RUNS = uuid.uuid5(uuid.NAMESPACE_URL, "leadline:pipeline:run")


@dataclass(frozen=True, slots=True)
class CommitFacts:
    servers: str  # bootstrap.servers
    topic: str
    topic_id: str
    kind: str  # delta or iceberg
    table: str
    batch: int
    ranges: Sequence[Range]
    records: int
    dead: int
    files: int
    committed_ms: int
    seconds: float  # that the batch took


def events_of(commit: CommitFacts) -> list[Event]:
    """The START and the COMPLETE of the run, in this order."""
    ended = datetime.fromtimestamp(commit.committed_ms / 1000, UTC)
    return [
        _event(commit, "START", ended - timedelta(seconds=commit.seconds), {}, {}),
        _event(commit, "COMPLETE", ended, _input_facets(commit), _output_facets(commit)),
    ]


def _event(commit: CommitFacts, kind: str, at: datetime, read: Event, written: Event) -> Event:
    source, target = topic_dataset(commit.servers, commit.topic), table_dataset(commit.kind, commit.table)
    name = f"{without_credentials(commit.table)}:{commit.topic}:{commit.topic_id}:{commit.batch}"
    job_type = {"processingType": "STREAMING", "integration": "LEADLINE", "jobType": "TABLE"}
    return {
        "eventType": kind,
        "eventTime": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "producer": PRODUCER,
        "schemaURL": RUN_EVENT,
        "run": {"runId": str(uuid.uuid5(RUNS, name)), "facets": {}},
        "job": {
            "namespace": source["namespace"],
            "name": f"leadline.table.{commit.topic}",
            "facets": {"jobType": _facet("facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet", job_type)},
        },
        "inputs": [{**source, "inputFacets": read}],
        "outputs": [{**target, "outputFacets": written}],
    }


def _input_facets(commit: CommitFacts) -> Event:
    """The offsets are a facet of our own: the specification has none for them."""
    offsets = {str(range_.tp.partition): {"first": range_.first, "until": range_.until} for range_ in commit.ranges}
    return {"leadline_offsets": _facet("2-0-2/OpenLineage.json#/$defs/InputDatasetFacet", {"partitions": offsets})}


def _output_facets(commit: CommitFacts) -> Event:
    statistics = {"rowCount": commit.records - commit.dead, "fileCount": commit.files}
    place = "facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
    batch = {"batch": commit.batch, "deadLetters": commit.dead}
    return {
        "outputStatistics": _facet(place, statistics),
        "leadline_batch": _facet("2-0-2/OpenLineage.json#/$defs/OutputDatasetFacet", batch),
    }


def _facet(place: str, values: Mapping[str, object]) -> Event:
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/{place}", **values}


def topic_dataset(servers: str, topic: str) -> dict[str, str]:
    """The first server names the cluster, as in OpenLineage's own integrations."""
    return {"namespace": f"kafka://{servers.split(',')[0].strip().rpartition('://')[2]}", "name": topic}


def table_dataset(kind: str, table: str) -> dict[str, str]:
    place = urlsplit(table, allow_fragments=False)
    if place.scheme and "://" in table:
        if place.scheme == "file":
            return {"namespace": "file", "name": place.path}
        host = place.netloc if place.password is None else place.netloc.rpartition("@")[2]  # Azure: container@host
        return {"namespace": f"{place.scheme}://{host}", "name": place.path.lstrip("/")}
    catalog, colon, name = table.partition(":")
    if kind == "iceberg" and colon and "/" not in table:
        return {"namespace": f"iceberg://{catalog}", "name": name}
    return {"namespace": "file", "name": table}
