"""Whether a secret is shown: all that is logged and printed, and the forms in which a secret could stand in it.

A secret has many forms: as text, in base64 and in hex, within the messages of a login, whole or as what was derived.
"""

import base64
import hashlib
import io
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from leadline.security.scram_credentials import (
    ScramMechanism,
    client_key,
    credential_of_password,
    salted_password,
)
from leadline.security.secret import Secret


@contextmanager
def captured() -> Iterator[io.StringIO]:
    """All that is logged, on every level and with tracebacks, and all that is printed."""
    text, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(text)
    levels = {logger: logger.level for logger in root.manager.loggerDict.values() if isinstance(logger, logging.Logger)}
    level, outputs = root.level, (sys.stdout, sys.stderr)
    for logger in levels:  # a cluster of another test may have set one
        logger.setLevel(logging.NOTSET)
    root.addHandler(handler)
    root.setLevel(1)
    sys.stdout = sys.stderr = text
    try:
        yield text
    finally:
        sys.stdout, sys.stderr = outputs
        root.setLevel(level)
        root.removeHandler(handler)
        for logger, before in levels.items():
            logger.setLevel(before)


def forms(secret: bytes) -> set[str]:
    """In which it could be shown. Base64 depends on what stands before it: each of the three ways, without its ends."""
    shown = {secret.hex(), secret.hex(" "), repr(secret)[2:-1], quote(secret)}
    with suppress(UnicodeDecodeError):
        shown.add(secret.decode())
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(bytes(before) + secret).decode().rstrip("=")
            shown.add(encoded[4 if before else 0 : -2])
    return {form for form in shown if len(form) >= 8} | {form.upper() for form in shown if form == secret.hex()}


def scram_secrets(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> list[bytes]:
    """A password, its salt, and all that is derived of them."""
    credential = credential_of_password(mechanism, Secret.of(password), salt, iterations)
    salted = salted_password(mechanism, Secret.of(password), salt, iterations).reveal()
    return [
        password.encode(),
        salt,
        salted,
        client_key(mechanism, Secret(salted)).reveal(),
        credential.stored_key.reveal(),
        credential.server_key.reveal(),
    ]


def digest_secrets(user: str, realm: str, password: str) -> list[bytes]:
    """Of DIGEST-MD5: the password, and the hash that stands for it."""
    digest = hashlib.md5(f"{user}:{realm}:{password}".encode())
    return [password.encode(), digest.digest(), digest.hexdigest().encode()]


def check_not_shown(secrets: Iterable[bytes], texts: Iterable[str]) -> None:
    secret_forms = {form for secret in secrets for form in forms(secret)}
    for shown in texts:
        for form in secret_forms:
            at = shown.find(form)
            assert at < 0, f"{form!r} of a secret is shown: ...{shown[max(at - 200, 0) : at + len(form) + 50]}"
