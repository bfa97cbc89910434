"""What all partitions on one broker share: the broker's id, clock, settings and queues."""

from dataclasses import dataclass, field

from leadline.config.live_settings import LiveSettings
from leadline.log.write_pressure import WritePressure
from leadline.model import BrokerId
from leadline.replication.throttle import Throttles
from leadline.replication.topic_metrics import BrokerTopicMetrics
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.ports import Time


@dataclass(slots=True, eq=False)
class ReplicationContext:
    me: BrokerId
    clock: Time
    settings: LiveSettings
    completions: DeferredCompletions
    pressure: WritePressure
    throttles: Throttles = field(default_factory=Throttles)
    brokers: dict[BrokerId, int] = field(default_factory=dict)  # epochs of the live brokers, or ANY_EPOCH
    is_stopping: bool = False  # pending waits have ended
    topic_metrics: BrokerTopicMetrics = field(default_factory=BrokerTopicMetrics)
    isr_expands: int = 0  # that the controller agreed to
    isr_shrinks: int = 0
    failed_isr_updates: int = 0  # that it did not agree to
