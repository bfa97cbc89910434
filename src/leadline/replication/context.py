"""What all partitions on one broker share: who the broker is, its clock, its settings and its queues."""

from dataclasses import dataclass, field

from leadline.config.replication import ReplicationConfig
from leadline.log.write_pressure import WritePressure
from leadline.model import BrokerId
from leadline.replication.throttle import Throttles
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.ports import Time


@dataclass(slots=True, eq=False)
class ReplicationContext:
    me: BrokerId
    clock: Time
    config: ReplicationConfig
    completions: DeferredCompletions
    pressure: WritePressure
    throttles: Throttles = field(default_factory=Throttles)
    brokers: dict[BrokerId, int] = field(default_factory=dict)  # epochs of the live brokers, or ANY_EPOCH
    is_stopping: bool = False  # nothing is waited for any longer
