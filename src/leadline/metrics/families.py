"""What a metric is: a family of samples with one name, one kind and one meaning.

Names are those that Prometheus' JMX exporter derives from Kafka's own, by its usual rules for Kafka: the domain, the
type and the name of the MBean in lower case. A meter, `BytesInPerSec`, becomes a counter that ends in `_total`. A
histogram becomes a gauge with the label `quantile`, and a counter that ends in `_count`.

Pure: names, labels and values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}  # as Kafka has them
NO_LABELS = ""

Sample = tuple[str, float]  # the labels as text, and the value
FamilySamples = tuple["Family", Iterable[Sample]]
Collected = Iterator[FamilySamples | None]  # None: a step of the work is done, and there is nothing to write yet


class FamilyKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"


class Family(NamedTuple):
    name: str
    kind: FamilyKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramFamilies:
    """The families of a duration in milliseconds. JMX has no sum; it is added for averages."""

    quantiles: Family
    count: Family
    sum: Family


class FamilySet:
    """The families of one collector, in the order in which they are declared."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.families: list[Family] = []

    def counter(self, name: str, help: str, *labels: str) -> Family:
        return self._add(Family(name, FamilyKind.COUNTER, help, labels))

    def gauge(self, name: str, help: str, *labels: str) -> Family:
        return self._add(Family(name, FamilyKind.GAUGE, help, labels))

    def histogram(self, name: str, help: str, *labels: str) -> HistogramFamilies:
        return HistogramFamilies(
            self.gauge(name, f"{help}, in milliseconds: percentiles of the last minutes", *labels, "quantile"),
            self.counter(f"{name}_count", f"{help}: how many there were", *labels),
            self.counter(f"{name}_sum", f"{help}: the sum, in milliseconds", *labels),
        )

    def _add(self, family: Family) -> Family:
        self.families.append(family)
        return family


def labels_text(**labels: object) -> str:
    """As the text form has them. Labels without a value are left out."""
    pairs = [f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value is not None]
    return f"{{{','.join(pairs)}}}" if pairs else NO_LABELS


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def one(family: Family, value: float, **labels: object) -> FamilySamples:
    """A family with a single sample."""
    return family, ((labels_text(**labels), value),)
