"""A principal: a type and a name, `User:alice`.

Pure: values and their texts.

    a principal equals another with the same type and name, however it logged in
    types and names are case-sensitive; the name may contain colons, the type may not

`super.users` lists principals who may do everything, separated by semicolons since names of certificates contain
commas. A part that is no principal stops the broker: to drop it silently might drop a protection with it.
"""

from dataclasses import dataclass, field

from leadline.config.values import BLANK, InvalidSetting

USER_TYPE = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """Kafka's KafkaPrincipal."""

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)  # logged in by a delegation token

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")  # a client without a login and without a certificate


def parse_principal(text: str) -> Principal:
    """Raises ValueError, in Kafka's words, for a text without a colon."""
    type_, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(type_, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """The value of super.users. Semicolons at the end are fine; an empty part elsewhere is not."""
    parts = text.split(";")
    while parts and not parts[-1]:
        parts.pop()
    try:
        return frozenset(parse_principal(part.strip(BLANK)) for part in parts)
    except ValueError as error:
        raise InvalidSetting(f"super.users={text}: {error}") from None
