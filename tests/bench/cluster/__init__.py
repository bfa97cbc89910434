"""Three brokers each, every record on all of them: what copies cost, and what they are good for."""

from tests.bench.cluster import failures, steady
from tests.bench.cluster.clusters import two_clusters
from tests.bench.results import Row
from tests.bench.run import Run


def measure(run: Run) -> list[Row]:
    with two_clusters(run.folder) as (ours, theirs):
        return [*steady.measure(run, ours, theirs), *failures.measure(run, ours, theirs)]
