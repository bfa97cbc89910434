"""Links that lose packets in silence or are slow: between a broker and the others, ZooKeeper and the clients."""

from tests.fault.injection.injected_fault import InjectedFault
from tests.support.namespaced_cluster import CLIENT, ZOOKEEPER, host_of

CUT_SHARE = 0.6  # of its links
RATES = ("16kbit", "64kbit", "256kbit")


class _LinkFault(InjectedFault):
    hold_s = (0.5, 9.0)

    def _others(self) -> list[str]:
        """The hosts at the other ends of some of its links, or of all."""
        hosts = [ZOOKEEPER, *(host_of(id) for id in self.cluster.ids if id != self.broker), CLIENT]
        return [host for host in hosts if self.chance.random() < CUT_SHARE] or hosts

    def heal(self) -> None:
        self.cluster.net.mend()


class Cut(_LinkFault):
    name, what = "cut", "links of a broker are cut both ways"

    def inject(self) -> str:
        others = self._others()
        self.cluster.net.cut(host_of(self.broker), *others)
        return f"broker {self.broker} is cut off from {', '.join(others)}"


class CutOneWay(_LinkFault):
    name, what = "cut-one-way", "links of a broker are cut one way"

    def inject(self) -> str:
        others, is_sender, host = self._others(), self.chance.random() < 0.5, host_of(self.broker)
        for other in others:
            self.cluster.net.lose(*((host, other) if is_sender else (other, host)))
        way = "to" if is_sender else "from"
        return f"nothing passes {way} {', '.join(others)} {'from' if is_sender else 'to'} broker {self.broker}"


class Slow(_LinkFault):
    name, what = "slow", "all links of a broker are slow both ways"

    def inject(self) -> str:
        rate = self.chance.choice(RATES)
        self.cluster.net.slow(host_of(self.broker), rate)
        self.cluster.net.slow(host_of(self.broker), rate, incoming=True)
        return f"broker {self.broker} sends and receives {rate}/s"


class SlowOneWay(_LinkFault):
    name, what = "slow-one-way", "all links of a broker are slow one way"

    def inject(self) -> str:
        rate, incoming = self.chance.choice(RATES), self.chance.random() < 0.5
        self.cluster.net.slow(host_of(self.broker), rate, incoming=incoming)
        return f"broker {self.broker} {'receives' if incoming else 'sends'} {rate}/s"


class ZooKeeperCut(_LinkFault):
    name, what = "zk-cut", "ZooKeeper is cut off from some brokers or from all"

    def inject(self) -> str:
        brokers = [host_of(id) for id in self.cluster.ids if self.chance.random() < CUT_SHARE]
        brokers = brokers or [host_of(id) for id in self.cluster.ids]
        self.cluster.net.cut(ZOOKEEPER, *brokers)
        return f"ZooKeeper is cut off from {', '.join(brokers)}"


class ZooKeeperSlow(_LinkFault):
    name, what = "zk-slow", "ZooKeeper's links are slow both ways"

    def inject(self) -> str:
        rate = self.chance.choice(RATES)
        self.cluster.net.slow(ZOOKEEPER, rate)
        self.cluster.net.slow(ZOOKEEPER, rate, incoming=True)
        return f"ZooKeeper sends and receives {rate}/s"


class ZooKeeperKilled(InjectedFault):
    name, what = "zk-kill", "kill -9 of ZooKeeper, started again"
    hold_s = (0.0, 8.0)

    def inject(self) -> str:
        self.cluster.kill_zookeeper()
        return "ZooKeeper is killed"

    def heal(self) -> None:
        self.cluster.start_zookeeper()
