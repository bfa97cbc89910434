"""Kerberos: security contexts between a client and a service (RFC 4121), by libkrb5 through the package gssapi.

The package is an extra: it is imported when the first context is asked for. libkrb5 reads krb5.conf, key tables and its
replay cache, and asks a key distribution center for tickets: all of it blocks, so contexts work in threads.

    a context is accepted with the key of one principal alone, and by Kerberos alone: nothing is negotiated
    a step that fails raises, and says nothing to the peer
    tickets of this process are kept in its memory, and are renewed from its key table when they are half over
"""

import itertools
import os
from collections.abc import Callable
from typing import Any, Protocol

KRB5_CONFIG = "KRB5_CONFIG"
INSTALL = "pip install 'leadline[gssapi]' (it is built from source: libkrb5-dev and a C compiler must be there)"
_FIRST_CODE = -1_765_328_384 & 0xFFFF_FFFF  # of the errors of the protocol (RFC 4120, 7.5.9), as libkrb5 numbers them
_SAYS_NOTHING = ("Unspecified GSS failure", "Unknown error", "Success")
_NUMBERS = itertools.count()
_RETRIABLE = {21, 33, 34}  # client not yet valid, ticket not yet valid, request is a replay


class KerberosError(Exception):
    """Why there is no context. `is_retriable`: the same client may succeed with its next attempt."""

    def __init__(self, reason: str, is_retriable: bool = False) -> None:
        super().__init__(reason)
        self.is_retriable = is_retriable


class GssContext(Protocol):
    """One side of a context. All methods may block, and raise KerberosError."""

    @property
    def is_established(self) -> bool: ...

    @property
    def initiator(self) -> str:
        """The client's principal; of a context that is established."""

    def step(self, token: bytes, /) -> bytes:
        """The answer to a token of the peer; empty: none. The client begins with an empty token."""

    def wrap(self, message: bytes, /) -> bytes:
        """Signed, not encrypted."""

    def unwrap(self, message: bytes, /) -> bytes: ...


class Kerberos(Protocol):
    """The port. All methods may raise KerberosError."""

    def use_config(self, path: str) -> None:
        """Another krb5.conf than the system's; before anything else."""

    def default_realm(self) -> str: ...

    def acceptor(self, principal: str, key_table: str) -> Callable[[], GssContext]:
        """A factory for contexts on the side of the service. Raises if the principal has no key there."""

    def initiator(self, principal: str, key_table: str, service: str, host: str) -> GssContext:
        """The side of the client, which logs in with its key. Tickets are fetched by the first step."""


class LibKerberos:
    """The real one. Each has tickets of its own."""

    def __init__(self) -> None:
        self._tickets = f"MEMORY:leadline-{next(_NUMBERS)}"

    def use_config(self, path: str) -> None:
        os.environ[KRB5_CONFIG] = path

    def default_realm(self) -> str:
        gssapi = _library()
        try:
            name = gssapi.Name("user", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
            return str(name).partition("@")[2]
        except gssapi.exceptions.GSSError as error:
            raise _error(error) from None

    def acceptor(self, principal: str, key_table: str) -> Callable[[], GssContext]:
        gssapi = _library()
        credentials = _credentials(principal, "accept", {"keytab": key_table})
        return lambda: _Context(gssapi.SecurityContext(creds=credentials, usage="accept"))

    def initiator(self, principal: str, key_table: str, service: str, host: str) -> GssContext:
        store = {"client_keytab": key_table, "ccache": f"{self._tickets}-{principal}"}
        return _Initiator(principal, store, f"{service}@{host}")


class _Context:
    def __init__(self, context: Any) -> None:
        context.__DEFER_STEP_ERRORS__ = False  # the package would return an error for the peer, and raise it later
        self._context = context

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes, /) -> bytes:
        return self._do(lambda: self._context.step(token or None)) or b""

    def wrap(self, message: bytes, /) -> bytes:
        return self._do(lambda: self._context.wrap(message, False).message)

    def unwrap(self, message: bytes, /) -> bytes:
        return self._do(lambda: self._context.unwrap(message).message)

    def _do(self, call: Callable[[], bytes]) -> bytes:
        try:
            return call()
        except _library().exceptions.GSSError as error:
            raise _error(error) from None


class _Initiator(_Context):
    """It gets its credentials with its first step, as they may come over the network."""

    def __init__(self, principal: str, store: dict[str, str], service: str) -> None:
        self._principal, self._store, self._service = principal, store, service
        self._begun = False

    @property
    def is_established(self) -> bool:
        return self._begun and super().is_established

    def step(self, token: bytes, /) -> bytes:
        if not self._begun:
            super().__init__(self._begin())
            self._begun = True
        return super().step(token)

    def _begin(self) -> Any:
        gssapi = _library()
        return gssapi.SecurityContext(
            name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
            creds=_credentials(self._principal, "initiate", self._store),
            mech=gssapi.MechType.kerberos,
            flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
            usage="initiate",
        )


def _credentials(principal: str, usage: str, store: dict[str, str]) -> Any:
    gssapi = _library()
    try:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name, usage=usage, mechs=[gssapi.MechType.kerberos], store=store)
    except gssapi.exceptions.GSSError as error:
        raise _error(error) from None


def _library() -> Any:
    try:
        import gssapi
    except ImportError as error:
        raise KerberosError(f"GSSAPI needs the package gssapi: {INSTALL}; {error}") from None
    return gssapi


def _error(error: Any) -> KerberosError:
    reasons = [*error.get_all_statuses(error.maj_code, True), *error.get_all_statuses(error.min_code, False)]
    meaningful = [reason for reason in reasons if not reason.startswith(_SAYS_NOTHING)]
    return KerberosError(": ".join(meaningful or reasons), error.min_code - _FIRST_CODE in _RETRIABLE)
