"""Metrics and health of `leadline pipeline run`, over HTTP."""

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from leadline.metrics.exposition import TextForm
from leadline.spark.jobs.job_metrics import FAMILIES, RunState, served_metrics
from leadline.spark.jobs.job_statistics import JobStatistics

WAIT_S = 60


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def values(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("topic", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def orders() -> JobStatistics:
    job = JobStatistics("orders", "s3://me:secret@lake/orders", 0)
    job.committed(10, 100, 1, lag_records=4, newest_ms=1_000, now_ms=2_000)
    job.files, job.file_bytes = 3, 300
    return job


def test_the_state_of_the_process_and_of_each_table_is_served() -> None:
    state = RunState(now_ms=lambda: 5_000)
    with served_metrics(state, "127.0.0.1", 0) as port:
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/readyz") == (503, "not ready: it starts Spark\n")
        assert "leadline_pipeline" not in get(port, "/metrics")[1]
        job = orders()
        state.jobs = lambda: [job]
        assert get(port, "/readyz") == (200, "ready\n")
        text = get(port, "/metrics")[1]
        job.failed("No space left")
        assert get(port, "/readyz") == (503, "not ready: no table is written: No space left\n")
        state.is_stopping = True
        assert get(port, "/readyz") == (503, "not ready: it stops\n")
    assert "secret" not in text
    of_orders = {name: value for (name, topic), value in values(text).items() if topic == "orders"}
    assert of_orders == {
        "leadline_pipeline_lag_records": 4,
        "leadline_pipeline_lag_seconds": 4,
        "leadline_pipeline_failing": 0,
        "leadline_pipeline_failures_total": 0,
        "leadline_pipeline_commits_total": 1,
        "leadline_pipeline_last_commit_time_seconds": 2,
        "leadline_pipeline_records_total": 10,
        "leadline_pipeline_bytes_total": 100,
        "leadline_pipeline_dead_letters_total": 1,
        "leadline_pipeline_late_changes_total": 0,
        "leadline_pipeline_repeated_changes_total": 0,
        "leadline_pipeline_files": 3,
        "leadline_pipeline_file_bytes": 300,
        "leadline_pipeline_compactions_total": 0,
        "leadline_pipeline_vacuumed_files_total": 0,
    }


def test_every_family_that_is_declared_is_served() -> None:
    state = RunState(lambda: [orders()])
    text = "".join(state.scrape(TextForm.PROMETHEUS))
    assert all(f"# TYPE {family.name} " in text for family in FAMILIES.families)


def test_one_table_in_trouble_does_not_make_the_process_unready() -> None:
    bad = JobStatistics("users", "/lake/users", 0)
    bad.failed("away")
    assert RunState(lambda: [orders(), bad]).reasons_not_ready() == []
    assert RunState(list).reasons_not_ready() == ["it has no topic yet"]
