"""Kerberos without a key distribution center: tickets are readable, and everybody who names a principal has its key.

ticket      ticket <client> for <service>@<host>[ mutual]
reply       reply
wrapped     wrapped <message>
"""

from collections.abc import Callable

from leadline.runtime.kerberos import GssContext, KerberosError

REALM = "REALM.COM"


class ScriptedAcceptor:
    def __init__(self, principal: str) -> None:
        self._service = principal.partition("@")[0].replace("/", "@")
        self.is_established, self.initiator = False, ""

    def step(self, token: bytes, /) -> bytes:
        words = token.decode().split()
        if token == b"replay":
            raise KerberosError("Request is a replay", is_retriable=True)
        if words[:1] != ["ticket"] or words[3] != self._service:
            raise KerberosError("Wrong principal in request")
        self.is_established, self.initiator = True, words[1]
        return b"reply" if words[4:] == ["mutual"] else b""

    def wrap(self, message: bytes, /) -> bytes:
        return b"wrapped " + message

    def unwrap(self, message: bytes, /) -> bytes:
        if not message.startswith(b"wrapped "):
            raise KerberosError("Invalid token was supplied")
        return message.removeprefix(b"wrapped ")


class ScriptedInitiator(ScriptedAcceptor):
    def __init__(self, principal: str, target: str) -> None:
        self._principal, self._target = principal, target
        self.is_established, self.initiator = False, principal

    def step(self, token: bytes, /) -> bytes:
        if not token:
            return f"ticket {self._principal} for {self._target} mutual".encode()
        if token != b"reply":
            raise KerberosError("Invalid token was supplied")
        self.is_established = True
        return b""


class ScriptedKerberos:
    """`keys`: the principals that have a key in a key table. `is_down`: no tickets are to be had."""

    def __init__(self, *keys: str) -> None:
        self.keys, self.config, self.is_down = set(keys), "", False

    def use_config(self, path: str) -> None:
        self.config = path

    def default_realm(self) -> str:
        return REALM

    def acceptor(self, principal: str, key_table: str) -> Callable[[], GssContext]:
        if principal not in self.keys:
            raise KerberosError(f"No key table entry found for {principal}")
        return lambda: ScriptedAcceptor(principal)

    def initiator(self, principal: str, key_table: str, service: str, host: str) -> GssContext:
        return Unreachable() if self.is_down else ScriptedInitiator(principal, f"{service}@{host}")


class Unreachable(ScriptedInitiator):
    def __init__(self) -> None:
        super().__init__("", "")

    def step(self, token: bytes, /) -> bytes:
        raise KerberosError("Cannot contact any KDC for realm")
