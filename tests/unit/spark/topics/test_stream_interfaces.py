"""Streams in a Spark that lacks interfaces of newer ones."""

import pytest

from leadline.spark.topics import stream_interfaces
from leadline.spark.topics.options import read_options
from leadline.spark.topics.source_options import BadOption
from leadline.spark.topics.stream_source import StreamReader

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
LIMITS = ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"]


def stream(*limits: str) -> StreamReader:
    return StreamReader(read_options({**OPTIONS, **{name.lower(): "5" for name in limits}}, streaming=True))


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_a_batch_is_refused_by_a_version_that_has_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream(name)
    monkeypatch.setattr(stream_interfaces, "HAS_READ_LIMITS", False)
    with pytest.raises(BadOption, match=rf"^{name}: Spark 4.* has no limits .* They need Spark 4\.2 or newer"):
        stream(name)
    stream()


def test_all_limits_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_interfaces, "HAS_READ_LIMITS", False)
    with pytest.raises(BadOption, match=rf"^{', '.join(LIMITS)}: "):
        stream(*LIMITS)
