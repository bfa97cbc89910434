"""The base class of errors that end a job with one line for the user, and parts of such lines.

It imports little, so it loads quickly.
"""

import re


class JobFailed(Exception):
    """A job cannot continue. The text gives the reason."""


def partitions_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def without_credentials(text: str) -> str:
    """The text without the users and passwords of URLs in it."""
    return re.sub(r"(\w+://)[^/\s@]+@", r"\1", text)
