"""A real key distribution center: MIT's krb5kdc on a free port of the loopback, with a database of its own.

Where its programs are missing the test is skipped.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.waiting import until

REALM = "LEADLINE.TEST"
KRB5_CONF = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
"""
KDC_CONF = """
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
    }}
"""


def program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if path is None:
        pytest.skip(f"needs {name}: Debian's krb5-kdc, krb5-admin-server and krb5-user have it")
    return path


@dataclass
class Kdc:
    folder: Path
    port: int

    @property
    def krb5_conf(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Of a program that uses libkrb5."""
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{self.folder}",
        }

    @property
    def java_option(self) -> str:
        return f"-Djava.security.krb5.conf={self.krb5_conf}"

    def run(self, *command: str, stdin: str = "") -> None:
        done = subprocess.run(
            [program(command[0]), *command[1:]],
            input=stdin,
            env=os.environ | self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout

    def add(self, principal: str, password: str | None = None) -> Path:
        """A principal, and its key in a key table of its own."""
        key = ["-randkey"] if password is None else ["-pw", password]
        self.run("kadmin.local", "-r", REALM, "addprinc", *key, principal)
        return self.add_key(principal)

    def add_key(self, principal: str) -> Path:
        """To its key table, beside those that are there."""
        key_table = self.folder / f"{principal.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(key_table), "-norandkey", principal)
        return key_table

    def change_key(self, principal: str) -> None:
        """No key table has the new one. Tickets that were given out keep the old one."""
        self.run("kadmin.local", "-r", REALM, "cpw", "-randkey", principal)

    def remove(self, principal: str) -> None:
        self.run("kadmin.local", "-r", REALM, "delprinc", "-force", principal)

    def ticket(self, principal: str, password: str) -> Path:
        """A cache with the ticket that a password gets."""
        cache = self.folder / f"{principal}.ccache"
        self.run("kinit", "-c", f"FILE:{cache}", principal, stdin=f"{password}\n")
        return cache


@contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    folder.mkdir(parents=True, exist_ok=True)
    center = Kdc(folder, port := free_ports(1))
    center.krb5_conf.write_text(KRB5_CONF.format(realm=REALM, port=port))
    (folder / "kdc.conf").write_text(KDC_CONF.format(realm=REALM, port=port, folder=folder))
    center.run("kdb5_util", "create", "-r", REALM, "-s", "-P", "master-secret")
    log = folder / "krb5kdc.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program("krb5kdc"), "-n", "-r", REALM],
            env=os.environ | center.environment,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: process.poll() is not None or "starting" in log.read_text(), log.read_text)
        assert process.poll() is None, log.read_text()
        yield center
    finally:
        process.kill()
        process.wait()
