"""A REST catalog of Iceberg over pyiceberg's catalog in SQLite: what a writer of tables asks of such a server."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

SEPARATOR = "\x1f"  # of the parts of a namespace, in a path
CODES = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}
Answer = tuple[int, str]


class RestCatalogRequests:
    """The requests, by method and path. One at a time: the catalog below shall decide about conflicts, not SQLite."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._lock = catalog, threading.Lock()
        self._routes: list[tuple[str, str, Callable[..., Answer]]] = [
            ("GET", r"/v1/config", self._config),
            ("POST", r"/v1/namespaces", self._create_namespace),
            ("(GET|HEAD)", r"/v1/namespaces/([^/]+)", self._namespace),
            ("POST", r"/v1/namespaces/([^/]+)/tables", self._create_table),
            ("(GET|HEAD)", r"/v1/namespaces/([^/]+)/tables/([^/]+)", self._load),
            ("POST", r"/v1/namespaces/([^/]+)/tables/([^/]+)", self._commit),
        ]

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        for verb, pattern, handle in self._routes:
            if re.fullmatch(verb, method) and (match := re.fullmatch(pattern, path)):
                try:
                    with self._lock:
                        return handle(body, *map(unquote, match.groups()))
                except tuple(CODES) as error:
                    code = CODES[type(error)]
                    return code, json.dumps(
                        {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
                    )
        return 400, json.dumps(
            {"error": {"message": f"no {method} {path}", "type": "BadRequestException", "code": 400}}
        )

    def _config(self, _: bytes) -> Answer:
        return 200, json.dumps({"defaults": {}, "overrides": {}})

    def _create_namespace(self, body: bytes) -> Answer:
        request = json.loads(body)
        self._catalog.create_namespace(tuple(request["namespace"]))
        return 200, json.dumps({"namespace": request["namespace"], "properties": {}})

    def _namespace(self, _: bytes, namespace: str) -> Answer:
        parts = tuple(namespace.split(SEPARATOR))
        self._catalog.load_namespace_properties(parts)
        return 200, json.dumps({"namespace": parts, "properties": {}})

    def _create_table(self, body: bytes, namespace: str) -> Answer:
        request = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
        assert not request.stage_create
        return self._table(
            self._catalog.create_table(
                (*namespace.split(SEPARATOR), request.name),
                request.table_schema,
                request.location,
                request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                properties=request.properties,
            )
        )

    def _load(self, _: bytes, namespace: str, name: str) -> Answer:
        return self._table(self._catalog.load_table((*namespace.split(SEPARATOR), name)))

    def _commit(self, body: bytes, namespace: str, name: str) -> Answer:
        request = CommitTableRequest.model_validate_json(body)
        table = self._catalog.load_table((*namespace.split(SEPARATOR), name))
        return 200, self._catalog.commit_table(table, request.requirements, request.updates).model_dump_json(
            by_alias=True
        )

    def _table(self, table: Table) -> Answer:
        content: dict[str, object] = {
            "metadata-location": table.metadata_location,
            "metadata": table.metadata,
            "config": {},
        }
        response = TableResponse.model_validate(content)
        return 200, response.model_dump_json(by_alias=True)


@contextmanager
def rest_catalog(catalog: Catalog) -> Iterator[str]:
    """The server's address."""
    requests = RestCatalogRequests(catalog)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, text = requests.answer(self.command, urlsplit(self.path).path, body)
            data = b"" if self.command == "HEAD" else text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_HEAD = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
