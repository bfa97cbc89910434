"""From the start of a broker's process to its first answer, on an empty folder."""

from tests.bench.load.brokers import kafka, leadline
from tests.bench.results import Goal, Row
from tests.bench.run import Run
from tests.conformance.kafka.broker import zookeeper


def measure(run: Run) -> list[Row]:
    row = Row("start to the first answer", "s", Goal(below=0.5))
    with zookeeper(run.folder / "zookeeper") as keeper:
        for n in run.each_round("start"):
            seconds = []
            for broker in leadline(run.folder / f"leadline-{n}"), kafka(run.folder / f"kafka-{n}", keeper):
                try:
                    seconds.append(broker.start())
                finally:
                    broker.stop()
            if n:
                row.add(*seconds)
    return [row]
