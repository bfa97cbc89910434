"""Text files that the user of a command names."""

from pathlib import Path

from leadline.admin.errors import Failure


def read_text(file: Path) -> str:
    """Raises OSError, and Failure for a file that is not text."""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: expected text in UTF-8; byte {error.start} does not fit") from None
