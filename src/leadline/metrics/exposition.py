"""The text forms of metrics: Prometheus' own, and OpenMetrics. Both have the same samples.

    # HELP name meaning
    # TYPE name kind
    name{label="value"} 1

OpenMetrics names a counter without its `_total`, and ends with `# EOF`. A counter whose name does not end so, such as
the count of a histogram as JMX has it, has no kind: readers would expect another name.

Pure: families in, text out.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from math import isfinite, isnan

from leadline.metrics.families import Family, FamilyKind, FamilySamples, Sample
from leadline.runtime.steps import portions

LINES = 100  # of one portion
TOTAL = "_total"


class TextForm(Enum):
    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_WITHOUT_KIND = {TextForm.PROMETHEUS: "untyped", TextForm.OPENMETRICS: "unknown"}


def accepted_form(accept: str) -> TextForm:
    """The form that a client prefers: OpenMetrics if it names it, and does not prefer plain text."""
    qualities = dict(map(_media_range, accept.split(",")))
    openmetrics = qualities.get("application/openmetrics-text", 0.0)
    others = max(qualities.get("text/plain", 0.0), qualities.get("text/*", 0.0))
    return TextForm.OPENMETRICS if openmetrics > 0 and openmetrics >= others else TextForm.PROMETHEUS


def _media_range(text: str) -> tuple[str, float]:
    media_type, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return media_type, float(quality)
    except ValueError:
        return media_type, 0.0


def exposed(collected: Iterable[FamilySamples | None], form: TextForm) -> Iterator[str]:
    """The text, portion by portion. An empty one: a step of the work is done."""
    for family_samples in collected:
        if family_samples is None:
            yield ""
            continue
        family, samples = family_samples
        head = _head(family, form)
        for portion in portions(samples, LINES):
            yield head + "".join([_line(family.name, sample) for sample in portion])
            head = ""
    if form is TextForm.OPENMETRICS:
        yield "# EOF\n"


def _head(family: Family, form: TextForm) -> str:
    name, kind = family.name, family.kind.value
    if family.kind is FamilyKind.COUNTER:
        if not name.endswith(TOTAL):
            kind = _WITHOUT_KIND[form]
        elif form is TextForm.OPENMETRICS:
            name = name.removesuffix(TOTAL)
    return f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n"


def _line(name: str, sample: Sample) -> str:
    labels, value = sample
    return f"{name}{labels} {value if value.__class__ is int else number_text(value)}\n"


def number_text(value: float) -> str:
    if isfinite(value):
        return repr(float(value))
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
