"""What a fault is: something that is done to the cluster for a while, and undone.

All that it draws comes from its own `chance`: the same seed gives the same faults, at the same brokers, for the same
time. A fault names a broker by its id, not by what it leads at that moment: that depends on who was quicker.
"""

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

from tests.fault.injection.fault_cluster import FaultCluster


class InjectedFault(ABC):
    name: ClassVar[str]
    what: ClassVar[str]  # in one line
    hold_s: ClassVar[tuple[float, float]] = (0.5, 5.0)  # it lasts between so and so long
    needs_disks: ClassVar[bool] = False
    needs_flush: ClassVar[bool] = False  # without it, Kafka's promises do not cover this fault
    apache_survives: ClassVar[bool] = True  # its brokers go on, or serve again once they are started again
    may_end_broker: ClassVar[bool] = False  # by itself; where it may not, that is a violation

    def __init__(self, cluster: FaultCluster, chance: Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.broker = chance.choice(cluster.ids)
        self.seconds = chance.uniform(*self.hold_s)

    @abstractmethod
    def inject(self) -> str:
        """What was done, in a few words."""

    @abstractmethod
    def heal(self) -> None:
        """All that an operator does about it. Then all brokers run."""
