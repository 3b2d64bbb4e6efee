"""What the pages show is what happens."""

import doctest
from pathlib import Path

import pytest

from muster.assignors import registry

PAGES = Path(__file__).parents[3] / "docs" / "assignors"


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_every_example_is_true(page):
    result = doctest.testfile(str(PAGES / page), module_relative=False, encoding="utf-8")
    assert result.failed == 0


def test_every_built_in_has_a_page_with_an_example():
    for word in registry.BUILT_IN:
        text = (PAGES / f"{word}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {word}\n")
        assert f'resolve("{word}")' in text
        assert "**Promise.**" in text
        assert "**Cost.**" in text
