"""The structure of the product: imports without cycles, one class for each name, files that hold a whole idea."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from muster.coordinator.core.kinds.registry import KINDS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("assignors", "cli", "client", "coordinator", "spark", "storage", "workshop")

GENERATED = "_pb2.py"

MIN_CODE_LINES = 60
"""A smaller module is usually half of an idea."""

SMALL_ON_PURPOSE = {
    "assignors/builtin/lag.py": "one assignor; operators name its module in settings",
    "cli/__main__.py": "python -m muster.cli",
    "coordinator/core/control/settings_table.py": "a table",
    "coordinator/observability/views/settings.py": "keeps pydantic out of the other views",
    "coordinator/runtime/limits.py": "a mapping from settings to limits",
    "coordinator/values.py": "the decorator of values of core and transactions, which are strangers",
    "coordinator/zookeeper/errors.py": "a list of exceptions",
    "spark/assignor_deadline.py": "the one part of it that needs signals",
    "spark/guard.py": "python -m muster.spark.guard",
    "spark/source.py": "the class that Spark finds by name",
    "storage/types.py": "values",
    "workshop/bench/coordinator_suite.py": "a table of cases",
    "workshop/bench/echo.py": "python -m: the peer of a benchmark",
    "workshop/bench/mock_cluster.py": "python -m: the peer of a benchmark",
    "workshop/bench/spark_ready_rows.py": "Spark's workers import it alone",
    "workshop/lab/real_worker.py": "python -m: a member of its own process",
}

SAME_NAME_IN_LAYERS = {"TopicPartition"}
"""Defined once in each layer that must not import another."""


def sources(top: str) -> list[Path]:
    """Files written by hand, sorted."""
    return sorted(
        path.relative_to(ROOT)
        for path in (ROOT / top).rglob("*.py")
        if not path.name.endswith(GENERATED) and "__pycache__" not in path.parts
    )


class SourceFacts(NamedTuple):
    """What the tests ask of a file, so that each file is parsed once and no tree is kept."""

    imports: list[tuple[str, str]]
    classes: list[str]
    code_lines: int


@cache
def facts_of(path: Path) -> SourceFacts:
    text = (ROOT / path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return SourceFacts(list(imported_names(tree)), classes, count_code_lines(text, tree))


def module_of(path: Path) -> str:
    """The module of a file below the root, whatever package it is imported as.

    >>> module_of(Path("storage/logs/log.py")), module_of(Path("storage/logs/__init__.py"))
    ('storage.logs.log', 'storage.logs')
    """
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Every import as (module, name), also in functions. Imports for types alone (TYPE_CHECKING) do not count."""
    types_only = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for each in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in types_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)


def import_graph(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Which module imports which, among those of the given files."""
    modules = {module_of(path): path for path in paths}
    edges: dict[str, set[str]] = {}
    for module, path in modules.items():
        imports = set()
        for base, name in facts_of(path).imports:
            base = base.removeprefix("muster.")
            imports.add(f"{base}.{name}" if f"{base}.{name}" in modules else base)
        edges[module] = imports & modules.keys() - {module}
    return edges


def package_graph(edges: Mapping[str, set[str]], packages: set[str]) -> dict[str, set[str]]:
    """The same among folders. A folder and a folder below it are two packages.

    >>> package_graph({"a.b": {"a.c.d"}, "a.c.d": set()}, {"a", "a.c"})
    {'a': {'a.c'}, 'a.c': set()}
    """

    def package_of(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    found: dict[str, set[str]] = defaultdict(set)
    for module, imports in edges.items():
        found[package_of(module)] |= {package_of(each) for each in imports} - {package_of(module)}
    return dict(found)


def find_cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other, in order; empty where there is no cycle."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def all_sources() -> list[Path]:
    return [path for room in ROOMS for path in sources(room)]


def count_code_lines(text: str, tree: ast.Module) -> int:
    """Lines that are neither blank, a comment nor a docstring.

    >>> text = '"A docstring."\\n\\n# a comment\\na = 1\\n'
    >>> count_code_lines(text, ast.parse(text))
    1
    """
    documented: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if number not in documented and re.match(r"\s*[^\s#]", line))


def test_modules_import_each_other_without_cycles() -> None:
    assert find_cycle(import_graph(all_sources())) == []


def test_a_cycle_is_found() -> None:
    assert set(find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def test_packages_import_each_other_without_cycles() -> None:
    paths = all_sources()
    packages = {module_of(path) for path in paths if path.name == "__init__.py"}
    assert find_cycle(package_graph(import_graph(paths), packages)) == []


def test_every_class_name_occurs_once() -> None:
    names = defaultdict(list)
    for path in all_sources():
        for name in facts_of(path).classes:
            if name not in SAME_NAME_IN_LAYERS:
                names[name].append(str(path))
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


def test_every_module_holds_a_whole_idea() -> None:
    small = {
        str(path) for path in all_sources() if path.name != "__init__.py" and facts_of(path).code_lines < MIN_CODE_LINES
    }
    assert small == SMALL_ON_PURPOSE.keys()


def test_no_module_outside_the_core_asks_which_kind_a_group_is() -> None:
    """A kind answers for its groups. Code that knows four kinds would overlook a fifth one."""
    kinds = {kind.__name__ for kind in KINDS if kind is not NoneType}
    assert len(kinds) == 4
    knows: dict[str, set[str]] = defaultdict(set)
    for path in (path for path in all_sources() if not path.is_relative_to("coordinator/core")):
        for base, name in facts_of(path).imports:
            if base.startswith("muster.coordinator.core.") and name in kinds:
                knows[str(path)].add(name)
    assert knows == {}


def test_no_two_files_of_tests_have_one_name() -> None:
    """Test files are modules without a package: of two with one name, pytest would run only one."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
