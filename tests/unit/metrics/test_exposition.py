"""The text forms, read back by the parsers of Prometheus' own client library."""

import math

import pytest
from prometheus_client import openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from leadline.metrics.exposition import LINES, TextForm, accepted_form, exposed
from leadline.metrics.families import FamilySamples, FamilySet, labels_text, one

FAMILIES = FamilySet("Test")
BYTES = FAMILIES.counter("kafka_server_bytesin_total", "Bytes", "topic")
COUNT = FAMILIES.counter("kafka_times_count", "How many")
LEADERS = FAMILIES.gauge("kafka_leaders", "Leaders")

SAMPLES: list[FamilySamples | None] = [
    (BYTES, [("", 12), (labels_text(topic='a"b\\c\nd'), 7)]),
    None,
    one(COUNT, 3),
    one(LEADERS, 0.25),
]


def text_of(form: TextForm) -> str:
    return "".join(exposed(SAMPLES, form))


def test_prometheus_reads_names_labels_and_values() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text_of(TextForm.PROMETHEUS))}
    samples = [(sample.name, sample.labels, sample.value) for sample in families["kafka_server_bytesin"].samples]
    assert samples == [
        ("kafka_server_bytesin_total", {}, 12),
        ("kafka_server_bytesin_total", {"topic": 'a"b\\c\nd'}, 7),
    ]
    assert families["kafka_leaders"].type == "gauge"
    assert families["kafka_leaders"].documentation == "Leaders"


def test_openmetrics_has_the_same_samples() -> None:
    families = list(openmetrics_families(text_of(TextForm.OPENMETRICS)))  # type: ignore[no-untyped-call]
    assert {family.name: family.type for family in families} == {
        "kafka_server_bytesin": "counter",
        "kafka_times_count": "unknown",
        "kafka_leaders": "gauge",
    }
    names = [sample.name for family in families for sample in family.samples]
    assert names == ["kafka_server_bytesin_total"] * 2 + ["kafka_times_count", "kafka_leaders"]


def test_a_number_that_is_none_is_written_as_prometheus_reads_it() -> None:
    values = [math.nan, math.inf, -math.inf]
    text = "".join(
        exposed([(LEADERS, [(labels_text(n=n), value) for n, value in enumerate(values)])], TextForm.PROMETHEUS)
    )
    (family,) = text_string_to_metric_families(text)
    assert [str(sample.value) for sample in family.samples] == ["nan", "inf", "-inf"]


def test_many_samples_come_in_portions_and_a_family_has_one_head() -> None:
    samples = [(labels_text(n=n), n) for n in range(3 * LINES + 1)]
    portions = list(exposed([(LEADERS, samples)], TextForm.PROMETHEUS))
    assert len(portions) == 4
    assert "".join(portions).count("# TYPE") == 1


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TextForm.PROMETHEUS),
        ("*/*", TextForm.PROMETHEUS),
        ("text/plain", TextForm.PROMETHEUS),
        ("application/openmetrics-text", TextForm.OPENMETRICS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            TextForm.OPENMETRICS,
        ),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", TextForm.PROMETHEUS),
        ("application/openmetrics-text;q=0", TextForm.PROMETHEUS),
        ("application/openmetrics-text;q=much", TextForm.PROMETHEUS),
        (",;,q=,", TextForm.PROMETHEUS),
    ],
)
def test_the_client_chooses_the_form(accept: str, form: TextForm) -> None:
    assert accepted_form(accept) is form


def test_the_content_types_are_those_of_prometheus_own_library() -> None:
    assert TextForm.OPENMETRICS.value == openmetrics.exposition.CONTENT_TYPE_LATEST
