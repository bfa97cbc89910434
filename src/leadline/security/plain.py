"""PLAIN: a name and a password in the clear (RFC 4616). The listener's JAAS options hold the users.

Pure: bytes in, an outcome out.

    message = [authzid] NUL authcid NUL password        UTF-8, exactly three parts
    option  = user_<name>="<password>"

    the password is compared in constant time, also if lengths differ or the user does not exist
    an authorization id other than the user's own name is refused (CVE-2017-12610)
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest

from leadline.security.principal import USER_TYPE, Principal
from leadline.security.sasl_mechanisms import Authenticated, Failed, Outcome
from leadline.security.secret import Secret

PLAIN = "PLAIN"
_USER_OPTION = "user_"
_MOST_PARTS = 4  # Kafka stops counting there
_NOBODY = Secret(b"")


class PlainExchange:
    def __init__(self, password_of: Callable[[str], Secret | None]) -> None:
        self._password_of = password_of

    def evaluate(self, response: bytes, now_ms: int) -> Outcome:
        parts = response.decode("utf-8", "replace").split("\0", _MOST_PARTS - 1)
        if len(parts) != 3:
            return Failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            return Failed("Authentication failed: username not specified")
        if not password:
            return Failed("Authentication failed: password not specified")
        expected = self._password_of(name)
        if not _same(Secret.of(password), expected or _NOBODY) or expected is None:
            return Failed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            return Failed("Authentication failed: Client requested an authorization id that is different from username")
        return Authenticated(Principal(USER_TYPE, name))


def plain_users(options: Mapping[str, Secret]) -> dict[str, Secret]:
    """The users among the options of PlainLoginModule, with their passwords."""
    return {name.removeprefix(_USER_OPTION): value for name, value in options.items() if name.startswith(_USER_OPTION)}


class PlainClient:
    """The client's side: a client of our own, or the broker itself when it logs in to another. It has one message."""

    def __init__(self, name: str, password: Secret) -> None:
        self._message = Secret(b"\0" + name.encode() + b"\0" + password.reveal())
        self.is_complete = False

    def evaluate(self, challenge: bytes) -> bytes:
        self.is_complete = True
        return self._message.reveal()


def _same(presented: Secret, expected: Secret) -> bool:
    """Digests have one length, so that not even the length of the password shows in the time."""
    return compare_digest(sha256(presented.reveal()).digest(), sha256(expected.reveal()).digest())
