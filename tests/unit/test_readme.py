"""What README.md and CONTRIBUTING.md show exists and works."""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from muster.assignors.api import Member, Snapshot
from muster.assignors.compliance import examine
from muster.assignors.run import run
from muster.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Every `muster ...` in a shell block or between backticks, with continued lines joined and pipes cut."""
    found = []
    for page in PAGES:
        shell = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
        lines = [part.strip() for line in shell.splitlines() for part in line.split("|")]
        inline = re.findall(r"`(muster [^`]+)`", page.read_text())
        found += [shlex.split(line, comments=True) for line in (*lines, *inline) if line.startswith("muster ")]
    return found


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 9


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_shown_is_one_that_muster_understands(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A file that an example reads need not be here.
    monkeypatch.setattr(click.File, "convert", lambda self, value, param, ctx: value)
    command: click.Command = cli
    context, name, rest = click.Context(cli, info_name="muster"), "muster", words[1:]
    while isinstance(command, click.Group) and rest != ["--help"]:
        found_name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        context = click.Context(command, info_name=name, parent=context)
        command, name = found, found_name or ""
    if not isinstance(command, click.Group):
        command.make_context(name, list(rest), parent=context)
    assert command.callback is not None


def test_every_make_target_shown_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        target
        for page in PAGES
        for block in [*blocks(page, "sh"), *re.findall(r"`(make [^`]+)`", page.read_text())]
        for target in re.findall(r"^make ([\w-]+)", block, re.MULTILINE)
    }
    assert shown >= {"demo", "test", "check"}
    assert shown - targets == set()


def test_every_link_leads_somewhere() -> None:
    links = [link for page in PAGES for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())]
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_readmes_assignor_passes_the_compliance_suite() -> None:
    example = next(block for block in blocks(ROOT / "README.md", "python") if "def assign" in block)
    names: dict[str, Any] = {}
    exec(example, names)
    dealer = names["Dealer"]()
    plan = run(dealer, Snapshot({"t": 3}, [Member("a", ("t",)), Member("b", ("t",))]))
    assert plan.to_dict() == {"a": {"t": [0, 2]}, "b": {"t": [1]}}
    report = examine(dealer)
    assert report.passed, str(report)
