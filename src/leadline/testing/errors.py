"""The error of a cluster in a test that cannot carry out a call."""


class ClusterError(Exception):
    """The message has the reason and the remedy."""
