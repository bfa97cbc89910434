"""Addresses as Java prints them: in ACLs, audit lines, quotas per address and descriptions of groups.

Pure: text in, text out.

    IPv4                as usual
    IPv6                all eight groups, without leading zeros: 0:0:0:0:0:0:0:1
    link-local IPv6     with the scope after a percent sign; of a connection it is the number of the interface: %4
    IPv4 within IPv6    ::ffff:10.0.0.1 is printed as 10.0.0.1
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(maxsize=4096)
def host_address(host: str, scope_id: int = 0) -> str:
    """java.net.InetAddress.getHostAddress. Any other text, such as a name, stays unchanged.

    The scope id is the last element of a socket's address, 0 if there is none. A scope in the text itself stays.
    """
    literal, percent, scope = host.partition("%")
    try:
        address = ip_address(literal)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = address.packed.hex(":", 2).split(":")
    if scope_id and not percent:
        percent, scope = "%", str(scope_id)
    return ":".join(group.lstrip("0") or "0" for group in groups) + percent + scope


def unnamed_address(host: str, scope_id: int = 0) -> str:
    """java.net.InetAddress.toString for an address without a resolved name: a slash, then the address."""
    return f"/{host_address(host, scope_id)}"
