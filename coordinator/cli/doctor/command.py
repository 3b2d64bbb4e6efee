"""`muster doctor`: what is wrong with groups and their node, why it matters, and what to do."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.coordinator.cli.common.errors import Exit
from muster.coordinator.cli.common.options import (
    ONE_SHOT_PATIENCE_MS,
    NumberRange,
    client_options,
    output_option,
    properties,
    somebody_listens,
)
from muster.coordinator.cli.common.output import Column, console, notice, show, show_document
from muster.coordinator.views.words import harmless, plural

if TYPE_CHECKING:
    from rich.console import Console

    from muster.coordinator.doctor.facts import Facts
    from muster.coordinator.doctor.finding import Finding

COLUMNS = [
    Column("SEVERITY", "severity"),
    Column("GROUP", "group"),
    Column("RULE", "rule"),
    Column("WHAT", "what"),
    Column("EVIDENCE", "evidence"),
    Column("WHY", "why"),
    Column("TODO", "todo"),
]
COLOURS = {"ERROR": "bold red", "WARNING": "bold yellow", "ADVICE": "bold cyan"}
INDENT = "  "
MOST_OF_A_RULE = 10
"""Findings of one rule that people are shown; programs get them all."""


@click.command()
@client_options
@output_option
@click.option(
    "--over",
    type=NumberRange(0, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How far apart two looks at positions are; 0 looks once, and finds neither stuck partitions nor rates.",
)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
def doctor(bootstrap: str, overrides: dict[str, str], style: str, over: float, groups: Sequence[str]) -> int:
    """Find what is wrong with GROUPs, or with all groups and the node.

    Exit code 4 when something is; advice alone is no reason. docs/observe.md lists the rules.
    """
    from muster.coordinator.doctor.table import examine, is_wrong

    facts = asked(bootstrap, overrides, groups, over)
    findings = examine(facts)
    if style in ("json", "yaml"):
        show_document(document(facts, findings), style)
    elif style == "csv":
        show([row(finding) | {"evidence": "; ".join(finding.evidence)} for finding in findings], COLUMNS, style)
    else:
        tell(facts, findings)
    return Exit.UNHEALTHY if is_wrong(findings) else Exit.OK


def asked(bootstrap: str, overrides: dict[str, str], groups: Sequence[str], over: float) -> "Facts":
    from muster.coordinator.cli.doctor.gather import gather
    from muster.coordinator.client.aio import Admin
    from muster.coordinator.client.calls.loop import shared_loop

    given = properties(bootstrap, overrides, default_api_timeout_ms=ONE_SHOT_PATIENCE_MS)

    async def work() -> "Facts":
        async with Admin(given) as admin:
            somebody_listens(bootstrap, overrides)
            return await gather(admin, groups, over, lambda sentence: notice(harmless(sentence)))

    return shared_loop().run(work())


def document(facts: "Facts", findings: Sequence["Finding"]) -> dict[str, Any]:
    from muster.coordinator.doctor.table import is_wrong

    return {
        "healthy": not is_wrong(findings),
        "looked_at": {"groups": len(facts.groups), "members": members(facts), "partitions": partitions(facts)},
        "findings": [row(finding) for finding in findings],
    }


def row(finding: "Finding") -> dict[str, Any]:
    return {
        "severity": finding.severity.name.lower(),
        "group": finding.group or None,
        "rule": finding.rule,
        "what": finding.what,
        "evidence": list(finding.evidence),
        "why": finding.why,
        "todo": finding.todo,
    }


def tell(facts: "Facts", findings: Sequence["Finding"]) -> None:
    """For people: a block for each finding, and one line on what was looked at."""
    screen = console()
    told: Counter[str] = Counter()
    for finding in findings:
        told[finding.rule] += 1
        if told[finding.rule] <= MOST_OF_A_RULE:
            block(screen, finding)
    for rule, times in told.items():
        if times > MOST_OF_A_RULE:
            screen.print(f"... and {rule} {times - MOST_OF_A_RULE:,} times more; -o json has them all\n")
    screen.print(summary(facts, findings), soft_wrap=True)


def block(screen: "Console", finding: "Finding") -> None:
    from rich.text import Text

    where = f"group {finding.group}" if finding.group else "the node"
    head = Text(f"{finding.severity.name:<7} ", style=COLOURS[finding.severity.name])
    head.append(harmless(where), style="bold").append(f"  {finding.rule}", style="dim")
    screen.print(head)
    lines = [Text(harmless(finding.what))]
    lines += [Text("- " + harmless(figure), style="cyan") for figure in finding.evidence]
    lines += [Text("why   " + finding.why, style="dim"), Text("to do ", style="green").append(plain(finding.todo))]
    for line in lines:
        hang = INDENT * 2 if line.plain.startswith("- ") else INDENT
        # Lines end where their words do: a terminal that is read aloud, or copied from, needs no padding.
        for part in line.wrap(screen, max(20, screen.width - len(hang))):
            part.rstrip()
            screen.print(Text(hang).append_text(part), soft_wrap=True)
    screen.print()


def plain(text: str) -> str:
    """Backticks are for pages; a terminal goes without."""
    return text.replace("`", "")


def summary(facts: "Facts", findings: Sequence["Finding"]) -> str:
    looked = (
        f"{plural(len(facts.groups), 'group')}, {plural(members(facts), 'member')}, "
        f"{plural(partitions(facts), 'partition')}, and the node"
    )
    if not findings:
        return f"Nothing is wrong. Looked at {looked}."
    names = ("ERROR", "WARNING")
    counts = [plural(sum(f.severity.name == name for f in findings), name.lower()) for name in names]
    advice = sum(f.severity.name == "ADVICE" for f in findings)
    return f"{', '.join(counts)}, {advice} of advice. Looked at {looked}."


def members(facts: "Facts") -> int:
    return sum(len(group.members) for group in facts.groups)


def partitions(facts: "Facts") -> int:
    return sum(len(group.positions) for group in facts.groups)
