"""An S3 server in a process of its own, with one bucket: moto. It ends with this process, too."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

BUCKET = "lake"
SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """The options of the server, under the names that `--table-option` takes."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
            with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=120):
                pass
            yield {
                "s3.endpoint": endpoint,
                "s3.access-key-id": "leadline",
                "s3.secret-access-key": "hush",
                "s3.region": "us-east-1",
            }
        finally:
            process.stdin.close()
