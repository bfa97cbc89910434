"""The base class of errors that end a job with one line for the user. It imports nothing, so it loads quickly."""


class JobFailed(Exception):
    """A job cannot continue. The text gives the reason."""
