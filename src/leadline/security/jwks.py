"""The key set (JWKS, RFC 7517) that tokens of a listener are checked with, and when to fetch it again.

Pure: documents in, keys out. The caller fetches on request, off the loop, and passes the document in.

    a token finds its key by id; without an id, only if exactly one key fits its algorithm
    only public keys count, each for the algorithms of its kind; others in the set are skipped
    an id that is not there asks for one early fetch in 60 s, and at most 16 such ids are remembered at a time: so bad
        tokens cause at most 16 fetches a minute; ids beyond 1000 characters cause none
    an unreadable document changes nothing: the current keys stay

The endpoint is an https URL, or a file if the setting stands in the file of the broker (CVE-2025-27817).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from leadline.config.values import InvalidSetting

REFRESH_MS = 3_600_000  # the default of sasl.oauthbearer.jwks.endpoint.refresh.ms
MISSING_MS = 60_000
MOST_MISSING = 16
MOST_ID_CHARACTERS = 1000
MOST_KEYS = 1000
_MIN_RSA_BITS = 2048

_RSA = {f"{kind}{bits}": ("RSA", "") for kind in ("RS", "PS") for bits in (256, 384, 512)}
_EC = {"ES256": ("EC", "P-256"), "ES384": ("EC", "P-384"), "ES512": ("EC", "P-521")}
_ALGORITHMS = {**_RSA, **_EC}  # algorithm: kind and curve of its keys
_EDDSA_CURVES = {"Ed25519", "Ed448"}


class InvalidJwks(ValueError):
    """A document that is no key set."""


@dataclass(frozen=True, slots=True)
class _Key:
    key_id: str | None
    kind: str
    curve: str
    algorithm: str | None  # the only one that the set allows for it; None: all of its kind
    public: object

    def fits(self, algorithm: str) -> bool:
        if self.algorithm not in (None, algorithm):
            return False
        if algorithm == "EdDSA":
            return self.kind == "OKP" and self.curve in _EDDSA_CURVES
        kind, curve = _ALGORITHMS.get(algorithm, ("", ""))
        return self.kind == kind and (not curve or self.curve == curve)


class Jwks:
    """The current keys. `request_fetch` is called when a key is missing that a fetch may bring."""

    def __init__(self, request_fetch: Callable[[], None], refresh_ms: int = REFRESH_MS) -> None:
        self._request_fetch, self._refresh_ms = request_fetch, refresh_ms
        self._keys: list[_Key] = []
        self._missing: dict[str, int] = {}  # ids that were not there, and until when that is remembered
        self._loaded_ms: int | None = None

    def load(self, document: bytes, now_ms: int) -> None:
        """Raises InvalidJwks, and keeps the current keys."""
        self._keys = _parsed(document)
        self._loaded_ms = now_ms
        for key in self._keys:
            self._missing.pop(key.key_id or "", None)

    def is_due(self, now_ms: int) -> bool:
        """Whether a regular fetch is due."""
        return self._loaded_ms is None or now_ms - self._loaded_ms >= self._refresh_ms

    def find(self, key_id: str | None, algorithm: str, now_ms: int) -> object | None:
        """The public key for a token, for PyJWT to use."""
        fitting = [key for key in self._keys if key.fits(algorithm) and (key_id is None or key.key_id == key_id)]
        if key_id is None:
            return fitting[0].public if len(fitting) == 1 else None
        if fitting:
            return fitting[0].public
        if all(key.key_id != key_id for key in self._keys):
            self._note_missing(key_id, now_ms)
        return None

    def _note_missing(self, key_id: str, now_ms: int) -> None:
        if len(key_id) > MOST_ID_CHARACTERS:
            return
        self._missing = {name: until for name, until in self._missing.items() if until > now_ms}
        if key_id not in self._missing and len(self._missing) < MOST_MISSING:
            self._missing[key_id] = now_ms + MISSING_MS
            self._request_fetch()


def _parsed(document: bytes) -> list[_Key]:
    try:
        keys = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidJwks("a key set is an object with a list of keys") from None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise InvalidJwks(f"a key set has a list of at most {MOST_KEYS} keys")
    return [key for entry in keys if isinstance(entry, dict) and (key := _key(entry)) is not None]


def _key(entry: dict[str, Any]) -> _Key | None:
    """None: a key that no token may be checked with."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    kind, curve, key_id, algorithm = (entry.get(name) for name in ("kty", "crv", "kid", "alg"))
    is_private = any(name in entry for name in ("d", "k"))
    if kind not in ("RSA", "EC", "OKP") or is_private or entry.get("use", "sig") != "sig":
        return None
    if not all(value is None or isinstance(value, str) for value in (curve, key_id, algorithm)):
        return None
    first = algorithm or next((name for name, form in _ALGORITHMS.items() if form == (kind, curve or "")), "EdDSA")
    key = _Key(key_id, kind, curve or "", algorithm, None)
    if not key.fits(first):
        return None
    try:
        public = PyJWK(entry, algorithm=first)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and getattr(public.key, "key_size", 0) < _MIN_RSA_BITS:
        return None
    return _Key(key_id, kind, curve or "", algorithm, public.key)


def check_endpoint(setting: str, url: str | None, why: str) -> str:
    """The URL, or a path after file://. Raises InvalidSetting; `why`: why it is needed."""
    if not url:
        raise InvalidSetting(f"{setting} is not set: {why}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidSetting(f"{setting}={url}: {error}") from None
    if parts.scheme == "https" and parts.hostname and not parts.username:
        return url
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return f"file://{unquote(parts.path)}"
    raise InvalidSetting(f"{setting}={url}: must be an https URL or a file:/// URL")


def check_library() -> None:
    """Raises InvalidSetting, with the remedy, where PyJWT is not installed."""
    try:
        import jwt  # noqa: F401
    except ImportError:
        raise InvalidSetting("OAUTHBEARER needs PyJWT: install leadline[oauth]") from None
