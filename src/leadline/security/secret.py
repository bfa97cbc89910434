"""Passwords, keys and tokens: bytes that nothing shows.

Pure: a value.

    repr, str and format of a secret hide it, also within a dataclass that holds one
    two secrets are compared in a time that does not depend on where they differ
    a secret is not pickled and not copied into another process

A password among the settings is a `Password` of `config`; at the border it becomes `Secret.of(password.value)`.
"""

from hmac import compare_digest
from typing import NoReturn

HIDDEN = "[hidden]"


class Secret:
    """Bytes that must not be shown. `reveal` is the only way to them, so that a search finds every use."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    @classmethod
    def of(cls, text: str) -> "Secret":
        """The secret of a text, as UTF-8. Half a surrogate pair, which no UTF-8 can hold, is kept as it is."""
        return cls(text.encode("utf-8", "surrogatepass"))

    def reveal(self) -> bytes:
        return self._data

    def reveal_text(self) -> str:
        return self._data.decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        return compare_digest(self._data, other._data) if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._data)

    def __bool__(self) -> bool:
        return bool(self._data)

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
