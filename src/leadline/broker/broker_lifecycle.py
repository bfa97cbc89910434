"""The states of a broker, with the numbers by which Kafka's metric BrokerState knows them.

Pure: values only.
"""

from enum import IntEnum


class BrokerLifecycle(IntEnum):
    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2  # the logs are loaded, and recovered after a crash
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6  # other brokers become leaders of its partitions
    SHUTTING_DOWN = 7
