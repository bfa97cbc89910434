"""make package: builds the wheel and the sdist into dist/, and tries both. ARGS=--spark tries that extra, too."""

import argparse
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

from leadline.cli import whole_parser
from leadline.cli.completion.command_tree import command_nodes
from leadline.cli.completion.shells import SCRIPTS
from tests.package.environment import ROOT, CheckFailed, Environment, run
from tests.support.completions import offered

DIST = ROOT / "dist"
NO_COMPILER = {"CC": "no-such-compiler"}
EXTRAS = {  # a command that says in one line that its extra is missing
    "console": ["console"],
    "spark": ["demo"],
}
COMPLETIONS = (
    (["topics", "cr"], "create"),
    (["topics", "create", "orders", "--partit"], "--partitions"),
    (["start", "--log-format", "j"], "json"),
    (["pipeline", "table", "comp"], "compact"),
)
FIXTURE_TEST = """
def test_a_broker_is_there(kafka):
    kafka.produce("orders", ["one"])
    assert kafka.values("orders") == ["one"]
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make package", description=__doc__)
    parser.add_argument("--spark", action="store_true", help="install the extra spark, too: 700 MB")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="leadline-package-") as scratch:
            check(Path(scratch), with_spark=options.spark)
    except CheckFailed as error:
        print(f"make package: {error}", file=sys.stderr)
        return 1
    return 0


def check(scratch: Path, *, with_spark: bool) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    say("builds the wheel and the sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(DIST))
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    say("checks what they contain")
    check_contents(wheel, sdist)

    say("installs the wheel alone, and runs a broker and commands of it")
    plain = Environment(scratch / "plain")
    plain.install(str(wheel))
    if "-abi3-" in wheel.name and "compiled" not in plain.leadline("--version"):
        raise CheckFailed("the wheel is compiled, but the command runs in pure Python")
    check_broker(plain)
    for extra, words in EXTRAS.items():
        check_refusal(plain, extra, words)

    for extra, try_extra in {"console": try_console, "oauth": try_oauth, "testing": try_testing}.items():
        say(f"installs the wheel with the extra {extra}, and tries it")
        environment = Environment(scratch / extra)
        environment.install(f"{wheel}[{extra}]")
        try_extra(environment)
    if with_spark:
        say("installs the wheel with the extra spark, and runs a job")
        environment = Environment(scratch / "spark")
        environment.install(f"{wheel}[spark]")
        try_spark(environment)

    check_documents()
    check_sdist(scratch / "sdist", sdist, {}, "compiled record walker")
    check_sdist(scratch / "pure", sdist, NO_COMPILER, "pure Python")
    say(f"all is well: {sizes(wheel)}, {sizes(sdist)}")


def check_contents(wheel: Path, sdist: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        Metadata.from_email(archive.read(described), validate=True)
    require(names, "leadline/py.typed", "leadline/wire/schema.txt", "leadline/console/templates/base.html")
    if not any(name.endswith("/share/man/man1/leadline.1") for name in names):
        raise CheckFailed(f"{wheel.name} has no man page")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    require(inside, "LICENSE", "README.md", "hatch_build.py", "src/leadline/records/compiled_walker.c", "PKG-INFO")


def require(names: set[str], *required: str) -> None:
    if missing := set(required) - names:
        raise CheckFailed(f"the package does not contain {', '.join(sorted(missing))}")


def check_broker(environment: Environment) -> None:
    with environment.broker() as address:
        server = ["--bootstrap-server", address]
        environment.leadline("topics", "create", "orders", *server)
        environment.leadline("produce", "orders", *server, typed="3 apples\n1 pear\n")
        consumed = environment.leadline("consume", "orders", "--group", "g", "--from-beginning", "--to-end", *server)
        outputs = [consumed, environment.leadline("topics", "list", *server)]
        outputs.append(environment.leadline("groups", "list", *server))
    for output, part in zip(outputs, ("3 apples\n1 pear\n", "orders\n", "g "), strict=True):
        if part not in output:
            raise CheckFailed(f"{part!r} is missing in:\n{output}")


def check_refusal(environment: Environment, extra: str, words: list[str]) -> None:
    output = environment.leadline(*words, fails=True)
    if output.count("\n") != 1 or f"pip install 'leadline[{extra}]'" not in output:
        raise CheckFailed(f"`leadline {' '.join(words)}` does not name its extra in one line:\n{output}")


def try_console(environment: Environment) -> None:
    environment.python("-c", "import leadline.console.app, leadline.console.server")
    if "not installed" in environment.leadline("console", "--listen", "127.0.0.1:1", "--user", "anna", fails=True):
        raise CheckFailed("the extra console does not bring what the console needs")


def try_oauth(environment: Environment) -> None:
    environment.python("-c", "from leadline.security.jwks import check_library; check_library()")


def try_testing(environment: Environment) -> None:
    (environment.folder / "test_fixture.py").write_text(FIXTURE_TEST)
    environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_fixture.py")


def try_spark(environment: Environment) -> None:
    with environment.broker() as address:
        environment.leadline("topics", "create", "orders", "--bootstrap-server", address)
        report = str(environment.folder / "report.html")
        environment.leadline("pipeline", "report", "orders", "--out", report, "--bootstrap-server", address)


def check_documents() -> None:
    """The man page, and the completion in each shell, as far as the tools for that are installed."""
    nodes = list(command_nodes(whole_parser()))
    for tool in ("mandoc", *SCRIPTS):
        if shutil.which(tool) is None:
            say(f"{tool} is not installed: not checked with it")
        elif tool == "mandoc":
            say("checks the man page with mandoc")
            run("mandoc", "-T", "lint", "-W", "error", ROOT / "build/leadline.1")
        else:
            say(f"completes commands in {tool}")
            script = SCRIPTS[tool](nodes)
            for words, candidate in COMPLETIONS:
                if offered(tool, script, *words) != [candidate]:
                    raise CheckFailed(f"{tool} offers {offered(tool, script, *words)} after {words}")


def check_sdist(folder: Path, sdist: Path, variables: dict[str, str], walker: str) -> None:
    say(f"installs the sdist {'without' if variables else 'with'} a compiler, and runs a broker of it")
    environment = Environment(folder)
    environment.install("hatchling")
    output = environment.install("--no-build-isolation", "--no-cache-dir", str(sdist), "-v", variables=variables)
    if variables and output.count("Leadline runs in pure Python") != 1:
        raise CheckFailed(f"the installation does not say that it is in pure Python:\n{output}")
    if walker not in environment.leadline("--version"):
        raise CheckFailed(f"the sdist was not built as expected: {environment.leadline('--version')}")
    check_broker(environment)


def sizes(file: Path) -> str:
    return f"dist/{file.name} ({file.stat().st_size / 1e6:.1f} MB)"


def say(text: str) -> None:
    print(f"make package: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
