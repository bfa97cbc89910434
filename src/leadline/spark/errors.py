"""What all errors have in common that end a job and are told to a person. Imports nothing: it is quick to load."""


class JobFailed(Exception):
    """A job cannot go on; the text says why."""
