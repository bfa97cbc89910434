"""How commands speak to a person: sizes and times in few characters, a status line on terminals only."""

import sys
from types import TracebackType


def size_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def host_text(host: str) -> str:
    if host in ("", "::", "0.0.0.0"):
        return "*"
    return f"[{host}]" if ":" in host else host


def time_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


class Status:
    """One line that is written over; nothing where nobody looks."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> "Status":
        return self

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._shown = True
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
