"""Whether a broker serves: what /readyz answers.

A broker that is not ready still lives: it may be loading its logs, or be about to stop.
"""

from leadline.broker.broker import Broker
from leadline.broker.broker_lifecycle import BrokerLifecycle

_REASONS = {
    BrokerLifecycle.NOT_RUNNING: "it has not begun to start, or has stopped",
    BrokerLifecycle.STARTING: "it starts",
    BrokerLifecycle.PENDING_CONTROLLED_SHUTDOWN: "it is about to stop: other brokers take over what it leads",
    BrokerLifecycle.SHUTTING_DOWN: "it stops",
}


def reasons_not_ready(broker: Broker) -> list[str]:
    """Empty: it is registered, its logs are loaded, a log directory is online, and it serves requests."""
    reasons = []
    if broker.state is BrokerLifecycle.RECOVERY:
        recovery = broker.dirs.recovery
        reasons.append(f"it loads its logs: {recovery.logs_done} of {recovery.logs} partitions")
    elif broker.state is not BrokerLifecycle.RUNNING:
        reasons.append(_REASONS[broker.state])
    elif not broker.is_registered:
        reasons.append("it is not registered: its session with ZooKeeper has expired")
    if not broker.dirs.dirs and broker.dirs.offline:
        reasons.append(f"no log directory is online: {'; '.join(broker.dirs.offline.values())}")
    return reasons
