"""Builds the compiled part of the decoder: `python -m leadline.spark.batches.native`, or `make native`.

It needs Cython and a C compiler, and takes some seconds. The result lies beside its source, where record_positions.py
imports it. Only speed depends on it: without it, numpy computes the same columns.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("native_positions.pyx")


def build(folder: Path = SOURCE.parent) -> Path:
    """Builds the module and returns its path. CalledProcessError if Cython or the compiler fails, with its stderr."""
    target = folder / f"{SOURCE.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    name = f"{__package__}.{SOURCE.stem}"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        code, built = Path(scratch, f"{SOURCE.stem}.c"), Path(scratch, target.name)
        _run([sys.executable, "-m", "cython", "--module-name", name, str(SOURCE), "-o", str(code)])
        include = f"-I{sysconfig.get_path('include')}"
        _run([*compiler.split(), "-O2", "-fPIC", "-shared", include, str(code), "-o", str(built)])
        os.replace(built, target)  # a process that has the old file open keeps the old one
    return target


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, text=True)


if __name__ == "__main__":
    try:
        print(f"built {build()}")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"not built; numpy does the work: {error}")
