"""The tree itself: what docs/ARCHITECTURE.md promises about the source, held by reading it with `ast`.

Each check is a function from parsed modules to complaints, one line each. It is run over the tree, where it must find
nothing, and over a made-up snippet, where it must find something.
"""

import ast
import os
import re
import subprocess
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from leadline.cli import COMMANDS
from tests.support.covered_modules import COVERED_BY, MOST

ROOT = Path(__file__).resolve().parent.parent

# Imports point down this list only. What is not in it is not in the house.
HOUSE = """
    __main__ cli console admin spark testing simulation metrics broker api controller coordinator replication cluster
    security coordination log records wire runtime config errors model hash_order
""".split()

# These reach the world through the ports alone. `runtime` has the real ports. Exempt are
#   __main__, cli, console, admin, spark: processes of their own, which deal with terminals, browsers and Spark;
#   testing: it runs in the process of a test and puts faults on the real ports.
ON_PORTS = [name for name in HOUSE[HOUSE.index("simulation") :] if name != "runtime"]

SPARK_LOOKS_FOR = "pyspark_"  # modules beside the house that Spark finds by their name

PURE_PACKAGES = {"records", "wire"}
IMPURE = set(
    """
    asyncio concurrent datetime fcntl io logging mmap multiprocessing os pathlib random secrets select selectors
    shutil signal socket sqlite3 ssl subprocess tempfile threading time
    """.split()
)
IMPURE_CALLS = {"input", "open", "print"}
OPENS_SOCKET = {"create_connection", "create_server", "open_connection", "start_server", "sock_connect"}

CLOCK_OR_DICE = re.compile(r"(datetime\.)?(datetime\.(now|utcnow|today)|date\.today)|uuid\.uuid[14]|os\.urandom")
OPENS_FILE = {"fcntl", "glob", "io", "pathlib", "shutil", "sqlite3", "tempfile"}
# Nothing of `os` but the flags that the port takes and what splits and joins paths; `abspath` has no file to ask.
OF_OS = re.compile(r"os\.(O_[A-Z]+|path|path\.(join|dirname|basename|abspath))")

# What opens files beside the port, each with its reason.
THE_TREES_OWN = "SQLite opens the file of the embedded tree: it is one side of the coordination port"
BESIDE_THE_FILES = {
    "leadline.coordination.embedded": THE_TREES_OWN,
    "leadline.coordination.database": THE_TREES_OWN,
    "leadline.coordination.salvage": THE_TREES_OWN,
    "leadline.simulation.virtual_disk": "it is a files port itself: a mapping of its own memory, and texts of errors",
}
# `ssl` takes keys from paths only: it gets a `memory_file`, with bytes that came through the port.
READ_BY_SSL = {"load_cert_chain", "load_verify_locations", "load_default_certs", "create_default_context"}
SYSTEMS_AUTHORITIES = {"leadline.security.tls": "load_default_certs"}  # OpenSSL alone can find them

REAL_PORTS = {"SystemTime", "SystemChance", "OsFiles", "TcpNetwork"}
# What names the real ports, each with its reason. Everything else gets its ports from its caller.
NAMES_REAL_PORTS = {
    "leadline.broker.ports": "the real ports of a broker are put together here",
    "leadline.log.compaction": "it is a process of its own, which gets a request as text",
}

# The event loop is the time port for timers: its clock is `monotonic_s` of the port (`runtime/event_loop.py`).
# What reads it, and for what; anything else gets `Time`.
READS_THE_LOOPS_CLOCK = {
    "leadline.api.fast.follower_fetch": "the deadline of its timer",
    "leadline.broker.connection": "when its timer ends a time of muting",
    "leadline.cluster.broker_client": "the deadlines of its timers",
    "leadline.cluster.broker_login": "when the next login may be tried, and timers repeat logins",
    "leadline.cluster.peer_monitor": "probes are sent by timers, and silence is measured between them",
    "leadline.controller.broker_channel": "probes are sent by timers, and silence is measured between them",
    "leadline.metrics.metrics_server": "the share of a turn that an exposition may take",
    "leadline.replication.hosted_partition": "the deadlines of acknowledgements, which a timer ends",
}

# Modules with functions that others call, each with who does.
CALLED_BY_OTHERS = {
    "leadline.coordination.zookeeper.session": "kazoo calls its handler",
    "leadline.runtime.event_loop": "asyncio calls what the loop overrides",
    "leadline.simulation.virtual_loop": "asyncio calls what the loop overrides",
    "leadline.spark.topics.source": "Spark calls the methods of a data source",
    "leadline.spark.topics.stream_source": "Spark calls the methods of a data source",
    "leadline.testing.broker_network": "tests of users call it: its methods are in docs/TESTING.md",
    "leadline.testing.pytest_plugin": "pytest calls the hooks of a plugin",
}

# These say how somebody came by a thing. A name says what the thing is: `response`, `partition`, `expected`.
VAGUE_NAMES = set("asked asks each found given heard hears it known looks said says seen told wanted who woken".split())

MOST_PARAMETERS = 6  # of a constructor, beside self

# The comparisons that may stand in one chain: those of an interval, and equality.
CHAINS: list[set[type[ast.cmpop]]] = [{ast.Lt, ast.LtE, ast.Eq}, {ast.Gt, ast.GtE, ast.Eq}, {ast.Is}]

# Written so that no pattern matches its own text.
UNWANTED = re.compile(
    r"""
      \b(?:TOD[O]|FIXM[E]|XX[X])\b
    | (?i:\bphase[ ][2]\b)
    | pypi\.org | files\.pythonhosted\.org | repo\.maven\.apache\.org | repo1\.maven\.org
    | proxy\.golang\.org | registry\.npmjs\.org | crates\.io
    | (?<![\w.}])/(?:work|root)/
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Module:
    name: str  # dotted; a package goes by its own name, without __init__
    where: str  # for a person to find it
    is_package: bool
    tree: ast.Module

    @property
    def floor(self) -> str:
        """Which entry of HOUSE it belongs to; empty for `leadline` itself."""
        return floor(self.name)

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""


def floor(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def parse(name: str, source: str, where: str = "", is_package: bool = False) -> Module:
    return Module(name, where or name, is_package, ast.parse(textwrap.dedent(source)))


def modules_under(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        is_package = path.stem == "__init__"
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if is_package else parts)
        yield parse(name, path.read_text(), str(path.relative_to(ROOT)), is_package)


SOURCE = list(modules_under(ROOT / "src"))
TESTS = list(modules_under(ROOT / "tests"))


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a module imports; `from a import b` counts as a.b."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.name.split(".")
            above = node.level - 1 if module.is_package else node.level
            base = parts[: len(parts) - above] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def calls(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module calls by a plain name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def upward_imports(modules: Iterable[Module]) -> list[str]:
    modules = [module for module in modules if not module.name.startswith(SPARK_LOOKS_FOR)]
    height = {name: len(HOUSE) - i for i, name in enumerate(HOUSE)} | {"": 0}
    floors = {module.floor for module in modules}
    complaints = [f"{name} has no place in HOUSE" for name in sorted(floors - height.keys())]
    for module in modules:
        for line, imported in imports(module):
            if imported.split(".")[0] != "leadline":
                continue
            target = floor(imported) if floor(imported) in HOUSE else ""  # `from leadline import __version__`
            if target != module.floor and height[target] >= height.get(module.floor, 0):
                complaints.append(f"{module.where}:{line}: {module.floor or 'leadline'} must not import {imported}")
    return complaints


def impurities(modules: Iterable[Module]) -> list[str]:
    complaints = []
    for module in modules:
        says_so = any(line.startswith("Pure:") for line in module.docstring.splitlines())
        if not says_so and module.floor not in PURE_PACKAGES:
            continue
        impure = [(line, f"import {name}") for line, name in imports(module) if name.split(".")[0] in IMPURE]
        impure += [(line, f"{name}()") for line, name in calls(module) if name in IMPURE_CALLS]
        complaints += [f"{module.where}:{line}: {what} in a pure module" for line, what in impure]
    return complaints


def sockets_opened(modules: Iterable[Module]) -> list[str]:
    """What opens a socket other than through the network port."""
    complaints = []
    for module in modules:
        if module.floor not in ON_PORTS:
            continue
        opened = [(line, f"import {name}") for line, name in imports(module) if name.split(".")[0] == "socket"]
        opened += [
            (node.lineno, f"{node.func.attr}()")
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OPENS_SOCKET
            if not (isinstance(node.func.value, ast.Call) and ast.unparse(node.func.value.func) == "super")
        ]
        complaints += [f"{module.where}:{line}: {what} beside the network port" for line, what in opened]
    return complaints


def files_opened(modules: Iterable[Module]) -> list[str]:
    """What asks the system for a file other than through the files port."""
    complaints = []
    for module in modules:
        if module.floor not in ON_PORTS or module.name in BESIDE_THE_FILES:
            continue
        opened = [(line, f"import {name}") for line, name in imports(module) if name.split(".")[0] in OPENS_FILE]
        opened += [(line, f"import {name}") for line, name in imports(module) if name.startswith(("os.", "mmap."))]
        opened += [(line, f"{name}()") for line, name in calls(module) if name == "open"]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                if text.startswith("os.") and not OF_OS.fullmatch(text):
                    opened.append((node.lineno, text))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "mmap.mmap":
                opened.append((node.lineno, "mmap.mmap()"))
        opened += read_by_ssl(module)
        complaints += [f"{module.where}:{line}: {what} beside the files port" for line, what in opened]
    return complaints


def read_by_ssl(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name of calls that make `ssl` read a file, unless it is a memory file."""
    in_memory = {
        ast.unparse(item.optional_vars)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.With)
        for item in node.items
        if item.optional_vars is not None and ast.unparse(item.context_expr).startswith("memory_file(")
    }
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, paths = node.func.attr, [ast.unparse(argument) for argument in node.args]
        given_bytes = [keyword.arg for keyword in node.keywords] == ["cadata"] and not paths
        if name not in READ_BY_SSL or given_bytes or SYSTEMS_AUTHORITIES.get(module.name) == name:
            continue
        if not paths or not in_memory.issuperset(paths):
            yield node.lineno, f"{name}()"


def real_ports_named(modules: Iterable[Module]) -> list[str]:
    """What chooses the real ports by itself, instead of being handed its ports."""
    return [
        f"{module.where}:{line}: {name} is for the caller to choose"
        for module in modules
        if module.floor in ON_PORTS and module.name not in NAMES_REAL_PORTS
        for line, name in imports(module)
        if name.rpartition(".")[2] in REAL_PORTS
    ]


def loop_clocks_read(modules: Iterable[Module]) -> list[str]:
    """What reads the clock of the event loop without a reason that is written down above."""
    return [
        f"{module.where}:{node.lineno}: {ast.unparse(node)} beside the time port"
        for module in modules
        if module.floor in ON_PORTS and module.floor != "simulation"  # whose clock is that of its loop
        if module.name not in READS_THE_LOOPS_CLOCK
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "time"
        if ast.unparse(node.value).removesuffix("()").endswith("loop")
    ]


def clocks_and_dice(modules: Iterable[Module]) -> list[str]:
    """What reads a clock or draws a number other than through the ports. A seeded generator is no chance."""
    complaints = []
    for module in modules:
        if module.floor not in ON_PORTS:
            continue
        for line, name in imports(module):
            is_seeded = module.floor == "simulation" and name == "random.Random"
            if is_seeded:
                continue
            if name.split(".")[0] in {"random", "secrets", "time"} or name in {"uuid.uuid1", "uuid.uuid4"}:
                complaints.append(f"{module.where}:{line}: import {name} beside the ports")
        complaints += [
            f"{module.where}:{node.lineno}: {text} beside the ports"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute) and CLOCK_OR_DICE.fullmatch(text := ast.unparse(node))
        ]
    return complaints


def names_taken_twice(modules: Iterable[Module]) -> list[str]:
    """Public classes that share their name with one elsewhere: one name, one meaning."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.where)
    return [f"class {name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def long_constructors(modules: Iterable[Module]) -> list[str]:
    """Constructors with more parameters than a reader keeps apart: what belongs together becomes one value."""
    complaints = []
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)][
                    1:
                ]
                if len(names) > MOST_PARAMETERS:
                    complaints.append(f"{module.where}:{node.lineno}: a constructor of {', '.join(names)}")
    return complaints


def bound_names(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module names itself. What it imports under its own name was named elsewhere."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name


def vague_names(modules: Iterable[Module]) -> list[str]:
    return [
        f"{module.where}:{line}: {name} says nothing of what it is"
        for module in modules
        for line, name in bound_names(module)
        if name.strip("_").lower() in VAGUE_NAMES
    ]


def mixed_comparisons(modules: Iterable[Module]) -> list[str]:
    """Chained comparisons that are no interval and no equality of several: a reader has to take them apart."""
    return [
        f"{module.where}:{node.lineno}: {ast.unparse(node)} mixes comparisons"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare) and len(node.ops) > 1
        if not any(kinds.issuperset(map(type, node.ops)) for kinds in CHAINS)
    ]


def is_run_with_dash_m(module: Module) -> bool:
    conditions = [ast.unparse(node.test) for node in module.tree.body if isinstance(node, ast.If)]
    return "__name__ == '__main__'" in conditions


def dead_modules(modules: Iterable[Module], entry_points: Iterable[str]) -> list[str]:
    """What no other module imports. That its own modules import it does not keep a package alive."""
    modules = list(modules)
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for _, imported in imports(module):
            parts = imported.split(".")
            for n in range(1, len(parts) + 1):
                importers[".".join(parts[:n])].add(module.name)
    alive = {"leadline", *entry_points}
    for module in modules:
        others = {name for name in importers[module.name] if not f"{name}.".startswith(f"{module.name}.")}
        by_name = module.name.endswith("__main__") or module.name.startswith(SPARK_LOOKS_FOR)
        if others or by_name or is_run_with_dash_m(module):
            alive.add(module.name)
    return [f"{module.where}: nothing imports it" for module in modules if module.name not in alive]


def entry_points() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    modules = {command.module for command in COMMANDS.values()}  # loaded by name, one at a time
    commands = modules | {module.rpartition(".")[0] for module in modules}
    targets = {target.split(":")[0] for group in groups for target in group.values()}
    return commands | targets | {target.rpartition(".")[0] for target in targets}  # users import these packages


def used_names(modules: Iterable[Module]) -> set[str]:
    """All names that are read somewhere, also those in texts that are no docstrings: templates, `getattr`."""
    used = set[str]()
    for module in modules:
        statements = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(module.tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                    used.add(name)
                case ast.Constant(value=str(text)) if id(node) not in statements:
                    used.update(re.findall(r"\w+", text))
    return used


def alive_in_tests_only(modules: Iterable[Module]) -> list[str]:
    """Functions and methods that no module of the product calls by their name."""
    modules = list(modules)
    used = used_names(modules)
    return [
        f"{module.where}:{node.lineno}: nothing in the product calls {node.name}"
        for module in modules
        if module.name not in CALLED_BY_OTHERS
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name not in used and not re.fullmatch(r"__\w+__|_missing_", node.name)
    ]


def written_twice(modules: Iterable[Module]) -> list[str]:
    """Functions with the same body, docstrings and layout aside, if it is long enough to be worth a name."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if len(body) >= 3 or lines >= 6:
                homes["\n".join(map(ast.dump, body))].append(f"{module.where}:{node.lineno} {node.name}")
    return ["the same body: " + ", ".join(places) for places in homes.values() if len(places) > 1]


def without_docstring(modules: Iterable[Module]) -> list[str]:
    return [f"{module.where}: open it with what it is" for module in modules if not module.docstring]


def unwanted_words(texts: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"{where}:{number}: {match.group()}"
        for where, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := UNWANTED.search(line))
    ]


def repository_texts() -> Iterator[tuple[str, str]]:
    """Name and text of each file that is in git or would be; of all but caches where git is of no help."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        ignored = {".git", *(ROOT / ".gitignore").read_text().replace("/\n", "\n").split()}
        names = [name for name in walk(ROOT) if ignored.isdisjoint(Path(name).parts)]
    for name in names:
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
            continue  # deleted but not yet staged, a submodule, or not a text


def walk(folder: Path) -> Iterator[str]:
    for parent, _, files in os.walk(folder):
        yield from (str((Path(parent) / file).relative_to(folder)) for file in files)


def modules_without_a_test(modules: Iterable[str], tests: set[str], covered_by: Mapping[str, str]) -> list[str]:
    """`modules` are paths below src/leadline, `tests` paths below tests."""
    complaints = []
    for module in modules:
        folder, _, name = module.rpartition("/")
        mirrored = "/".join(filter(None, ("unit", folder, f"test_{name}")))
        if mirrored in tests and module in covered_by:
            complaints.append(f"{module} has {mirrored}: take it off tests/support/covered_modules.py")
        elif mirrored not in tests and module not in covered_by:
            complaints.append(f"{module} has no {mirrored}")
    complaints += [f"{module} does not exist" for module in covered_by if module not in set(modules)]
    complaints += [
        f"{test}, which covers {module}, does not exist" for module, test in covered_by.items() if test not in tests
    ]
    return complaints


def assert_none(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


def test_imports_point_down_the_house() -> None:
    assert_none(upward_imports(SOURCE))


def test_pure_modules_keep_io_clocks_and_logging_out() -> None:
    assert_none(impurities(SOURCE))


def test_sockets_are_opened_through_the_network_port() -> None:
    assert_none(sockets_opened(SOURCE))


def test_files_are_opened_through_the_files_port() -> None:
    assert_none(files_opened(SOURCE))


@pytest.mark.parametrize(
    ("exempt", "check"),
    [
        (BESIDE_THE_FILES, files_opened),
        (SYSTEMS_AUTHORITIES, files_opened),
        (NAMES_REAL_PORTS, real_ports_named),
        (READS_THE_LOOPS_CLOCK, loop_clocks_read),
        (CALLED_BY_OTHERS, alive_in_tests_only),
    ],
)
def test_every_module_that_is_exempt_exists_and_needs_to_be(
    exempt: dict[str, str], check: Callable[[Iterable[Module]], list[str]]
) -> None:
    modules = [replace(module, name=f"{module.name}_") for module in SOURCE if module.name in exempt]
    assert len(modules) == len(exempt)
    assert all(check([module]) for module in modules)


def test_real_ports_are_chosen_by_whoever_builds_a_broker() -> None:
    assert_none(real_ports_named(SOURCE))


def test_the_clock_of_the_loop_is_read_for_timers_alone() -> None:
    assert_none(loop_clocks_read(SOURCE))


def test_clocks_and_chance_are_ports() -> None:
    assert_none(clocks_and_dice(SOURCE))


def test_a_public_class_name_exists_once() -> None:
    assert_none(names_taken_twice(SOURCE))


def test_a_constructor_has_few_parameters() -> None:
    assert_none(long_constructors(SOURCE))


def test_names_say_what_a_thing_is() -> None:
    assert_none(vague_names(SOURCE + TESTS))


def test_a_chain_of_comparisons_is_an_interval_or_an_equality() -> None:
    assert_none(mixed_comparisons(SOURCE))


def test_every_module_is_imported_or_an_entry_point() -> None:
    assert_none(dead_modules(SOURCE, entry_points()))


def test_every_function_is_called_by_the_product() -> None:
    assert_none(alive_in_tests_only(SOURCE))


def test_no_function_body_is_written_twice() -> None:
    assert_none(written_twice(SOURCE + TESTS))


def test_every_module_opens_with_a_docstring() -> None:
    assert_none(without_docstring(SOURCE + TESTS))


def test_every_module_has_a_test_of_its_own_or_is_listed_with_the_one_that_covers_it() -> None:
    source, tests = ROOT / "src/leadline", ROOT / "tests"
    modules = [
        path.relative_to(source).as_posix() for path in sorted(source.rglob("*.py")) if path.name != "__init__.py"
    ]
    names = {path.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    assert_none(modules_without_a_test(modules, names, COVERED_BY))
    assert len(COVERED_BY) <= MOST, "the list only becomes shorter: write the test of the new module"


def test_no_file_mentions_what_does_not_belong_in_it() -> None:
    assert_none(unwanted_words(repository_texts()))


@pytest.mark.parametrize(
    ("name", "source", "allowed"),
    [
        ("leadline.log.log", "from leadline.records import batch", True),
        ("leadline.log.log", "from leadline.log.segment import Segment", True),
        ("leadline.log.log", "from leadline import __version__", True),
        ("leadline.config", "from leadline.model import Offset", True),
        ("leadline.records.batch", "from leadline.log import log", False),
        ("leadline.records.batch", "from leadline import log", False),
        ("leadline.records.batch", "import leadline.log.segment", False),
        ("leadline.records.batch", "from ..log import segment", False),
        ("leadline.records.batch", "def late():\n    from leadline.log.segment import Segment", False),
        ("leadline.model", "from leadline.config import Settings", False),
        ("leadline", "from leadline.model import Offset", False),
        ("leadline.attic.old", "", False),
    ],
)
def test_the_check_of_imports(name: str, source: str, allowed: bool) -> None:
    assert (upward_imports([parse(name, source)]) == []) is allowed


def test_a_package_resolves_its_relative_imports_from_itself() -> None:
    source = "from . import segment\nfrom .index import Index\nfrom .. import model"
    names = [name for _, name in imports(parse("leadline.log", source, is_package=True))]
    assert names == ["leadline.log.segment", "leadline.log.index.Index", "leadline.model"]


@pytest.mark.parametrize(
    ("name", "source", "pure"),
    [
        ("leadline.records.batch", "import struct", True),
        ("leadline.records.batch", "import os.path", False),
        ("leadline.wire.codec", "from time import monotonic", False),
        ("leadline.wire.codec", "def peek():\n    return open('x')", False),
        ("leadline.log.log", "import os\nprint(open('x'))", True),
        ("leadline.log.plan", '"""Plans.\n\nPure: decides only.\n"""\nimport logging', False),
        ("leadline.log.plan", '"""Not Pure: it logs."""\nimport logging', True),
    ],
)
def test_the_check_of_purity(name: str, source: str, pure: bool) -> None:
    assert (impurities([parse(name, source)]) == []) is pure


@pytest.mark.parametrize(
    ("name", "source", "allowed"),
    [
        ("leadline.broker.net", "from leadline.runtime.network import TcpNetwork", True),
        ("leadline.broker.net", "import socket", False),
        ("leadline.api.fetch", "from socket import create_connection", False),
        ("leadline.cluster.peers", "async def f(loop):\n    await loop.create_connection(f, 'h', 1)", False),
        ("leadline.runtime.network", "import socket", True),
        ("leadline.cli.start", "import socket", True),
    ],
)
def test_the_check_of_sockets(name: str, source: str, allowed: bool) -> None:
    assert (sockets_opened([parse(name, source)]) == []) is allowed


@pytest.mark.parametrize(
    ("name", "source", "allowed"),
    [
        ("leadline.log.x", "import os\nfd = files.open(os.path.join('a', 'b'), os.O_RDONLY)", True),
        ("leadline.log.x", "import os\nfd = os.open('a', os.O_RDONLY)", False),
        ("leadline.api.x", "import os\nroom = os.statvfs('a')", False),
        ("leadline.broker.x", "import os\nprobe = os.preadv", False),
        ("leadline.broker.x", "import os\nthere = os.path.exists('a')", False),
        ("leadline.broker.x", "from os import stat", False),
        ("leadline.log.x", "def f():\n    return open('/proc/vmstat')", False),
        ("leadline.cluster.x", "from pathlib import Path", False),
        ("leadline.cluster.x", "import shutil", False),
        ("leadline.log.x", "import mmap\nmapped = mmap.mmap(1, 2)", False),
        ("leadline.log.x", "import mmap\ndef f(mapped: mmap.mmap) -> int:\n    return mmap.PAGESIZE", True),
        ("leadline.runtime.x", "import os\nfd = os.open('a', 0)", True),
        ("leadline.cli.x", "print(open('a').read())", True),
        ("leadline.coordination.database", "import sqlite3", True),
        ("leadline.security.x", "context.load_cert_chain(path)", False),
        ("leadline.security.x", "context.load_verify_locations(cafile='a')", False),
        ("leadline.security.x", "context.load_verify_locations(cadata=b'')", True),
        ("leadline.security.x", "context.load_default_certs()", False),
        ("leadline.security.x", "with memory_file(pem) as path:\n    context.load_cert_chain(path, password='')", True),
        ("leadline.security.x", "with memory_file(pem) as path:\n    context.load_cert_chain(path, key)", False),
    ],
)
def test_the_check_of_files(name: str, source: str, allowed: bool) -> None:
    assert (not files_opened([parse(name, source)])) == allowed


@pytest.mark.parametrize(
    ("name", "source", "allowed"),
    [
        ("leadline.api.x", "import time", False),
        ("leadline.log.x", "from random import randint", False),
        ("leadline.log.x", "from datetime import datetime\nnow = datetime.now()", False),
        ("leadline.log.x", "import datetime\nnow = datetime.datetime.now()", False),
        ("leadline.log.x", "from datetime import datetime\ndate = datetime.fromtimestamp(0)", True),
        ("leadline.cluster.x", "import uuid\nid = uuid.uuid4()", False),
        ("leadline.cluster.x", "import uuid\nid: uuid.UUID", True),
        ("leadline.runtime.x", "import time", True),
        ("leadline.cli.x", "import time", True),
        ("leadline.simulation.x", "from random import Random", True),
        ("leadline.simulation.x", "from random import choice", False),
        ("leadline.log.x", "from random import Random", False),
    ],
)
def test_the_check_of_clocks_and_chance(name: str, source: str, allowed: bool) -> None:
    assert (not clocks_and_dice([parse(name, source)])) == allowed


@pytest.mark.parametrize(
    ("name", "source", "allowed"),
    [
        ("leadline.log.x", "from leadline.runtime.ports import Time", True),
        ("leadline.log.x", "from leadline.runtime.ports import SystemTime", False),
        ("leadline.simulation.x", "from leadline.runtime.network import TcpNetwork", False),
        ("leadline.broker.ports", "from leadline.runtime.ports import OsFiles", True),
        ("leadline.testing.x", "from leadline.runtime.ports import OsFiles", True),
    ],
)
def test_the_check_of_real_ports(name: str, source: str, allowed: bool) -> None:
    assert (not real_ports_named([parse(name, source)])) == allowed


@pytest.mark.parametrize(
    ("name", "source", "allowed"),
    [
        ("leadline.log.x", "now_s = asyncio.get_running_loop().time()", False),
        ("leadline.log.x", "clock = self._loop.time", False),
        ("leadline.log.x", "self._loop.call_later(1, call)", True),
        ("leadline.log.x", "now_ms = batch.time", True),
        ("leadline.cluster.peer_monitor", "now_s = self._loop.time()", True),
        ("leadline.runtime.x", "now_s = loop.time()", True),
    ],
)
def test_the_check_of_the_loops_clock(name: str, source: str, allowed: bool) -> None:
    assert (not loop_clocks_read([parse(name, source)])) == allowed


def test_the_check_of_class_names() -> None:
    modules = [parse("leadline.a", "class Log: ..."), parse("leadline.b", "class Log: ...\nclass _Log: ...")]
    assert names_taken_twice(modules) == ["class Log: leadline.a, leadline.b"]


@pytest.mark.parametrize(
    ("parameters", "allowed"),
    [("self, a, b, c, d, e, f", True), ("self, a, b, c, d, e, f, g", False), ("self, a, b, c, *, d, e, f, g", False)],
)
def test_the_check_of_constructors(parameters: str, allowed: bool) -> None:
    source = f"class A:\n    def __init__({parameters}): ...\n    def m(self, a, b, c, d, e, f, g): ..."
    assert (not long_constructors([parse("leadline.a", source)])) == allowed


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("found = 1", False),
        ("found: int = 1", False),
        ("a, (found, b) = 1, (2, 3)", False),
        ("for each in []: ...", False),
        ("[each for each in []]", False),
        ("if (known := 1): ...", False),
        ("with a as told: ...", False),
        ("try: ...\nexcept E as said: ...", False),
        ("import a as seen", False),
        ("def f(*given): ...", False),
        ("f = lambda wanted: 1", False),
        ("def asked(): ...", False),
        ("class found: ...", False),
        ("self._told = 1", False),
        ("FOUND = 1", False),
        ("match a:\n    case [*found]: ...", False),
        ("match a:\n    case {**found}: ...", False),
        ("match a:\n    case b as found: ...", False),
        ("from hypothesis import given\n@given(a)\ndef f(): ...", True),
        ("for partition in each_topic(a): ...", True),
        ("a = b.found(known='found')", True),
    ],
)
def test_the_check_of_names(source: str, allowed: bool) -> None:
    assert (not vague_names([parse("leadline.a", source)])) == allowed


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("0 <= a < 9", True),
        ("a == b == c", True),
        ("9 > a >= 0", True),
        ("a != b < c", False),
        ("a != b != c is not None", False),
        ("a < b > c", False),
    ],
)
def test_the_check_of_comparisons(source: str, allowed: bool) -> None:
    assert (not mixed_comparisons([parse("leadline.a", source)])) == allowed


def test_the_check_for_dead_modules() -> None:
    tree = [
        parse("leadline", "", is_package=True),
        parse("leadline.cli", "from leadline.log.segment import Segment", is_package=True),
        parse("leadline.__main__", ""),
        parse("leadline.log", "", is_package=True),
        parse("leadline.log.segment", ""),
        parse("leadline.log.worker", "if __name__ == '__main__':\n    main()"),
        parse("leadline.log.forgotten", "import leadline.log.forgotten"),
        parse("leadline.wire", "from leadline.wire import codec", is_package=True),
        parse("leadline.wire.codec", "from leadline.wire import Message"),
    ]
    modules = [complaint.split(":")[0] for complaint in dead_modules(tree, {"leadline.cli"})]
    assert modules == ["leadline.log.forgotten", "leadline.wire"]


def test_the_check_for_functions_that_only_tests_call() -> None:
    modules = [
        parse(
            "leadline.a",
            "def used(): ...\ndef unused(): ...\nclass A:\n    def __len__(self): ...\n    async def m(self): ...",
        ),
        parse("leadline.b", "'unused'\nused()\ngetattr(a, 'n')\ndef n(): ..."),
    ]
    complaints = [complaint.rpartition(" ")[2] for complaint in alive_in_tests_only(modules)]
    assert complaints == ["unused", "m"]


THREE_STATEMENTS = "b = a", "b += 1", "return b"
SIX_LINES = "return [", "1,", "2,", "3,", "4,", "]"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (THREE_STATEMENTS, THREE_STATEMENTS, True),
        (THREE_STATEMENTS, ("'Says more.'", "b = a  # so", "", *THREE_STATEMENTS[1:]), True),
        (THREE_STATEMENTS, ("b = a", "b += 2", "return b"), False),
        (THREE_STATEMENTS[1:], THREE_STATEMENTS[1:], False),
        (SIX_LINES, SIX_LINES, True),
        (SIX_LINES[:1] + SIX_LINES[2:], SIX_LINES[:1] + SIX_LINES[2:], False),
        (["'Only words.'"], ["'Only words.'"], False),
    ],
)
def test_the_check_for_bodies_written_twice(one: list[str], other: list[str], same: bool) -> None:
    function = parse("leadline.one", "\n  ".join(["def f(a):", *one]))
    method = parse("leadline.other", "\n    ".join(["class C:\n  async def g(self, a):", *other]))
    assert bool(written_twice([function, method])) is same


def test_the_check_for_modules_without_a_test() -> None:
    tests = {"unit/test_model.py", "unit/log/test_log.py", "unit/api/test_table.py"}
    covered = {
        "log/log.py": "unit/api/test_table.py",
        "api/a.py": "unit/api/test_b.py",
        "gone.py": "unit/api/test_table.py",
    }
    assert modules_without_a_test(["model.py", "log/log.py", "log/index.py", "api/a.py"], tests, covered) == [
        "log/log.py has unit/log/test_log.py: take it off tests/support/covered_modules.py",
        "log/index.py has no unit/log/test_index.py",
        "gone.py does not exist",
        "unit/api/test_b.py, which covers api/a.py, does not exist",
    ]


def test_the_check_for_docstrings() -> None:
    modules = [parse("a", '"""What it is."""'), parse("b", "# a comment is not enough\nx = 1"), parse("c", "")]
    assert without_docstring(modules) == ["b: open it with what it is", "c: open it with what it is"]


@pytest.mark.parametrize(
    "parts",
    [
        ("# TO", "DO: later"),
        ("FIX", "ME"),
        ("X", "XX"),
        ("Phase", " 2"),
        ("https://pypi", ".org/simple"),
        ("see crates", ".io"),
        ("open('/wo", "rk/main')"),
        ("--out=/ro", "ot/x"),
    ],
)
def test_the_check_for_unwanted_words(parts: tuple[str, str]) -> None:
    assert unwanted_words([("README.md", "fine\n" + "".join(parts))]) != []


def test_words_that_only_look_unwanted_may_stay() -> None:
    assert unwanted_words([("a.txt", "TODOS, XXXL, src/work/here, the root/ folder, phase 20")]) == []


@pytest.mark.parametrize(("ci", "outcomes"), [("true", {"failed": 1, "errors": 2, "skipped": 1}), ("", {"skipped": 4})])
def test_on_ci_a_skip_for_want_of_a_tool_is_a_failure(
    ci: str, outcomes: dict[str, int], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makepyfile(
        test_calls="""
            import pytest
            def test_skips_itself(): pytest.skip("needs luck")
            @pytest.mark.skipif(True, reason="needs a miracle")
            def test_is_marked(): pass
            @pytest.mark.skip(reason="not on Sundays")
            def test_has_another_reason(): pass
        """,
        test_module="import pytest; pytest.skip('needs a moon', allow_module_level=True)",
    )
    pytester.runpytest_subprocess("--continue-on-collection-errors").assert_outcomes(**outcomes)
