"""Recovery of files cut or damaged at any byte: the longest valid prefix of batches, and twice equals once."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.log.producer_state import AppendOrigin
from leadline.records.batch import header_at, walk
from leadline.records.compression import Codec
from tests.fault.crash_run import contents
from tests.support.crash_disk import Unsynced
from tests.support.logs import LogBench, batch, marker, whole_log

SMALL = {"segment.bytes": "500", "index.interval.bytes": "100"}
UNCOVERED = [*range(8), *range(12, 16)]  # offset and epoch of a batch: its CRC does not cover them


@dataclass
class Written:
    """A log on disk, and its batches by segment file."""

    bench: LogBench
    batches: list[bytes]
    files: dict[str, bytes]

    @classmethod
    def at(cls, path: Path, batches: list[tuple[bytearray, AppendOrigin]]) -> "Written":
        path.mkdir()
        bench = LogBench(path, SMALL, Unsynced())
        log = bench.open()
        for n, (data, origin) in enumerate(batches):
            log.append_as_leader(data, n // 2, origin)
        log.close()
        whole = whole_log(log)
        stored = [whole[position : position + header.size] for position, header in walk(whole)]
        return cls(bench, stored, contents(bench.directory))

    def recover_with(self, name: str, damaged: bytes) -> list[bytes]:
        for file in self.bench.directory.iterdir():
            file.unlink()
        for file_name, data in self.files.items():
            (self.bench.directory / file_name).write_bytes(data)
        (self.bench.directory / name).write_bytes(damaged)
        whole = whole_log(self.bench.open(clean=False, contiguous=True))
        return [whole[position : position + header.size] for position, header in walk(whole)]

    def recovering_again_changes_nothing(self) -> None:
        once = contents(self.bench.directory)
        self.bench.open(clean=False)
        assert contents(self.bench.directory) == once

    def before(self, name: str, position: int) -> list[bytes]:
        """The batches that end before a byte of a segment file."""
        kept = list[bytes]()
        for file_name in sorted(file for file in self.files if file.endswith(".log")):
            for at, header in walk(self.files[file_name]):
                if file_name == name and at + header.size > position:
                    return kept
                kept.append(self.files[file_name][at : at + header.size])
        return kept


def a_few_batches() -> list[tuple[bytearray, AppendOrigin]]:
    """Plain, compressed, idempotent and transactional, over two segments."""
    client = AppendOrigin.CLIENT
    return [
        (batch(2), client),
        (batch(1, producer_id=7, transactional=True), client),
        (batch(3, codec=Codec.GZIP), client),
        (marker(7, commit=False), AppendOrigin.COORDINATOR),
        (batch(1, producer_id=8), client),
        (batch(1), client),
    ]


@pytest.fixture
def written(scratch: Path) -> Written:
    made = Written.at(scratch / "log", a_few_batches())
    assert sum(name.endswith(".log") for name in made.files) == 2
    return made


def log_files(written: Written) -> list[tuple[str, bytes]]:
    return [(name, data) for name, data in written.files.items() if name.endswith(".log")]


def test_a_log_cut_at_any_byte_keeps_every_whole_batch_before_it(written: Written) -> None:
    for name, data in log_files(written):
        for position in range(len(data)):
            recovered = written.recover_with(name, data[:position])
            assert recovered == written.before(name, position), f"{name} cut at {position}"
            if position % 50 == 0:
                written.recovering_again_changes_nothing()


def test_a_log_damaged_at_any_byte_keeps_every_batch_before_it(written: Written) -> None:
    for name, data in log_files(written):
        starts = {at + n: at for at, header in walk(data) for n in range(header.size)}
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 0xFF
            recovered = written.recover_with(name, bytes(damaged))
            expected = written.before(name, position)
            if position - starts[position] in UNCOVERED:
                assert recovered[: len(expected)] == expected, f"{name} damaged at {position}"
            else:
                assert recovered == expected, f"{name} damaged at {position}"
            if position % 50 == 0:
                written.recovering_again_changes_nothing()


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
def test_whatever_happens_to_the_files_beside_the_log_its_records_stay(written: Written, kind: str) -> None:
    for name, data in [(name, data) for name, data in written.files.items() if name.endswith(kind)]:
        for position in range(len(data)):
            for damaged in (data[:position], data[:position] + b"\xff" + data[position + 1 :]):
                assert written.recover_with(name, damaged) == written.batches, f"{name} at {position}"


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 200)), min_size=1, max_size=12),
    st.floats(0, 1, exclude_max=True),
    st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_log_damaged_anywhere_keeps_a_prefix(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[tuple[int, int]], share: float, cut: bool
) -> None:
    made = Written.at(
        tmp_path_factory.mktemp("any") / "log",
        [(batch(count, size=size // count), AppendOrigin.CLIENT) for count, size in shapes],
    )
    names = [name for name, data in log_files(made) if data]
    name = names[int(share * len(names))]
    data = made.files[name]
    position = int(share * len(data))
    damaged = data[:position] if cut else data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]
    recovered = made.recover_with(name, damaged)
    expected = made.before(name, position)
    assert recovered[: len(expected)] == expected
    assert [header_at(one).base_offset for one in recovered] == sorted(
        {header_at(one).base_offset for one in recovered}
    )
    made.recovering_again_changes_nothing()
