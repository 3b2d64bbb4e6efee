"""What a node's log warns of stands on the page for whoever runs it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from muster.storage.errors import LogDamaged

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operations.md"
MEMBERS = "zookeeper/consumer_group.py"
"""It runs where a consumer runs, and speaks there."""
WORTH_A_LOOK = "warning", "error", "critical", "exception"


def warnings() -> Iterator[tuple[str, str]]:
    """Each line worth a look whose text is written where the node's log gets it: the text, and where that is."""
    coordinator = ROOT / "coordinator"
    for path in sorted(coordinator.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path == coordinator / MEMBERS or not any(f"log.{level}(" in source for level in WORTH_A_LOOK):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[ast.Constant(value=str(text)), *_]
                ) if level in WORTH_A_LOOK:
                    yield text, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_each_line_that_warns_is_explained() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    places = defaultdict[str, list[str]](list)
    for text, place in warnings():
        places[text].append(place)
    assert len(places) > 90
    missing = {text: where for text, where in places.items() if f"`{text}`" not in page}
    assert not missing, "docs/operations.md does not say what these lines mean"


def test_the_page_has_the_code_of_a_damaged_batch() -> None:
    """It named the one of a disk that fails."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## Damaged logs\n")
    assert f"A fetch that reaches one fails with {LogDamaged.name}" in section.partition("\n## ")[0]
