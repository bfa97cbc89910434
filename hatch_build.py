"""Compiles the walk over records (src/leadline/records/compiled_walker.c), where there is a C compiler.

Hatchling calls it for the wheel, which then holds the result, and for an editable install, where it lies beside its
source. `make` runs it as a program. Without a compiler, or without Python's headers, Leadline is the same in pure
Python: `records/walker.py` chooses.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent
SOURCE = ROOT / "src/leadline/records/compiled_walker.c"
NAME = f"{SOURCE.stem}.abi3.so"  # Python's stable interface: one file for 3.11 and all later versions
WHEEL_TAG = "cp311-abi3"
MAN_PAGE = ROOT / "build/leadline.1"
PURE = "Leadline runs in pure Python, without its compiled part"


class NotCompiled(Exception):
    """There is no compiler, or it failed."""


def compile_walker(folder: Path = SOURCE.parent) -> Path:
    """Compile it into a folder and return its path."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = f"-I{sysconfig.get_path('include')}"
    link = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []  # Python has the symbols
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch, NAME)
        command = [*compiler, "-O2", "-fPIC", "-shared", *link, include, str(SOURCE), "-o", str(built)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise NotCompiled(f"there is no {compiler[0]}") from None
        except subprocess.CalledProcessError as error:
            lines = error.stderr.strip().splitlines() or [f"{compiler[0]} failed"]
            raise NotCompiled(next((line for line in lines if "error" in line), lines[0])) from None
        os.replace(built, folder / NAME)  # a process that has the old file open keeps the old one
    return folder / NAME


def main() -> None:
    try:
        compile_walker()
    except NotCompiled as error:
        (SOURCE.parent / NAME).unlink(missing_ok=True)  # perhaps of an older source
        print(f"{PURE}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        """What hatchling calls before it builds a wheel, or installs one that can be edited."""

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            if MAN_PAGE.exists():  # `make package` writes it
                build_data["shared_data"] = {str(MAN_PAGE): "share/man/man1/leadline.1"}
            try:
                built = compile_walker()
            except NotCompiled as error:
                self.app.display_warning(f"{PURE}: {error}")
                return
            if version != "editable":
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["tag"] = f"{WHEEL_TAG}-{platform}"
                build_data["pure_python"] = False
                build_data["force_include"] = {str(built): f"leadline/records/{NAME}"}
