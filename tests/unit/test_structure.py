"""The shape of the house: no circle among modules, nothing too long to be taken in, folders instead of prefixes."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import NoneType

import pytest

from muster.coordinator.core.kinds.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("assignors", "storage", "coordinator", "client", "cli", "spark", "workshop")

GENERATED = ("_pb2.py", "_pb2_grpc.py")

TYPES_ONLY = {
    ("storage.logs.fencing", "storage.logs.log"),
    ("storage.logs.fetching", "storage.logs.log"),
    ("storage.logs.nearness", "storage.logs.log"),
    ("storage.logs.reshape", "storage.logs.log"),
    ("storage.logs.short_way", "storage.logs.log"),
    ("storage.logs.open_files", "storage.logs.segment"),
}
"""What may point back, for its types alone: parts of a log, and the limit on open segments, that work on their whole.
Nothing may be added; what goes is taken off the list."""


def sources(top: str) -> list[Path]:
    """Files of ours, sorted; what protoc writes is not."""
    return sorted(
        path.relative_to(ROOT)
        for path in (ROOT / top).rglob("*.py")
        if not path.name.endswith(GENERATED) and "__pycache__" not in path.parts
    )


def module_of(path: Path) -> str:
    """The module of a file below the root, whatever package it is imported as.

    >>> module_of(Path("storage/logs/log.py")), module_of(Path("storage/logs/__init__.py"))
    ('storage.logs.log', 'storage.logs')
    """
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Every import as (module, name), wherever it stands: in a function or under TYPE_CHECKING as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)


def graph(paths: list[Path]) -> dict[str, set[str]]:
    """Which module needs which, among those of the given files."""
    modules = {module_of(path): path for path in paths}
    edges: dict[str, set[str]] = {}
    for module, path in modules.items():
        needed = set()
        for base, name in imported(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            base = base.removeprefix("muster.")
            needed.add(f"{base}.{name}" if f"{base}.{name}" in modules else base)
        edges[module] = needed & modules.keys() - {module}
    return edges


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Modules that need each other, in order; empty when there is no such circle."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_module_needs_one_that_needs_it() -> None:
    edges = graph([path for room in ROOMS for path in sources(room)])
    for module, needed in TYPES_ONLY:
        edges[module].remove(needed)
    assert circle(edges) == []


@pytest.mark.parametrize(("module", "needed"), sorted(TYPES_ONLY))
def test_what_points_back_does_so_for_its_types_alone(module: str, needed: str) -> None:
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    [guarded] = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    everywhere = [base for base, _ in imported(tree) if base == f"muster.{needed}"]
    assert everywhere == [base for base, _ in imported(guarded) if base == f"muster.{needed}"] != []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def test_nobody_outside_the_core_asks_which_kind_a_group_is() -> None:
    """What it answers is its kind's; a fifth one would go unnoticed wherever somebody knows four."""
    kinds = {kind.__name__ for kind in KINDS if kind is not NoneType}
    assert len(kinds) == 4
    knows: dict[str, set[str]] = defaultdict(set)
    for path in (path for room in ROOMS for path in sources(room) if not path.is_relative_to("coordinator/core")):
        for base, name in imported(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if base.startswith("muster.coordinator.core.") and name in kinds:
                knows[str(path)].add(name)
    assert knows == {}


def test_no_two_files_of_tests_have_one_name() -> None:
    """They are modules without a package: of two that one process collects, the second would not be run."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
