"""What a node's log warns of stands on the page for whoever runs it, and so does what its conditions are called."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = " ".join((ROOT / "docs" / "operations.md").read_text().split())
ROOMS = "server", "replication", "kafka", "web", "zookeeper", "runtime", "observability"
MEMBERS = "consumer_group.py"
"""Of the room that knows ZooKeeper: it runs where a consumer runs, and speaks there."""
WORTH_A_LOOK = "warning", "error", "critical", "exception"


def warnings() -> Iterator[tuple[str, str]]:
    """Where a node's log gets a line worth a look, and its text, if that is written there."""
    for room in ROOMS:
        for path in sorted((ROOT / "coordinator" / room).rglob("*.py")):
            if room == "zookeeper" and path.name == MEMBERS:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="log"), attr=level),
                        args=[ast.Constant(value=str(text)), *_],
                    ) if level in WORTH_A_LOOK:
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", text


LINES = dict(warnings())


@pytest.mark.parametrize("text", sorted(set(LINES.values())))
def test_each_line_that_warns_is_explained(text: str) -> None:
    places = [place for place, said in LINES.items() if said == text]
    assert f"`{text}`" in PAGE, f"docs/operations.md does not say what the line means that {places} write"


def test_there_are_lines_to_look_for() -> None:
    assert len(LINES) > 30
