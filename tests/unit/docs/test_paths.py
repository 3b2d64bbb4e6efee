"""What pages name exists: paths, functions of a path, and commands; and pages are found by what they are about."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from muster.cli.main import cli

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "design").glob("*.md"))]

WORD = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
NAMED = re.compile(r"`([\w/]+\.py)`: `(\w+)`")
"""A file and what it defines: `storage/logs/log.py`: `Log`."""


def without_examples(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def looks_like_a_path(word: str) -> bool:
    """A Python file, a folder, or anything below a folder of the root; `/controller` is a znode."""
    if not PATH.fullmatch(word):
        return False
    top = word.split("/")[0]
    return word.endswith((".py", "/")) or ("/" in word and top != "build" and (ROOT / top).is_dir())


def missing_paths(text: str) -> Iterator[str]:
    """Paths are relative to the root, or, in a row of a table, to a folder that its first cell names."""
    for line in without_examples(text).splitlines():
        words = WORD.findall(line)
        first = line.split("|")[1] if line.startswith("|") else ""
        bases = [ROOT, *(ROOT / word for word in WORD.findall(first) if word.endswith("/"))]
        for word in filter(looks_like_a_path, words):
            if not any((base / word).exists() for base in bases):
                yield word


def missing_names(text: str) -> Iterator[str]:
    for path, name in NAMED.findall(text):
        if not re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE):
            yield f"{path}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert list(missing_paths(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_function_that_a_page_names_is_where_it_says(page: Path) -> None:
    assert list(missing_names(page.read_text(encoding="utf-8"))) == []


def test_the_map_names_many_places() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len([word for word in WORD.findall(text) if looks_like_a_path(word)]) > 150
    assert len(NAMED.findall(text)) > 20


def test_the_map_shows_the_floors_of_the_import_contract() -> None:
    map_ = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition('type = "layers"')[2].partition("\n]")[0]
    floors = [line.replace("muster.", "") for line in re.findall(r'^    "(.*)",$', contract, re.MULTILINE)]
    assert re.findall(r"^ ?\d{1,2}  (\S.*)$", map_, re.MULTILINE) == floors


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`storage/logs/log.py` and `storage/`", []),
        ("`storage/logs/gone.py`, `gone.py`, `gone/`", ["storage/logs/gone.py", "gone.py", "gone/"]),
        ("| `storage/logs/` | one log | `log.py`, `gone.py` |", ["gone.py"]),
        ("`/controller`, `engine=kafka://HOST:PORT`, `read/write`, `muster health`", []),
    ],
)
def test_a_path_is_told_from_look_alikes(text: str, missing: list[str]) -> None:
    assert list(missing_paths(text)) == missing


def test_a_function_that_is_gone_is_found() -> None:
    assert list(missing_names("`storage/logs/log.py`: `Log`, `storage/logs/log.py`: `Gone`")) == [
        "storage/logs/log.py: Gone"
    ]


COMMAND = re.compile(r"(?:`|^(?:\$ ?)?)muster ([a-z][\w-]*(?: [a-z][\w-]*)*)", re.MULTILINE)


def missing_commands(text: str) -> Iterator[str]:
    for words in dict.fromkeys(COMMAND.findall(text)):
        command: click.Command | None = cli
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), word)
            if command is None:
                yield f"muster {words}"


def test_every_command_that_a_page_names_exists() -> None:
    """The page on security led to `muster hold`, which there is not."""
    assert list(missing_commands("Ask `muster hold`, or:\n\nmuster groups why g\n")) == [
        "muster hold",
        "muster groups why g",
    ]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert {page.name: missing for page in pages if (missing := list(missing_commands(page.read_text("utf-8"))))} == {}


@pytest.mark.parametrize(
    ("page", "word"),
    [
        ("observe.md", "monitoring"),
        ("operations.md", "operations"),
        ("security.md", "security"),
        ("deployment.md", "kubernetes"),
        ("write-a-client.md", "client"),
    ],
)
def test_a_page_is_found_by_the_word_for_its_task(page: str, word: str) -> None:
    """A search for "monitoring" found nothing."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert word in text.splitlines()[0].lower()
    assert f"({page})" in (ROOT / "docs" / "index.md").read_text("utf-8")
