"""The REST catalog server with which Apache Iceberg tests its own clients, over a catalog in SQLite."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.conformance.kafka import jars
from tests.support.ports import free_ports

MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
START_S = 120.0


@contextmanager
def iceberg_server(folder: Path) -> Iterator[str]:
    """The server's address. Its tables and its catalog are in the folder."""
    libraries = jars.jars_of(Path(__file__).parent / "pom.xml", "iceberg-rest-catalog-1.11.0")
    port, log = free_ports(1), folder / "server.log"
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": (folder / "warehouse").as_uri(),
    }
    quick = ["-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [jars.java(), *quick, "-cp", f"{libraries}/*", MAIN],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_ready(server, address := f"http://127.0.0.1:{port}", log)
        yield address
    finally:
        server.kill()
        server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            urlopen(f"{address}/v1/config", timeout=10).close()
            return
        except (URLError, OSError):
            is_starting = server.poll() is None and time.monotonic() < deadline
            assert is_starting, log.read_text()[-3000:]
            time.sleep(0.1)
