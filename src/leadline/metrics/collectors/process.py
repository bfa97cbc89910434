"""The process itself: its state, its version, memory, CPU time, descriptors, bytes read and written."""

from leadline import __version__
from leadline.metrics.families import Collected, FamilySet, one
from leadline.metrics.sources import MetricsSources
from leadline.runtime.ports import descriptor_limit
from leadline.runtime.process_statistics import process_statistics

FAMILIES = FamilySet("Broker and process")
STATE = FAMILIES.gauge(
    "kafka_server_kafkaserver_brokerstate",
    "1: starting, 2: recovering its logs, 3: running, 6: other brokers take over, 7: stopping",
)
BUILD = FAMILIES.gauge("leadline_build_info", "1, with the version of Leadline", "version")
CPU = FAMILIES.counter("process_cpu_seconds_total", "CPU time of the process, in seconds")
RESIDENT = FAMILIES.gauge("process_resident_memory_bytes", "Memory that the process has in use")
VIRTUAL = FAMILIES.gauge("process_virtual_memory_bytes", "Address space of the process")
STARTED = FAMILIES.gauge("process_start_time_seconds", "When the process was started, in seconds since 1970")
DESCRIPTORS = FAMILIES.gauge("process_open_fds", "Open files and sockets")
MAX_DESCRIPTORS = FAMILIES.gauge("process_max_fds", "Files and sockets that the process may have open")
DISK_READ = FAMILIES.gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that the process has read from disks"
)
DISK_WRITE = FAMILIES.gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that the process has written to disks"
)


def collect(sources: MetricsSources) -> Collected:
    yield one(STATE, int(sources.broker.state))
    yield from process_samples()


def process_samples() -> Collected:
    """The samples that any process has."""
    yield one(BUILD, 1, version=__version__)
    yield one(MAX_DESCRIPTORS, descriptor_limit())
    statistics = process_statistics()
    if statistics is None:
        return
    yield one(CPU, statistics.cpu_s)
    yield one(RESIDENT, statistics.resident_bytes)
    yield one(VIRTUAL, statistics.virtual_bytes)
    yield one(STARTED, statistics.started_s)
    yield one(DESCRIPTORS, statistics.open_descriptors)
    yield one(DISK_READ, statistics.read_bytes)
    yield one(DISK_WRITE, statistics.written_bytes)
