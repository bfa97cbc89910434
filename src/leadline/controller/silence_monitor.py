"""The brokers that this broker does not hear: what a controller reads of a peer monitor."""

from typing import Protocol

from leadline.model import BrokerId


class SilenceMonitor(Protocol):
    @property
    def silent(self) -> set[BrokerId]: ...

    @property
    def unheard(self) -> set[BrokerId]:
        """The silent brokers, and those that may be about to fall silent."""

    @property
    def hears_most(self) -> bool:
        """This broker has heard most of the others for a while."""


class NoSilenceMonitor:
    """The monitor of a single node."""

    def __init__(self) -> None:
        self.silent: set[BrokerId] = set()
        self.unheard: set[BrokerId] = set()
        self.hears_most = True
