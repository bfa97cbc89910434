"""Times and durations as a person types them."""

import argparse
import re
import time
from datetime import datetime

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_PART = r"(\d+)\s*([a-z]+)\s*"
_ISO_DURATION = re.compile(r"P(?:\d+[DW])*(?:T(?:\d+[HMS])+)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """A duration: 90s, 2h, "1 hour 30 minutes", or ISO 8601 as in Kafka's tools (PT2H)."""
    plain = re.sub("[pt]", "", text.lower()) if _ISO_DURATION.fullmatch(text) else text.lower()
    parts = [(int(count), _unit(word)) for count, word in re.findall(_PART, plain)]
    if not re.fullmatch(f"(?:{_PART})+", plain) or not all(unit in _UNIT_MS for _, unit in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: expected 90s, 15m, 2h, 7d or PT2H30M")
    return sum(count * _UNIT_MS[unit] for count, unit in parts)


def _unit(word: str) -> str:
    singular = word.removesuffix("s") if len(word) > 2 else word
    return _WORDS.get(singular, word)


def moment_ms(text: str) -> int:
    """A time, in ms since 1970: a number of ms, ISO 8601, `now`, or a time ago (-90m, "2 hours ago")."""
    if text.isdigit():
        return int(text)
    now_ms = time.time_ns() // 1_000_000
    if text == "now":
        return now_ms
    try:
        if text.startswith("-"):
            return now_ms - duration_ms(text[1:])
        if text.endswith(" ago"):
            return now_ms - duration_ms(text.removesuffix(" ago"))
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: expected 2024-05-01T12:00, ms since 1970, now, -90m, or '2 hours ago'"
        ) from None
