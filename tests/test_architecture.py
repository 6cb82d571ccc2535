"""The direction of imports, what the core may not know, the size of modules, and what no tracked file may say."""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "evenflow"
LONGEST_MODULE_LINES = 500

# What each part may import besides itself and the vocabulary that everybody may use.
EVERYBODY = {"errors", "stream", "private", "child_python"}
CORE = {
    "plan",
    "kernels",
    "state",
    "query",
    "processor",
    "operator",
    "exchange",
    "availability",
    "policy",
    "sources",
    "sinks",
    "store",
    "services",
    "statistics",
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "private": set(),
    "child_python": set(),
    "stream": set(),
    "processor": set(),
    # What a mode needs is known without a plan, and a plan says which one a segment has.
    "plan": {"availability.mode", "availability.guarantee"},
    "kernels": set(),
    "state": {"plan", "kernels"},
    "query": {"plan", "processor", "sources", "sinks", "availability.mode", "availability.guarantee"},
    "services": set(),
    # What Spark has written of a stream is read from the location.
    "sources": {"store.objects", "store.opening"},
    "store": {"availability"},
    "sinks": {"store", "sources.description", "sources.database", "sources.extras", "sources.kafka_client", "sources.settings"},
    "operator": {
        "plan",
        "kernels",
        "state",
        "query.aggregates",
        "query.built",
        "query.changed_pairs",
        "query.ranked",
        "query.spanned",
        "query.regrouped",
        "query.duration",
        "query.expression",
        "query.join",
        "query.kinds",
        "query.pattern",
        "query.matching",
        "query.user",
        "processor",
        "services",
        "sinks",
        "store",
        "sources.description",
    },
    # Routing hashes keys with the kernel that the operators find their slots with.
    "exchange": {"plan", "kernels"},
    "availability": {"exchange", "plan", "policy.hedge"},
    "statistics": {"plan.moved_whole", "plan.layout"},
    "policy": {"plan", "statistics"},
    "site": CORE,
    "coordinator": CORE | {"site"},
    # An engine tells scenes and readings to whoever watches it; how they are shown it does not know.
    "world": CORE | {"site", "coordinator", "monitor.scene", "monitor.reading", "monitor.watching", "monitor.history", "monitor.recorded"},
    "monitor": CORE | {"site", "coordinator"},
    "nexmark": {"sources"},
    "swarm": CORE | {"site", "coordinator", "world"},
    "testing": CORE | {"site", "coordinator", "world"},
    "bench": CORE | {"site", "coordinator", "world", "monitor", "nexmark", "testing"},
    "experiments": CORE | {"site", "coordinator", "world", "monitor", "bench"},
    "cli": CORE | {"site", "coordinator", "world", "monitor", "bench", "experiments", "swarm", "testing"},
    "__main__": {"cli"},
}
ABOVE_THE_CORE = {"world", "monitor", "swarm", "testing", "bench", "experiments", "cli"}
AT_THE_EDGE = {"sources", "services", "sinks", "store"}
FORBIDDEN_IN_CORE = {"time", "random", "socket", "asyncio", "threading", "logging", "pyspark", "selectors", "subprocess"}
EDGE_EXCEPTIONS = {"socket", "threading", "selectors"}
SERVICES_EXCEPTIONS = {"asyncio", "threading"}
"""What waits for a service does so in a loop or in threads of its own."""


BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where a node has statements, or what has some."""


@functools.cache
def parsed(source: str) -> ast.Module:
    """Several tests look at all of the source, which stays: to look for garbage in it takes four fifths of the time."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.freeze()
        gc.enable()


def statements(tree: ast.AST, *, typed: bool = True) -> Iterator[ast.stmt]:
    """All of them, inside functions too: a tenth of all nodes. typed: those for type checking only as well."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        skipped = () if typed or not is_type_checking(node) else node.body  # type: ignore[attr-defined]
        for field in BODIES:
            waiting += [each for each in getattr(node, field, ()) if each not in skipped]


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """Name below the package: `plan.layout`; of a package's __init__, the package: `query`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    return module.split(".")[0]


def imports(source: str, module: str, *, package: bool) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything that the text imports, inside functions too, except for type checking only."""
    for node in statements(parsed(source), typed=False):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = absolute(node, module, package=package)
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def absolute(node: ast.ImportFrom, module: str, *, package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    here = ["evenflow", *module.split(".")] if module else ["evenflow"]
    above = here[: len(here) - node.level + (1 if package else 0)]
    return ".".join([*above, *([node.module] if node.module else [])])


def complaints(source: str, module: str, *, package: bool = False) -> list[str]:
    """What is wrong with the imports of `module`, one line each."""
    part = part_of(module)
    found = []
    for line, name in imports(source, module, package=package):
        if name.split(".")[0] == "evenflow":
            target = name.removeprefix("evenflow").lstrip(".")
            if module and target and not allowed(part, target):
                found.append(f"{module}:{line} imports {name}: not in the direction of the layers")
        elif part and part not in ABOVE_THE_CORE and name.split(".")[0] in forbidden(part):
            found.append(f"{module}:{line} imports {name}: the core knows no such thing")
    return found


def allowed(part: str, target: str) -> bool:
    if part_of(target) == part or part_of(target) in EVERYBODY - ({"stream"} if part == "errors" else set()):
        return True
    granted = MAY_IMPORT.get(part, set())
    return any(target == grant or target.startswith(grant + ".") for grant in granted)


def forbidden(part: str) -> set[str]:
    if part == "services":
        return FORBIDDEN_IN_CORE - SERVICES_EXCEPTIONS
    return FORBIDDEN_IN_CORE - EDGE_EXCEPTIONS if part in AT_THE_EDGE else FORBIDDEN_IN_CORE


def test_imports_run_one_way() -> None:
    found = [
        complaint
        for path in modules()
        for complaint in complaints(path.read_text(encoding="utf-8"), name_of(path), package=path.name == "__init__.py")
    ]
    assert found == []


def test_every_part_has_a_place_in_the_layers() -> None:
    parts = {part_of(name_of(path)) for path in modules()} - {"", "__main__"}
    assert parts - MAY_IMPORT.keys() == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("query.network", "from evenflow.operator.filter import Filter"),
        ("operator.filter", "from evenflow.query.planner import cut"),
        ("operator.filter", "def f():\n    from evenflow import site"),
        ("exchange.routing", "from ..world.sim import clock"),
        ("site.hosted", "import evenflow.coordinator.rounds"),
        ("site.hosted", "import time"),
        ("coordinator.rounds", "import threading as t"),
        ("sources.tcp", "import logging"),
        ("stream.rows", "from pyspark.sql import SparkSession"),
        ("world.spark.driver.engine", "import evenflow.cli"),
        ("experiments.papers.reliability", "from evenflow.cli.output import Output"),
        ("bench.cost", "import evenflow.experiments.registry"),
        ("world.spark.driver.run", "from evenflow.monitor.summary import report"),
    ],
)
def test_an_import_against_the_direction_is_found(module: str, source: str) -> None:
    assert len(complaints(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("operator.filter", "from evenflow.query.expression import compile"),
        ("sources.tcp", "import socket"),
        ("site.hosted", "from evenflow.operator.catalogue import build"),
        ("world.spark.driver.engine", "import time, threading, pyspark"),
        ("query.builder", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("operator.order", "import numpy.random"),
    ],
)
def test_an_import_in_the_direction_is_left_alone(module: str, source: str) -> None:
    assert complaints(source, module) == []


# ------------------------------------------------ circles

# Components of modules that import each other, in an order of importing or for the types alone, and that are still to be taken apart.
# The list may only shrink: who takes one apart takes it out of here.
CIRCLES = [
    set(circle.split())
    for circle in (
        "world.sim.driver world.sim.observer world.sim.pushing world.sim.reading world.sim.removal world.sim.site world.sim.world",
    )
]


def imported(source: str, module: str, known: Set[str], *, package: bool = False) -> set[str]:
    """Modules that the text imports in any way: on top, inside functions, for type checking only."""
    found = set()
    for node in statements(parsed(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = absolute(node, module, package=package)
            names = {f"{start}.{alias.name}" for alias in node.names}
            found |= {name if name.removeprefix("evenflow.") in known else start for name in names}
    return {name.removeprefix("evenflow.") for name in found if name.startswith("evenflow.")} & known - {module}


def circles(graph: Mapping[str, Set[str]]) -> list[set[str]]:
    """Sets of at least two modules of which each leads to each of the others, by their first name."""
    order = TopologicalSorter(graph)
    try:
        order.prepare()
    except CycleError:
        return _components(graph)
    return []


def _components(graph: Mapping[str, Set[str]]) -> list[set[str]]:
    reach = {module: _reached(graph, module) for module in graph}
    found = {frozenset(other for other in reach[module] if module in reach[other]) for module in graph}
    return sorted((set(component) for component in found if len(component) > 1), key=min)


def _reached(graph: Mapping[str, Set[str]], module: str) -> set[str]:
    """What a module leads to; itself only over others."""
    seen: set[str] = set()
    waiting = [*graph[module]]
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting += graph[other]
    return seen


def test_no_modules_import_each_other() -> None:
    paths = {name_of(path): path for path in modules()}
    known = paths.keys()
    graph = {
        name: imported(path.read_text(encoding="utf-8"), name, known, package=path.name == "__init__.py") for name, path in paths.items()
    }
    found = circles(graph)
    assert [circle for circle in found if circle not in CIRCLES] == [], "break the circle: a Protocol, or what both need in a module below"
    assert [circle for circle in CIRCLES if circle not in found] == [], "this circle is gone: take it out of CIRCLES"


def test_a_circle_is_found_however_it_is_imported() -> None:
    known = {"a", "b", "c.d"}
    texts = {
        "a": "from evenflow import b",
        "b": "def f():\n    from evenflow.c.d import g",
        "c.d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import evenflow.a",
    }
    graph = {name: imported(text, name, known) for name, text in texts.items()}
    assert circles(graph) == [known]
    assert circles({**graph, "c.d": set()}) == []


NAMES_MODULES = {
    "": "the names of users are found when they are first named",
    "kernels": "all kernels are loaded in turn",
    "operator.catalogue": "a kind of box, which lies below operators, names its operator",
    "query.over": "a list of columns names what draws functions OVER rows, which lies above streams",
    "query.serial": "a file names the user's module, once that is allowed",
    "sources.extras": "a source names the client library that may not be installed",
    "swarm.mutations": "a planted bug names the function that it changes",
    "swarm.within": "a rule names the function that it is",
    "world.spark.cluster.ship": "a task names what it calls, before there is an Evenflow at the executor",
    "world.spark.executor.site_task": "a task names what it needs from the start",
}
"""Modules that import others by a name that is data, and why. Everybody else imports later by a statement in the function."""
LATER = {
    "world.spark.cluster.ship": "the function travels without its module",
    "world.spark.cluster.site_job": "the body of a task travels without its module",
    "sources.database": "Python may have been built without sqlite3",
}
"""Who imports Python's own modules inside a function, and why: they are there, and mostly loaded already."""


INSIDE = re.compile(r"^[ \t]+(import|from)\s|import_module|__import__|__getattr__", re.MULTILINE)
"""Whatever imports later has a line like these, and who has none need not be parsed."""


def imports_by_name(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            yield node


def called(node: ast.Call) -> str:
    """The last part of the name of what is called; nothing if it has none."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def own_imports_later(tree: ast.AST) -> Iterator[str]:
    """Python's own modules that functions import."""
    for function in statements(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in statements(function):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                yield from (name for name in names if name.split(".")[0] in sys.stdlib_module_names)


def test_what_is_imported_later_is_imported_in_one_way() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in modules()}
    trees = {name: parsed(text) for name, text in texts.items() if INSIDE.search(text)}
    by_name = {name: list(imports_by_name(tree)) for name, tree in trees.items()}
    assert {name for name, calls in by_name.items() if calls} == set(NAMES_MODULES), "an import statement in the function does it"
    fixed = [name for name, calls in by_name.items() for call in calls if isinstance(call.args[0], ast.Constant)]
    assert fixed == [], "a name that is known is an import statement, which a type checker reads"
    lazy = {name for name, tree in trees.items() for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"}
    assert lazy == {""}, "only users' names are found when they are named"
    assert {name for name, tree in trees.items() if any(own_imports_later(tree))} == set(LATER)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f():\n    import os.path", ["os.path"]),
        ("def f():\n    from json import dumps", ["json"]),
        ("def f():\n    import pyspark", []),
    ],
)
def test_an_import_of_pythons_own_in_a_function_is_found(source: str, found: list[str]) -> None:
    assert list(own_imports_later(parsed(source))) == found


ARRAY_TYPE = re.compile(r"^(\w+)(?:: \w+)? = npt\.NDArray\[(.*)\]$", re.MULTILINE)


def test_array_types_are_named_once() -> None:
    """Those that say no more than what is in an array are in `stream.arrays`; a name that says more is its module's own."""
    named = [(name, name_of(path)) for path in modules() for name, _ in ARRAY_TYPE.findall(path.read_text(encoding="utf-8"))]
    twice = {name for name, _ in named if sum(other == name for other, _ in named) > 1}
    assert [(name, module) for name, module in named if name in twice] == []


# ------------------------------------------------ rooms

ROOMS = [path for path in modules() if path.name == "__init__.py" and path.parent != PACKAGE]
SAYS_WHAT_IT_DOES_NOT_KNOW = re.compile(r"\b([Kk]nows? (?:no|nothing|neither)\b|Nothing here knows|\band nothing else\b)")


def test_every_room_says_what_lives_there_and_what_it_does_not_know() -> None:
    assert len(ROOMS) > 30
    for path in ROOMS:
        text = ast.get_docstring(parsed(path.read_text(encoding="utf-8"))) or ""
        assert len(text.split()) >= 12, f"{name_of(path)}: say what lives here"
        assert SAYS_WHAT_IT_DOES_NOT_KNOW.search(" ".join(text.split())), f"{name_of(path)}: say what it does not know: It knows no ..."


NAMED = re.compile(r"`([a-z][a-z_0-9]*(?:\.[a-z][a-z_0-9]*)*)`")


def not_there(path: Path, text: str) -> list[str]:
    """Names in backquotes of a room's docstring that are no module or room: of this room, or below the package."""

    def is_there(name: str) -> bool:
        places = [folder.joinpath(*name.removeprefix("evenflow.").split(".")) for folder in (path.parent, PACKAGE)]
        return any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)

    return [name for name in NAMED.findall(text) if not is_there(name)]


def test_what_a_room_names_is_there() -> None:
    """A module that has another name now, or lives elsewhere, is looked for in vain."""
    found = {name_of(path): not_there(path, ast.get_docstring(parsed(path.read_text(encoding="utf-8"))) or "") for path in ROOMS}
    assert {room: names for room, names in found.items() if names} == {}


def test_a_name_that_is_nowhere_is_found() -> None:
    room = PACKAGE / "plan" / "__init__.py"
    assert not_there(room, "`layout`, `query.sql`, `evenflow.errors`, `Stream.to` and `make setup`, but `gone` and `plan.gone`") == [
        "gone",
        "plan.gone",
    ]


# Where something is unpickled, and what: reading a pickle can run anything, so nothing that a fixed form can carry is one.
MAY_UNPICKLE = {
    "plan.plan": "functions in a version of a plan, at a site, from its driver",
    "world.spark.executor.site": "a run's program, at a site, from its driver",
    "world.spark.cluster.ship": "arguments of a task, which Spark has brought with its function",
    "world.spark.bridge.functions": "functions of PySpark that the user's own session holds",
    "query.user.states": "states of the user's aggregators that are of no Arrow type, in which nothing is named but what is kept",
    "query.serial": "what a dataflow's file holds, if the user says so",
}


def unpickles(source: str) -> bool:
    """Whether the text reads pickles: `pickle.loads`, `pickle.load`, `Unpickler`, or the same of cloudpickle, however they are imported."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and node.attr in {"loads", "load", "Unpickler"} and "pickle" in ast.unparse(node.value):
            return True
        if isinstance(node, ast.ImportFrom) and node.module and "pickle" in node.module:
            return True
    return False


def test_pickles_are_read_in_few_places() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in modules()}
    assert {name for name, text in texts.items() if "pickle" in text and unpickles(text)} == set(MAY_UNPICKLE)


@pytest.mark.parametrize(
    "source", ["import pickle\npickle.loads(b'')", "from pickle import loads", "import pickle as p\np.pickle.Unpickler"]
)
def test_who_reads_pickles_is_found(source: str) -> None:
    assert unpickles(source)


# Who names the directory for temporary files: what others can foresee there they can make first.
MAY_NAME_THE_TEMPORARY = {"private", "world.owned", "world.spark.executor.spill_store"}


def test_private_directories_are_made_in_one_place() -> None:
    """Others take `evenflow.private`, or what the system makes under a name that nobody can foresee."""
    assert {name_of(path) for path in modules() if "gettempdir" in path.read_text(encoding="utf-8")} <= MAY_NAME_THE_TEMPORARY


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE_LINES} == {}


def test_no_module_is_named_after_nothing() -> None:
    assert [name_of(path) for path in modules() if path.stem in {"utils", "util", "common", "base", "helpers", "misc"}] == []


def tracked() -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        pytest.skip("not a git working tree, so there are no tracked files to read")
    return [path for name in answer.stdout.split("\0") if name and (path := ROOT / name).is_file()]


# Spelled in halves, so that this file does not find itself.
MACHINE_PATHS = re.compile("|".join(["/wo" + r"rk/(?:main|shared)", "/ho" + r"me/[a-z]", "/ro" + r"ot/", "/tm" + r"p/w\b"]))


def test_no_tracked_file_names_a_path_of_somebodys_machine() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in MACHINE_PATHS.finditer(text)]
    assert found == []
