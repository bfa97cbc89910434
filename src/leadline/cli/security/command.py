"""leadline security: from nothing to a broker with certificates, logins and ACLs, for development.

`init` writes everything below one folder, and nothing else. The user of SCRAM goes into the tree of the broker's data,
as a broker would put it there.
"""

import argparse
import asyncio
import re
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from leadline.admin.errors import Failure
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.options import Commands, add_command, add_subcommands
from leadline.cli.output import add_output_option, print_result
from leadline.cli.passwords import write_private
from leadline.cli.security.authority import is_host, new_authority, new_leaf
from leadline.cli.security.files import (
    ADMIN,
    AUTHORITY_FILE,
    AUTHORITY_KEY_FILE,
    BROKER,
    DATA_FOLDER,
    MECHANISM,
    SETTINGS_FILE,
    TRUST_STORE_FILE,
    SecureListeners,
    client_files,
    key_store_file,
    pem_file,
    server_settings,
)
from leadline.cli.terminal import TextStyles
from leadline.coordination import znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.runtime.ports import SystemTime
from leadline.security.client_quotas import QuotaEntity
from leadline.security.quota_nodes import node_path
from leadline.security.scram_credentials import SCRAM_MECHANISMS, credential_of_password, credential_text
from leadline.security.secret import Secret

DEFAULT_FOLDER = "leadline-security"
INIT = """
  leadline security init                                     everything in ./leadline-security
  leadline security init /tmp/secure --user ben --port 19093
  leadline security init --host broker.example.org           a name of the broker beside localhost
"""
DESCRIPTION = """
Write a certificate authority, certificates of a broker and an administrator (PEM
and PKCS12), a user who logs in by SCRAM, the settings of a broker, and ready
properties for Java, librdkafka and Python. Nothing is overwritten. For
development: the key of the authority is not encrypted.
"""
ITERATIONS = 8192
PORT = 9093
_USER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECRET_BYTES = 24


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "security", COMMANDS["security"].help)
    init = add_command(
        subcommands,
        "init",
        _init,
        help="write certificates, a user and settings for development",
        usage="security init [DIR] [options]",
        examples=INIT,
        description=DESCRIPTION.strip(),
        connects=False,
    )
    add_output_option(init)
    init.add_argument("folder", nargs="?", type=Path, default=Path(DEFAULT_FOLDER), metavar="DIR")
    init.add_argument("--user", type=user_name, default="alice", metavar="NAME", help="a user (default alice)")
    init.add_argument(
        "--host",
        type=host_name,
        action="append",
        default=[],
        metavar="HOST",
        help="another name or address of the broker, besides localhost; repeatable; the broker listens on the first",
    )
    init.add_argument(
        "--port",
        type=port_number,
        default=PORT,
        metavar="PORT",
        help=f"TLS port (default {PORT}); the SASL port is the next one",
    )


def user_name(text: str) -> str:
    if not _USER.fullmatch(text) or text in (ADMIN, BROKER):
        taken = f"; {ADMIN} and {BROKER} are taken"
        raise argparse.ArgumentTypeError(f"expected letters, digits and . _ -, not {text!r}{taken}")
    return text


def host_name(text: str) -> str:
    if not is_host(text):
        raise argparse.ArgumentTypeError(f"expected the name or the address of a host, not {text!r}")
    return text


def port_number(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65534, not {text!r}")
    return int(text)


def _init(options: argparse.Namespace) -> int:
    folder = options.folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Failure(f"{options.folder} exists and is not empty: nothing is overwritten")
    is_new = not folder.exists()
    listeners = SecureListeners(options.host[0] if options.host else "localhost", options.port, options.port + 1)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        _write(folder, listeners, options.user, options.host)
    except BaseException:
        shutil.rmtree(folder if is_new else folder / DATA_FOLDER, ignore_errors=True)
        raise
    value: Json = {
        "folder": str(options.folder),
        "user": options.user,
        "listeners": {"SSL": listeners.tls, "SASL_SSL": listeners.login},
        "files": sorted(path.name for path in folder.iterdir() if path.is_file()),
    }
    print_result(options, value, "\n".join(_report(options.folder, listeners, options.user, TextStyles(sys.stdout))))
    return 0


def _write(folder: Path, listeners: SecureListeners, user: str, hosts: list[str]) -> None:
    password, store_password, token_key = (Secret.of(secrets.token_urlsafe(_SECRET_BYTES)) for _ in range(3))
    authority = new_authority("Leadline development CA")
    names = [*dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts])]
    leaves = {BROKER: new_leaf(authority, BROKER, names), ADMIN: new_leaf(authority, ADMIN)}
    private: dict[str, bytes] = {
        AUTHORITY_KEY_FILE: authority.key_pem(),
        TRUST_STORE_FILE: authority.trust_store(store_password),
        SETTINGS_FILE: server_settings(str(folder), listeners, token_key).encode(),
    }
    for name, leaf in leaves.items():
        private[pem_file(name)] = leaf.key_pem() + leaf.certificate_pem()
        private[key_store_file(name)] = leaf.pkcs12(name, store_password, authority)
    texts: Mapping[str, str] = client_files(str(folder), listeners, user, password, store_password)
    for file, data in {**private, **{file: text.encode() for file, text in texts.items()}}.items():
        write_private(folder / file, data)
    (folder / AUTHORITY_FILE).write_bytes(authority.certificate_pem())
    (folder / DATA_FOLDER).mkdir(mode=0o700)
    asyncio.run(_add_user(folder / DATA_FOLDER, user, password))


async def _add_user(data: Path, user: str, password: Secret) -> None:
    mechanism = SCRAM_MECHANISMS[MECHANISM]
    credential = credential_of_password(mechanism, password, secrets.token_bytes(32), ITERATIONS)
    tree = await EmbeddedTree.open(str(data), SystemTime())
    try:
        config = znodes.encode_config({MECHANISM: credential_text(credential)})
        await tree.create(node_path(QuotaEntity(user)), config, make_parents=True)
    finally:
        await tree.close()


def _report(folder: Path, listeners: SecureListeners, user: str, paint: TextStyles) -> list[str]:
    admin = f"--command-config {folder}/{ADMIN}.properties"
    return [
        f"Wrote {paint.bold(str(folder))}: for development only. Keep it private.",
        f"  {SETTINGS_FILE:18} {listeners.tls} for certificates, {listeners.login} for logins",
        f"  {f'{ADMIN}.properties':18} User:{ADMIN}, a super user, by certificate",
        f"  {f'{user}.properties':18} User:{user}, by {MECHANISM}, without any rights yet",
        "  *.properties       for Java and --command-config; *.librdkafka.properties and",
        "                     *.kafka-python.json for librdkafka and Python",
        f"  {f'{AUTHORITY_FILE}, *.pem':18} the certificates, and as PKCS12: *.p12",
        "Next:",
        f"  leadline start {folder}/{SETTINGS_FILE}",
        f"  leadline topics create orders {admin}",
        f"  leadline acls add --allow-principal User:{user} --producer --topic orders {admin}",
        f"  leadline produce orders --command-config {folder}/{user}.properties",
    ]
