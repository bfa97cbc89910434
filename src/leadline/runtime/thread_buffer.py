"""Memory that is used again and again by the thread that it belongs to: fresh memory costs more than the work in it.

Each thread with a loop has its own, since several brokers may run in one process.
"""

import threading


class ThreadBuffer(threading.local):
    def __init__(self, size: int) -> None:
        """Called once in each thread that uses the buffer."""
        self.view = memoryview(bytearray(size))
