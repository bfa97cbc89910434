"""The address of the metrics of a broker, as an option of a command: HOST:PORT, or a port of this machine alone."""

import argparse
import re
from typing import NamedTuple

from leadline.admin.formatting import address_text

MAX_PORT = 65_535
LOOPBACK = "127.0.0.1"

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:]*):)?(?P<port>[0-9]{1,5})")


class MetricsAddress(NamedTuple):
    host: str  # empty: all addresses
    port: int  # 0: any free port

    def __str__(self) -> str:
        return address_text(self.host, self.port)

    def shifted(self, by: int) -> "MetricsAddress":
        """The address for one of several brokers. Port 0 stays 0."""
        return self._replace(port=self.port + by) if self.port else self


def metrics_url(address: MetricsAddress) -> str:
    """Where metrics are found from this machine."""
    host = LOOPBACK if address.host in ("", "::", "0.0.0.0") else address.host
    return f"http://{address._replace(host=host)}/metrics"


def metrics_address(text: str) -> MetricsAddress:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, as in 127.0.0.1:9404, not {text!r}")
    host = match["host"]
    return MetricsAddress(LOOPBACK if host is None else host.strip("[]"), int(match["port"]))
