"""Passwords among the dynamic settings of a broker: encoded in the tree, plain in memory.

Pure: settings in, settings out. Random bytes come through the encoder.

    a setting is a password if its name ends like one of Kafka's dynamic ones, whatever stands before it
    without password.encoder.secret no password is written, and none is read
    a password that cannot be decoded is left out and named; the broker does without it, as Kafka does
    password.encoder.old.secret serves at the start: what it decodes is encoded again with the secret of now
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from leadline.config.alter import NotApplicable
from leadline.config.broker import BrokerConfig, kafka_table
from leadline.config.settings import Mode
from leadline.security.password_encoder import (
    KEY_FACTORY_ALGORITHM,
    PasswordEncoder,
    PasswordNotDecoded,
    decode_password,
)
from leadline.security.secret import Secret


class DecodedConfig(NamedTuple):
    config: dict[str, str]
    unreadable: tuple[str, ...]  # the names of passwords that are left out


@cache
def _password_names() -> tuple[str, ...]:
    return tuple(name for name, row in kafka_table().items() if row.sensitive and row.mode is not Mode.READ_ONLY)


def is_password(name: str) -> bool:
    return name.endswith(_password_names())


class DynamicPasswords:
    """`encoder`: None if no secret is configured."""

    def __init__(self, encoder: PasswordEncoder | None = None, old_secret: Secret | None = None) -> None:
        self._encoder, self._old_secret = encoder, old_secret

    @classmethod
    def of(cls, config: BrokerConfig, random: Callable[[int], bytes]) -> "DynamicPasswords":
        """Raises InvalidSetting."""
        secret, old = config.password_encoder_secret, config.password_encoder_old_secret
        old_secret = None if old is None else Secret.of(old.value)
        if secret is None:
            return cls(None, old_secret)
        encoder = PasswordEncoder(
            Secret.of(secret.value),
            random,
            config.password_encoder_keyfactory_algorithm or KEY_FACTORY_ALGORITHM,
            config.password_encoder_cipher_algorithm,
            config.password_encoder_key_length,
            config.password_encoder_iterations,
        )
        return cls(encoder, old_secret)

    def encoded(self, config: Mapping[str, str], *, of_all: bool) -> dict[str, str]:
        """As the tree holds it. Raises NotApplicable, in Kafka's words."""
        return {name: self._encode(text, of_all) if is_password(name) else text for name, text in config.items()}

    def _encode(self, text: str, of_all: bool) -> str:
        if of_all:
            raise NotApplicable("Password config can be defined only at broker level")
        if self._encoder is None:
            raise NotApplicable("Password encoder secret not configured")
        return self._encoder.encode(Secret.of(text))

    def decoded(self, config: Mapping[str, str]) -> DecodedConfig:
        texts = {name: self._decode(text) if is_password(name) else text for name, text in config.items()}
        readable = {name: text for name, text in texts.items() if text is not None}
        return DecodedConfig(readable, tuple(sorted(texts.keys() - readable.keys())))

    def _decode(self, text: str) -> str | None:
        return None if self._encoder is None else _decoded(self._encoder.secret, text)

    def reencoded(self, config: Mapping[str, str]) -> dict[str, str] | None:
        """The settings with passwords of the old secret encoded by the new one. None: there are none."""
        if self._old_secret is None:
            return None
        old = {name: _decoded(self._old_secret, text) for name, text in config.items() if is_password(name)}
        plain = {name: text for name, text in old.items() if text is not None}
        return dict(config) | self.encoded(plain, of_all=False) if plain else None


def _decoded(secret: Secret, text: str) -> str | None:
    try:
        return decode_password(secret, text).reveal_text()
    except PasswordNotDecoded:
        return None
