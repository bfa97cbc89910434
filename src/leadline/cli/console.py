"""leadline console: web pages about a Kafka cluster, for a browser on this machine."""

import argparse
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.cli import COMMANDS
from leadline.cli.errors import print_error
from leadline.cli.options import add_command
from leadline.cli.terminal import print_or_drop
from leadline.cli.text_files import read_text

if TYPE_CHECKING:
    from leadline.console.page import TableLocation
    from leadline.console.server import ListenAddress, TlsFiles

DEFAULT_ADDRESS = "127.0.0.1:8080"
MODULES = ("starlette", "uvicorn", "jinja2")
DESCRIPTION = """\
Serve web pages about a Kafka cluster until Ctrl-C: topics and their settings, records, groups with their lag and the
causes of their rebalances, transactions and what they block, brokers and log directories, reassignments, the
replication of each partition with its history, and tables of pipeline jobs.

The console is a client like any other: it works with any Kafka cluster, and it may do what its user may do. It is
read-only unless --allow-changes is set, and listens on this machine only unless --listen names another address. On
another address, protect it with --tls-cert and --user."""
EXAMPLES = """
  leadline console                                           http://127.0.0.1:8080, for localhost:9092
  leadline console --bootstrap-server kafka:9092 --command-config client.properties
  leadline console --allow-changes                           create, change and delete, too
  leadline console --registry http://localhost:8081          decode Avro and Protobuf
  leadline console --table /data/orders                      show a table of a pipeline job
  leadline console --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem \\
      --user admin --password-file password.txt --host-name kafka.example.com
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "console",
        run,
        help=COMMANDS["console"].help,
        usage="console [options]",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    pages = parser.add_argument_group("the pages")
    pages.add_argument(
        "--listen", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=f"address to serve (default {DEFAULT_ADDRESS})"
    )
    pages.add_argument("--allow-changes", action="store_true", help="accept changes (default: read-only)")
    pages.add_argument(
        "--registry", default="", metavar="URL|DIR", help="schema registry, or a directory of ID.avsc and ID.desc files"
    )
    pages.add_argument(
        "--table", action="append", default=[], metavar="[iceberg:]URI", help="a table of a pipeline job; repeatable"
    )
    access = parser.add_argument_group("access")
    access.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, as PEM: serve https")
    access.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, as PEM")
    access.add_argument("--user", default="", metavar="NAME", help="require a login; needs --password-file")
    access.add_argument("--password-file", type=Path, metavar="FILE", help="its first line is the password")
    access.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="name under which browsers reach it, besides addresses and localhost; repeatable",
    )


def missing_extra() -> str | None:
    """What is not installed, and the remedy. None: all that the console needs is there."""
    missing = [module for module in MODULES if find_spec(module) is None]
    verb = "is" if len(missing) == 1 else "are"
    return f"{', '.join(missing)} {verb} not installed: pip install 'leadline[console]'" if missing else None


def run(options: argparse.Namespace) -> int:
    if (missing := missing_extra()) is not None:
        raise Failure(missing)
    from leadline.console.page import Console
    from leadline.console.protection import AccessRules
    from leadline.console.record_values import schema_decoders
    from leadline.console.server import bound_socket, serve
    from leadline.console.session_pool import SessionPool

    address, tls = _address(options.listen), _tls(options)
    rules = AccessRules(options.allow_changes, options.host_name, options.user, _password(options), tls is not None)
    servers = ClusterConnection(options).servers
    tables = [_table(text) for text in options.table]
    console = Console(SessionPool(options), rules, servers, schema_decoders(options.registry), tables)
    sock = bound_socket(address)
    url = f"{'https' if tls else 'http'}://{address._replace(port=sock.getsockname()[1])}"
    print_or_drop(f"Console of {servers} on {url} ({'changes allowed' if rules.allow_changes else 'read-only'})")
    for warning in _warnings(address, rules.user, tls):
        print_error(warning)
    serve(console, sock, tls)
    return 0


def _address(text: str) -> "ListenAddress":
    from leadline.console.server import listen_address

    try:
        return listen_address(text)
    except ValueError as error:
        raise Failure(f"--listen: {error}") from None


def _table(text: str) -> "TableLocation":
    from leadline.console.page import TableLocation

    kind, colon, uri = text.partition(":")
    return TableLocation(kind, uri) if colon and kind in ("delta", "iceberg") else TableLocation("delta", text)


def _tls(options: argparse.Namespace) -> "TlsFiles | None":
    from leadline.console.server import TlsFiles

    if (options.tls_cert is None) != (options.tls_key is None):
        raise Failure("--tls-cert and --tls-key belong together")
    if options.tls_cert is None:
        return None
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(options.tls_cert, options.tls_key)
    except ssl.SSLError as error:
        raise Failure(f"{options.tls_cert} and {options.tls_key} do not fit: {error.reason or error}") from None
    return TlsFiles(options.tls_cert, options.tls_key)


def _password(options: argparse.Namespace) -> str:
    if bool(options.user) != (options.password_file is not None):
        raise Failure("--user and --password-file belong together")
    if options.password_file is None:
        return ""
    password: str = read_text(options.password_file).partition("\n")[0].rstrip("\r")
    if not password:
        raise Failure(f"{options.password_file}: its first line must be the password")
    return password


def _warnings(address: "ListenAddress", user: str, tls: "TlsFiles | None") -> list[str]:
    """What others on the network can see or do."""
    if address.is_loopback:
        return []
    warnings = []
    if not user:
        warnings.append(f"warning: anyone who can reach {address} can use this console: set --user")
    if tls is None:
        warnings.append(f"warning: without --tls-cert, traffic to {address} is readable by others, passwords included")
    return warnings
