"""Errors of a cluster: a failed request with its code, or a topic that does not exist."""

from leadline.errors import BY_CODE
from leadline.spark.errors import JobFailed

RETRIABLE_CODES = {code for code, kind in BY_CODE.items() if kind.retriable}


class RequestFailed(JobFailed):
    """A broker answered with an error: the request, and the code."""

    def __init__(self, what: str, code: int, more: str | None = None) -> None:
        name = BY_CODE[code].__name__ if code in BY_CODE else f"error {code}"
        super().__init__(f"{what}: {name} ({code}){f': {more}' if more else ''}")
        self.code = code

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE_CODES


class NoSuchTopic(JobFailed):
    """The topic does not exist. The text names a topic with a similar name."""
