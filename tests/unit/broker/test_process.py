"""The broker as a process: what it says and how it ends, when all is well and when it is not."""

import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from struct import pack

import psutil
import pytest

from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection
from tests.support import in_memory
from tests.support.broker import RunningBroker, leadline
from tests.support.logs import batch
from tests.support.topics import create_topic
from tests.support.waiting import until

TOPIC = "talk"
SOON_S = 60  # on a machine that has other things to do


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def start(**settings: object) -> subprocess.CompletedProcess[str]:
    options = [part for name, value in settings.items() for part in ("--set", f"{name.replace('_', '.')}={value}")]
    command = [sys.executable, "-m", "leadline", "start", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=SOON_S)


def refusal(**settings: object) -> str:
    """The one line with which it ends."""
    done = start(**settings)
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("leadline: ")
    return line


def metadata(connection: Connection, *names: str) -> MetadataResponse:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return connection.ask(MetadataResponse, MetadataRequest(topics=topics), 9)


def test_a_port_in_use_is_reported_before_anything_is_touched(tmp_path: Path) -> None:
    with leadline(tmp_path / "one") as broker:
        assert broker.output().startswith("Leadline "), "a broker that is alone and well has nothing else to say"
        listeners = f"PLAINTEXT://localhost:{broker.port}"
        line = refusal(log_dirs=tmp_path / "two", listeners=listeners)
        assert f"cannot listen on localhost:{broker.port} (PLAINTEXT): Address already in use" in line
    with leadline(tmp_path / "two") as broker:  # and it left nothing behind that is in the way
        broker.stop()
    refusal(log_dirs=tmp_path / "two", listeners=f"PLAINTEXT://localhost:{broker.port},X://localhost:1")
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()


def test_a_directory_that_another_broker_holds_is_reported(tmp_path: Path) -> None:
    with leadline(tmp_path / "one") as broker:
        line = refusal(log_dirs=broker.directory, listeners="PLAINTEXT://localhost:0")
        assert f"log directory {broker.directory} is in use by another broker" in line


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_partitions": "many"}, "many for configuration num.partitions: Not a number"),
        ({"listeners": "PLAINTEXT://localhost:99999999"}, "listeners="),
        ({"log_segment_bytes": "1"}, "1 for configuration log.segment.bytes: Value must be at least 14"),
        ({"log_retention_ms": "0"}, "log.retention.ms=0"),
    ],
)
def test_a_bad_setting_is_reported_by_its_name(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    line = refusal(**({"log_dirs": tmp_path / "one", "listeners": "PLAINTEXT://localhost:0"} | settings))
    assert message in line
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "inter.broker.listener.name": "SASL_PLAINTEXT"},
            r"listener\.name\.sasl_plaintext\.gssapi\.sasl\.jaas\.config is not set: GSSAPI on listener",
        ),
        (
            {
                "listeners": "INSIDE://127.0.0.1:0",
                "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
                "inter.broker.listener.name": "INSIDE",
                "sasl.kerberos.service.name": "kafka",
                "listener.name.inside.gssapi.sasl.jaas.config": (
                    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
                    f"keyTab='{__file__}' principal='kafka/host@REALM';"
                ),
            },
            r"GSSAPI needs the package gssapi: pip install 'leadline\[gssapi\]' \(it is built from source: libkrb5",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"},
            "listener SSL: a listener with TLS has a key store: set ssl.keystore.location or ssl.keystore.key",
        ),
        (
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            },
            r"authorizer\.class\.name=org.*: not supported: Java classes cannot be loaded",
        ),
    ],
)
def test_an_unsupported_protection_is_refused(tmp_path: Path, settings: dict[str, str], pattern: str) -> None:
    properties = {"log.dirs": str(tmp_path / "data"), **settings}
    assert re.search(pattern, refusal(**properties))
    assert not (tmp_path / "data").exists()


def test_an_unreachable_zookeeper_is_reported_with_its_address_and_the_timeout(tmp_path: Path) -> None:
    line = refusal(
        log_dirs=tmp_path / "one",
        listeners="PLAINTEXT://localhost:0",
        zookeeper_connect="127.0.0.1:1",
        zookeeper_connection_timeout_ms=700,
    )
    assert "ZooKeeper at 127.0.0.1:1: no answer within 0.7 s (zookeeper.connection.timeout.ms)" in line


def test_the_recovery_of_many_partitions_is_logged_in_a_few_lines(tmp_path: Path) -> None:
    with leadline(tmp_path / "one") as broker:
        create_topic(broker.bootstrap, "many", 300)
        broker.kill()
        before = len(broker.output().splitlines())
        broker.start()
        lines = broker.output().splitlines()[before:]
    assert len(lines) < 15, lines
    assert any("was not stopped cleanly and is recovered. Partitions: 300" in line for line in lines)


def test_a_partition_that_is_offline_is_named_when_the_broker_has_started(tmp_path: Path) -> None:
    with leadline(tmp_path / "one") as broker:
        create_topic(broker.bootstrap, "t", 2)
        broker.stop()
        (tmp_path / "one" / "t-1" / "partition.metadata").write_text("nonsense")
        broker.start()
        assert "  holds    1 partition, 0 B\n" in broker.output()
        path = tmp_path / "one" / "t-1" / "partition.metadata"
        assert f"  offline  t-1: {path}: at byte 0: version None, expected 0\n" in broker.output()
        connection = Connection("localhost", broker.port)
        partitions = {one.partition_index: one for one in metadata(connection, "t").topics[0].partitions}
        connection.close()
        assert [partitions[n].error_code for n in (0, 1)] == [0, 5]
        assert partitions[1].offline_replicas == [1001]


def test_a_broker_id_that_differs_from_the_directorys_is_reported(tmp_path: Path) -> None:
    with leadline(tmp_path / "one", broker_id=3) as broker:
        broker.stop()
    line = refusal(log_dirs=tmp_path / "one", broker_id=4, listeners="PLAINTEXT://localhost:0")
    assert "meta.properties has broker.id 3, but 4 is configured" in line
    with leadline(tmp_path / "one") as broker:
        assert "(stopped cleanly)" in broker.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly_and_soon_also_with_clients_that_wait(tmp_path: Path, number: signal.Signals) -> None:
    with leadline(tmp_path / "data") as broker:
        idle, waiting = Connection("localhost", broker.port), Connection("localhost", broker.port)
        metadata(waiting, TOPIC)
        part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
        topics = [FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])]
        waiting.send(FetchRequest(max_wait_ms=2 * SOON_S * 1000, min_bytes=1, topics=topics), 11)
        for _ in range(2):  # answered in turn: the broker has read what came before
            metadata(idle, TOPIC)
        broker.process.send_signal(number)
        assert broker.process.wait(timeout=SOON_S) == 0
        frame = waiting.receive()
        assert frame is not None
        assert parse_response(FetchResponse, frame, 11)[1].responses[0].partitions[0].error_code == 0
        for connection in (idle, waiting):
            connection.close()
        assert broker.output().rstrip().endswith("stopped; everything is on disk")
        assert (broker.directory / ".kafka_cleanshutdown").exists()
        broker.start()
        assert "(stopped cleanly)" in broker.output()


def test_a_second_signal_does_not_disturb_the_stop(tmp_path: Path) -> None:
    with leadline(tmp_path / "data") as broker:
        waiting = Connection("localhost", broker.port)
        metadata(waiting, TOPIC)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            broker.process.send_signal(number)
        assert broker.process.wait(timeout=2 * SOON_S) == 0
        waiting.close()
        assert broker.output().rstrip().endswith("stopped; everything is on disk")
        assert "Traceback" not in broker.output()


def test_a_terminal_that_is_closed_ends_it_cleanly(tmp_path: Path) -> None:
    terminal, own = pty.openpty()
    data = tmp_path / "data"
    command = [sys.executable, "-m", "leadline", "start", "--port", "0", "--set", f"log.dirs={data}"]

    def control() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(command, stdin=own, stdout=own, stderr=own, preexec_fn=control) as process:
        os.close(own)
        try:
            output = b""
            while b"  try " not in output:
                output += os.read(terminal, 4096)
            os.close(terminal)  # whatever it prints from now on fails
            assert process.wait(timeout=2 * SOON_S) == 0
        finally:
            process.kill()
    assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_while_it_waits_for_zookeeper(tmp_path: Path, number: signal.Signals) -> None:
    data, hours_ms = tmp_path / "data", 10 * 3_600_000
    settings = [f"log.dirs={data}", "zookeeper.connect=127.0.0.1:1", f"zookeeper.connection.timeout.ms={hours_ms}"]
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "leadline", "start", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until((data / ".lock").exists)  # it handles signals before it opens anything
            process.send_signal(number)
            output, log = process.communicate(timeout=SOON_S)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "stopped before it was ready; the next start begins again\n")
    (line,) = log.splitlines()
    assert line.endswith(f"{number.name}: the broker stops")


def test_nohup_keeps_it_running_when_its_terminal_is_closed(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its child inherits that
    try:
        with leadline(tmp_path / "data") as broker:
            broker.process.send_signal(signal.SIGHUP)
            connection = Connection("localhost", broker.port)
            metadata(connection, TOPIC)
            connection.close()
            assert broker.process.poll() is None
            assert broker.stop() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stop_with_unflushed_data_is_reported_by_message_and_exit_code(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with leadline(tmp_path / "data", log_dirs=f"{one},{two}") as broker:
        assert f"{one} (new)" in broker.output()
        two.rename(tmp_path / "elsewhere")
        assert broker.stop() == 1
        last = broker.output().rstrip().splitlines()[-1]
        assert last.startswith(f"leadline: stopped, but not everything is on disk: log directory {two} failed while ")
        assert "stopped; everything is on disk" not in broker.output()
        assert (one / ".kafka_cleanshutdown").exists()
        (tmp_path / "elsewhere").rename(two)
        broker.start()
        assert f"{one} (stopped cleanly)" in broker.output()
        assert f"{two} (empty)" in broker.output()


def test_a_directory_is_new_or_recovered_on_its_own_account(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with leadline(one) as broker:
        connection = Connection("localhost", broker.port)
        metadata(connection, TOPIC)
        connection.close()
        broker.kill()
        broker.settings["log.dirs"] = f"{one},{two}"
        broker.start()
        assert f"{one} (recovered)" in broker.output()
        assert f"{two} (new)" in broker.output()


def test_metadata_holds_the_advertised_addresses(tmp_path: Path) -> None:
    settings = {
        "listeners": "IN://127.0.0.1:0,OUT://[::1]:0",
        "advertised.listeners": "IN://inside.example:1234,OUT://outside.example:4321",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name": "IN",
    }
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "leadline", "start", *options, "--set", f"log.dirs={tmp_path / 'data'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        output = "".join(iter(process.stdout.readline, "")) if process.poll() else ""
        while "  try " not in output:
            output += process.stdout.readline()
        ports = re.findall(r"listens  (\w+) on (\S+):(\d+)", output)
        advertised = {}
        for name, host, port in ports:
            connection = Connection(host.strip("[]"), int(port))
            (node,) = metadata(connection).brokers
            advertised[name] = (node.host, node.port)
            connection.close()
        process.terminate()
        process.communicate()
    assert advertised == {"IN": ("inside.example", 1234), "OUT": ("outside.example", 4321)}


def frame(message: Message, version: int) -> bytes:
    pieces = request_frame(message, version, 1, None)
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray))


def half_a_frame(broker: RunningBroker, size: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("localhost", broker.port), timeout=60)
    connection.sendall(pack(">i", size) + data)
    return connection


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pack(">ih", 2, 5), "malformed request: request header: at byte 0: truncated"),
        (pack(">ihhih", 10, 999, 0, 1, -1), "api key 999 v0 is not supported"),
        (pack(">ihhih", 10, 3, 99, 1, -1), "Metadata v99 is not supported"),
        (pack(">ihhih", 10, 17, 9, 1, -1), "SaslHandshake v9 is not supported"),
        (pack(">ihhihi", 14, 3, 1, 1, -1, 1 << 30), "MetadataRequest v1 topics: at byte 14: a length of 1073741824"),
        (pack(">i", 1 << 30), "a request of 1073741824 bytes; socket.request.max.bytes=104857600"),
        (pack(">i", -5), "a request of -5 bytes"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a request of 1195725856 bytes"),
    ],
)
def test_what_is_no_request_closes_its_connection_with_one_line(
    running: RunningBroker, data: bytes, message: str
) -> None:
    before = len(running.output().splitlines())
    with socket.create_connection(("localhost", running.port), timeout=60) as connection:
        connection.sendall(data)
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    until(lambda: len(running.output().splitlines()) > before, "a line of the log")
    (line,) = running.output().splitlines()[before:]
    assert re.search(r" WARNING connection \S+:\d+ closed: ", line)
    assert message in line


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    for directory in in_memory.directory():
        with leadline(directory / "data") as broker:
            yield broker


def test_announced_bytes_take_no_memory_before_they_come(running: RunningBroker) -> None:
    process = psutil.Process(running.pid)
    before = process.memory_info().rss
    connections = [half_a_frame(running, 104_857_600, b"x" * 100) for _ in range(100)]
    with closing(Connection("localhost", running.port)) as other:
        for _ in range(100):  # the broker reads what came before it answers all of these
            metadata(other, TOPIC)
    grown = (process.memory_info().rss - before) / 1e6
    for connection in connections:
        connection.close()
    assert grown < 150, f"{grown:.0f} MB for 10 GB announced and 10 KB sent"


def test_readers_that_do_not_read_cost_no_memory(running: RunningBroker) -> None:
    """Each connection requests a megabyte a thousand times: the data stays in files and in socket buffers."""
    process = psutil.Process(running.pid)
    connection = Connection("localhost", running.port)
    metadata(connection, TOPIC)
    part = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(size=900_000)))
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
    answer = connection.ask(ProduceResponse, ProduceRequest(acks=1, topic_data=[topic]), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    position = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[position])])
    before = process.memory_info().rss
    slow = []
    for _ in range(50):
        reader = socket.create_connection(("localhost", running.port), timeout=60)
        reader.setblocking(False)
        with suppress(BlockingIOError):
            reader.send((frame(fetch, 11) + frame(MetadataRequest(topics=None), 9)) * 1000)
        slow.append(reader)
    for _ in range(100):
        metadata(connection, TOPIC)
    grown = (process.memory_info().rss - before) / 1e6
    for reader in slow:
        reader.close()
    connection.close()
    assert grown < 100, f"{grown:.0f} MB for 50 readers that do not read"
