"""Files that are damaged or missing when a broker starts: one of any kind, on one of the brokers.

The broker is stopped or killed, and starts on the damage when nobody counts on its replicas any more: a replica in the
ISR must not forget. It starts, with the partition offline at worst, or refuses with one line. Then an operator replaces
what was damaged: the replica is copied again, or the file of the whole directory is written anew.
"""

import shutil
from pathlib import Path
from random import Random

from tests.fault.injection.injected_fault import InjectedFault
from tests.support.waiting import until

TOPICS = ("input", "output", "__consumer_offsets", "__transaction_state")
OF_A_PARTITION = (
    "*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata",
)  # fmt: skip
OF_THE_DIRECTORY = (
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
    "cleaner-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown",
)  # fmt: skip


class _DamagedFile(InjectedFault):
    hold_s = (0.0, 2.0)
    apache_survives = False  # it takes the directory offline and needs other repairs
    may_end_broker = True  # it may refuse to start

    def inject(self) -> str:
        broker = self.cluster.brokers[self.broker]
        is_clean = self.chance.random() < 0.5
        if is_clean:
            broker.stop()
        else:
            broker.kill()
        until(self._has_left_every_isr, lambda: self.cluster.states_of(TOPICS))
        self._file, self._content = self._choose(broker.directory), b""
        self._content = self._file.read_bytes()
        how = self._damage(self._file)
        self._start()
        place = self._file.relative_to(broker.directory)
        return f"{place} of broker {self.broker} is {how}, after {'a clean stop' if is_clean else 'a kill'}"

    def _has_left_every_isr(self) -> bool:
        others = [state for id, state in self.cluster.states_of(TOPICS).items() if id != self.broker]
        return all(state and all(self.broker not in isr for _, isr in state.values()) for state in others)

    def _choose(self, directory: Path) -> Path:
        """First the kind, so that the rare ones get their share."""
        kinds = [sorted(directory.glob(f"*-[0-9]*/{kind}")) for kind in OF_A_PARTITION]
        kinds += [sorted(directory.glob(kind)) for kind in OF_THE_DIRECTORY]
        return self.chance.choice(self.chance.choice([files for files in kinds if files]))

    def _damage(self, file: Path) -> str:
        raise NotImplementedError

    def _start(self) -> None:
        """One that refuses says so in its last line."""
        output = len(self.cluster.brokers[self.broker].output())
        try:
            self.cluster.start(self.broker)
        except AssertionError as error:
            if not str(error).splitlines()[-1].startswith("leadline: "):
                raise
        lines = self.cluster.brokers[self.broker].output()[output:]
        assert "Traceback" not in lines, f"broker {self.broker} failed at its start:\n{lines[-3000:]}"

    def heal(self) -> None:
        is_of_a_partition = self._file.parent != self.cluster.brokers[self.broker].directory
        if self.cluster.is_running(self.broker):
            if not is_of_a_partition:
                return
            self.cluster.brokers[self.broker].stop()
        if is_of_a_partition:
            until(self._has_left_every_isr, lambda: self.cluster.states_of(TOPICS))
            shutil.rmtree(self._file.parent)
        else:
            self._file.write_bytes(self._content)
        self.cluster.start(self.broker)


class BitRot(_DamagedFile):
    name, what = "bit-rot", "a file of any kind has wrong bytes when a broker starts"

    def _damage(self, file: Path) -> str:
        name, change = self.chance.choice([
            ("flipped", flipped), ("truncated", truncated), ("garbage", garbage), ("zeros", zeros),
        ])  # fmt: skip
        file.write_bytes(change(file.read_bytes(), self.chance))
        return f"damaged ({name})"


class MissingFile(_DamagedFile):
    name, what = "missing-file", "a file of any kind is missing when a broker starts"

    def _damage(self, file: Path) -> str:
        file.unlink()
        return "missing"


def flipped(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data or b"\0")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncated(data: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def garbage(data: bytes, chance: Random) -> bytes:
    return chance.randbytes(len(data))


def zeros(data: bytes, chance: Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[:start] + bytes(len(data) - start)
