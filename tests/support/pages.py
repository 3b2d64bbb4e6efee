"""Examples in Python that pages show."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def examples(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def needs_node(example: str) -> bool:
    """Whether it talks to a node: pages of the reference call its address `node`."""
    return re.search(r"\bnode\b", example) is not None


def reference() -> list[Path]:
    """Pages whose examples are whole programs, or go on where the one before ended."""
    return [page for page in PAGES if (ROOT / "docs/reference") in page.parents and examples(page)]
