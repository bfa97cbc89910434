"""A broker's registration, compared with what the encoders within Kafka 3.8.0 wrote (kafka_nodes.jsonl)."""

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.coordination import registration
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.registration import RegisteredEndpoint, Registration, VersionRange

LINES = [json.loads(line) for line in (Path(__file__).parent / "kafka_nodes.jsonl").read_text().splitlines()]
BROKER = b'{"version":5,"jmx_port":-1,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"SSL"}}'


def registration_of(values: Any, timestamp_ms: int) -> Registration:
    endpoints = tuple(RegisteredEndpoint(*endpoint) for endpoint in values["endpoints"])
    features = {name: VersionRange(*versions) for name, versions in values["features"].items()}
    return Registration(endpoints, timestamp_ms, values["rack"], values["jmx_port"], features, values["version"])


@pytest.mark.parametrize("line", [line for line in LINES if line["kind"] == "broker"])
def test_a_registration_is_written_as_kafka_writes_it_and_read_back(line: Any) -> None:
    data = line["bytes"].encode()
    written = registration_of(line["input"], int(json.loads(data)["timestamp"]))
    assert registration.encode_registration(written) == data
    read = registration.decode_registration(7, data)
    assert read.endpoints == written.endpoints
    assert registration.encode_registration(read) == data


def test_older_versions_of_a_registration_are_read() -> None:
    first = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}'
    assert registration.decode_registration(0, first).endpoints == (
        RegisteredEndpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),
    )
    third = first.replace(b'"version":1', b'"version":3,"rack":"r","endpoints":["SSL://h:1","plaintext://[::1]:2"]')
    read = registration.decode_registration(0, third)
    assert read.endpoints == (
        RegisteredEndpoint("SSL", "h", 1, "SSL"),
        RegisteredEndpoint("PLAINTEXT", "::1", 2, "PLAINTEXT"),
    )
    assert (read.rack, read.version, read.jmx_port, read.timestamp_ms) == ("r", 3, 9999, 2233345666)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":5', b'"version":0'),
        (b'"jmx_port":-1,', b""),
        (b"A://h:1", b"h:1"),
        (b"A://h:1", b"B://h:1"),
        (b'"SSL"', b'"TLS"'),
        (b'["A://h:1"]', b'"A://h:1"'),
        (b'"version":5', b'"version":5,"timestamp":"soon"'),
        (b'"version":5', b'"version":5,"features":{"f":{"min_version":1}}'),
    ],
)
def test_a_malformed_registration_is_refused_by_its_path(old: bytes, new: bytes) -> None:
    registration.decode_registration(7, BROKER)
    with pytest.raises(MalformedNode, match="/brokers/ids/7: "):
        registration.decode_registration(7, BROKER.replace(old, new))


def test_host_and_port_are_those_of_the_first_plaintext_endpoint_for_old_clients() -> None:
    ssl, plaintext = RegisteredEndpoint("S", "s", 1, "SSL"), RegisteredEndpoint("P", "::1", 2, "PLAINTEXT")
    both = json.loads(registration.encode_registration(Registration((ssl, plaintext), 0)))
    assert (both["host"], both["port"], both["endpoints"]) == ("::1", 2, ["S://s:1", "P://[::1]:2"])
    only_ssl = json.loads(registration.encode_registration(Registration((ssl,), 0)))
    assert (only_ssl["host"], only_ssl["port"]) == (None, -1)


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (2, set()),
        (3, {"rack"}),
        (4, {"rack", "listener_security_protocol_map"}),
        (5, {"rack", "listener_security_protocol_map", "features"}),
    ],
)
def test_older_versions_lack_the_fields_that_came_later(version: int, fields: set[str]) -> None:
    endpoint = RegisteredEndpoint("PLAINTEXT", "h", 1, "PLAINTEXT")
    written = json.loads(registration.encode_registration(Registration((endpoint,), 0, rack="r", version=version)))
    assert written.keys() & {"rack", "listener_security_protocol_map", "features"} == fields
