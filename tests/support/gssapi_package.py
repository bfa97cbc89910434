"""The package gssapi, built once from the versions of requirements-gssapi.lock, and kept below the cache of the tests.

It is no part of the environment of the tests, as it takes libkrb5-dev and a compiler to build. A broker gets it by
PYTHONPATH. Where it cannot be built the test is skipped.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conformance.kafka.jars import cache, once

LOCK = Path(__file__).parents[2] / "requirements-gssapi.lock"
QUICKLY = {"CFLAGS": "-O0 -g0"}  # it waits for libkrb5 in any case


def gssapi_package() -> Path:
    """The folder to put on PYTHONPATH."""
    digest = hashlib.sha256(LOCK.read_bytes() + (sysconfig.get_config_var("SOABI") or "").encode())
    return once(cache() / f"gssapi-{digest.hexdigest()[:16]}", _build)


def _build(folder: Path) -> None:
    for tool, package in (("krb5-config", "libkrb5-dev"), ("cc", "a C compiler")):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} to build gssapi: {package} has it")
    with TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch, "bin", Path(sys.executable).name)
        install = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile", "--require-hashes")
        command = [str(python), *install, "--target", str(folder), "-r", str(LOCK)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | QUICKLY
        done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout
