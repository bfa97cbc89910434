"""The connections of a broker without the broker: real sockets and no protection, unless a test asks for others."""

from collections.abc import Callable, Mapping

from leadline.broker.authentication import ListenerSecurity, Logins
from leadline.broker.connection_quotas import ConnectionLimits
from leadline.broker.net import Net
from leadline.runtime.network import Network, TcpNetwork
from leadline.runtime.ports import OsFiles, SystemTime, Time
from leadline.security.connection_rates import ConnectionRates


def net_of(
    limits: ConnectionLimits | None = None,
    securities: Mapping[str, ListenerSecurity] | None = None,
    network: Network | None = None,
    now: Callable[[], float] = SystemTime.monotonic_s,
    clock: Time | None = None,
) -> Net:
    """`securities`: of listeners that are not PLAINTEXT. `clock`: of logins."""
    logins = Logins(clock or SystemTime(), OsFiles.read_into, securities or {})
    return Net(limits or ConnectionLimits(), network or TcpNetwork(), now, logins, ConnectionRates((), ""))
