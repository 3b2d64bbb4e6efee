"""The shape of the house: no circle among modules, nothing too long to be taken in, folders instead of prefixes."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import NoneType

import pytest

from muster.coordinator.core.groups.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("assignors", "storage", "coordinator")

MOST_FILES = 18
"""About sixteen can be taken in at a glance."""

MOST_LINES = 520

GENERATED = ("_pb2.py", "_pb2_grpc.py")

TYPES_ONLY = {
    ("storage.logs.fencing", "storage.logs.log"),
    ("storage.logs.fetching", "storage.logs.log"),
    ("storage.logs.nearness", "storage.logs.log"),
    ("storage.logs.reshape", "storage.logs.log"),
    ("storage.logs.short_way", "storage.logs.log"),
    ("storage.segments.open_files", "storage.segments.segment"),
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


def prefixes(names: list[str]) -> dict[str, list[str]]:
    """The words before the first underscore that three or more files share.

    >>> prefixes(["codec.py", "codec_own.py", "codec_consumer.py", "loader.py"])
    {'codec': ['codec.py', 'codec_own.py', 'codec_consumer.py']}
    """
    shared: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if word := name.removesuffix(".py").split("_")[0]:
            shared[word].append(name)
    return {word: files for word, files in shared.items() if len(files) >= 3}


def folders(top: str) -> dict[Path, list[str]]:
    found: dict[Path, list[str]] = defaultdict(list)
    for path in sources(top):
        found[path.parent].append(path.name)
    return found


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


@pytest.mark.parametrize("top", ROOMS)
def test_every_folder_can_be_taken_in_at_a_glance(top: str) -> None:
    assert {str(folder): len(names) for folder, names in folders(top).items() if len(names) > MOST_FILES} == {}


@pytest.mark.parametrize("top", ROOMS)
def test_every_file_can_be_taken_in(top: str) -> None:
    lengths = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in sources(top)}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("top", ROOMS)
def test_no_prefix_does_the_work_of_a_folder(top: str) -> None:
    found = {
        f"{folder}/{word}_": files for folder, names in folders(top).items() for word, files in prefixes(names).items()
    }
    assert found == {}


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
