"""Rules are cited by ids that a page in docs/design defines, once; nothing cites a rule that cannot be looked up."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DESIGN = ROOT / "docs" / "design"
PRODUCT = [ROOT / name for name in ("assignors", "storage", "coordinator", "client", "cli", "spark", "workshop")]
SEARCHED = [*PRODUCT, ROOT / "muster", ROOT / "pyspark_muster", ROOT / "docs", ROOT / "tests", ROOT / "proto"]

ID = r"[A-Z]{2,4}-[A-Z]\d{1,2}[a-z]?"
CITED = re.compile(rf"(?<![\w-]){ID}(?![\w-])")
DEFINED = re.compile(rf"^(?:\| )?\*\*({ID})\*\*", re.MULTILINE)
"""A definition begins its line, or a row of a table."""

BARE = re.compile(r"(?<![\w.#/`'\"=-])[A-Z]{1,3}\d{1,2}[a-z]?(?![\w`'\"(=-]|\.\d)")
"""How rules were cited before they had ids: `F9`, `G5a`."""
SECTION = re.compile(r"\b[Ss]ections? \d|\bthe wing\b|(?<=\w )[(]\d{1,2}\.\d{1,2}(?:, \d{1,2}\.\d{1,2})*[)]")
"""And their sections: `section 6`, `(5.2)`."""
LOOK_ALIKES = frozenset({"RE2", "UTF8", "IA5", "T61", "XXH32"})
"""A library's syntax, character sets, a checksum."""


def definitions(text: str) -> list[str]:
    return DEFINED.findall(text)


def citations(text: str) -> set[str]:
    return set(CITED.findall(text))


def undefinable(prose: str) -> list[str]:
    """What looks like a rule that no page defines."""
    return [*(word for word in BARE.findall(prose) if word not in LOOK_ALIKES), *SECTION.findall(prose)]


def prose_of(source: str) -> str:
    """A module's comments and docstrings, those of attributes included; other strings may be data."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    docstrings = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join([*comments, *docstrings])


@cache
def pages() -> dict[str, str]:
    return {page.name: page.read_text(encoding="utf-8") for page in sorted(DESIGN.glob("*.md"))}


def files(folders: list[Path], *suffixes: str) -> Iterator[Path]:
    for folder in folders:
        for suffix in suffixes:
            yield from (path for path in folder.rglob(f"*{suffix}") if path != Path(__file__))


def searched() -> Iterator[Path]:
    # Links below muster/ lead to folders that are searched by their own names.
    yield from ROOT.glob("*.md")
    yield from ROOT.glob("*.toml")
    yield from files([each for each in SEARCHED if each.is_dir()], ".py", ".md", ".toml", ".proto")


def test_every_rule_that_is_cited_is_defined() -> None:
    known = {rule for text in pages().values() for rule in definitions(text)}
    unknown: dict[str, set[str]] = {}
    for path in searched():
        for rule in citations(path.read_text(encoding="utf-8")) - known:
            unknown.setdefault(rule, set()).add(str(path.relative_to(ROOT)))
    assert not unknown, f"no page in docs/design defines these: {unknown}"


def test_no_rule_is_defined_twice() -> None:
    where: dict[str, list[str]] = {}
    for name, text in pages().items():
        for rule in definitions(text):
            where.setdefault(rule, []).append(name)
    twice = {rule: names for rule, names in where.items() if len(names) > 1}
    assert not twice, f"defined more than once: {twice}"


def test_each_page_has_prefixes_of_its_own_and_is_linked_from_the_map() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    owner: dict[str, str] = {}
    for name, text in pages().items():
        assert f"(docs/design/{name})" in architecture, f"ARCHITECTURE.md does not link docs/design/{name}"
        assert f" design/{name}\n" in navigation, f"mkdocs.yml has no docs/design/{name} in its navigation"
        assert definitions(text), f"docs/design/{name} defines no rule"
        for prefix in {rule.split("-")[0] for rule in definitions(text)}:
            assert owner.setdefault(prefix, name) == name, f"{prefix}- is the prefix of {owner[prefix]} and of {name}"


def test_no_code_cites_a_rule_that_cannot_be_looked_up() -> None:
    found: dict[str, list[str]] = {}
    for path in files([*(each for each in PRODUCT if each.is_dir()), ROOT / "tests"], ".py"):
        if path.name.endswith("_pb2.py"):
            continue
        source = path.read_text(encoding="utf-8")
        if undefinable(source) and (bare := undefinable(prose_of(source))):
            found[str(path.relative_to(ROOT))] = bare
    assert not found, f"give each the id that a page in docs/design defines: {found}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1  # F9", ["F9"]),
        ('def f():\n    """G5a: the lease."""', ["G5a"]),
        ("x = 1\n'''K1 and K2 (5.1, 5.2).'''", ["K1", "K2", "(5.1, 5.2)"]),
        ('"""As section 6 has it."""', ["section 6"]),
        ('"""CL-F9, KB-S3; RE2; KIP-848; `T1`; RFC 7628, 3.2.2; sections of a file."""', []),
        ('x = "F9"  # a topic', []),
        ('""">>> mean(0.5, 1.5)"""', []),
    ],
)
def test_the_search_tells_citations_from_look_alikes(source: str, found: list[str]) -> None:
    assert undefinable(prose_of(source)) == found


def test_the_parser_finds_definitions_and_citations() -> None:
    page = "**GC-R1** · The core.\nsee **GC-R2** and CL-A3b.\n| **KB-P1** | a goal |\n"
    assert definitions(page) == ["GC-R1", "KB-P1"]
    assert citations(page) == {"GC-R1", "GC-R2", "CL-A3b", "KB-P1"}
    assert not citations("SHA-512, KIP-848, X-CL-F9, CL-F9-x")
