"""`muster doctor`: what is wrong with groups and their node, why it matters, and what to do."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import Exit
from muster.cli.common.options import (
    ONE_SHOT_PATIENCE_MS,
    client_options,
    client_properties,
    output_option,
    require_listener,
    seconds_option,
)
from muster.cli.common.output import columns, console, notice, print_document, print_rows
from muster.cli.common.watching import watching_options
from muster.coordinator.observability.views.formatting import harmless, plural

if TYPE_CHECKING:
    from rich.console import Console

    from muster.coordinator.observability.doctor.model import DoctorFacts, DoctorFinding

COLUMNS = columns("SEVERITY, GROUP, RULE, WHAT, EVIDENCE, WHY, TODO")
COLOURS = {"ERROR": "bold red", "WARNING": "bold yellow", "ADVICE": "bold cyan"}
INDENT = "  "
MOST_OF_A_RULE = 10
"""Findings of one rule that people are shown; programs get them all."""


@click.command()
@watching_options
@client_options
@output_option
@seconds_option(
    "--over",
    3.0,
    "Time between two samples of positions; 0 takes one, and finds neither stuck partitions nor rates.",
    least=0,
    most=600,
)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
def doctor(bootstrap: str, overrides: dict[str, str], style: str, over: float, groups: Sequence[str]) -> int:
    """Diagnose GROUPs, or all groups and their node.

    Exit code 4 when there is a problem; advice alone does not count. docs/observe.md lists the rules.
    """
    from muster.coordinator.observability.doctor.table import examine_facts, has_problem

    facts = collect_facts(bootstrap, overrides, groups, over)
    findings = examine_facts(facts)
    if style in ("json", "yaml"):
        print_document(findings_document(facts, findings), style)
    elif style == "csv":
        print_rows(
            [finding_row(finding) | {"evidence": "; ".join(finding.evidence)} for finding in findings], COLUMNS, style
        )
    else:
        print_findings(facts, findings)
    return Exit.UNHEALTHY if has_problem(findings) else Exit.OK


def collect_facts(bootstrap: str, overrides: dict[str, str], groups: Sequence[str], over: float) -> "DoctorFacts":
    from muster.cli.node_polling import gather_facts
    from muster.client.aio import AsyncAdmin
    from muster.client.twins import shared_loop

    given = client_properties(bootstrap, overrides, default_api_timeout_ms=ONE_SHOT_PATIENCE_MS)

    async def work() -> "DoctorFacts":
        async with AsyncAdmin(given) as admin:
            require_listener(bootstrap, overrides)
            return await gather_facts(admin, groups, over, notice)

    return shared_loop().run(work())


def findings_document(facts: "DoctorFacts", findings: Sequence["DoctorFinding"]) -> dict[str, Any]:
    from muster.coordinator.observability.doctor.table import has_problem

    return {
        "healthy": not has_problem(findings),
        "looked_at": {
            "groups": len(facts.groups),
            "members": count_members(facts),
            "partitions": count_partitions(facts),
        },
        "findings": [finding_row(finding) for finding in findings],
    }


def finding_row(finding: "DoctorFinding") -> dict[str, Any]:
    return {
        "severity": finding.severity.name.lower(),
        "group": finding.group or None,
        "rule": finding.rule,
        "what": finding.what,
        "evidence": list(finding.evidence),
        "why": finding.why,
        "todo": finding.todo,
    }


def print_findings(facts: "DoctorFacts", findings: Sequence["DoctorFinding"]) -> None:
    """For people: a block for each finding, and one line on what was looked at."""
    screen = console()
    told: Counter[str] = Counter()
    for finding in findings:
        told[finding.rule] += 1
        if told[finding.rule] <= MOST_OF_A_RULE:
            print_finding(screen, finding)
    for rule, times in told.items():
        if times > MOST_OF_A_RULE:
            screen.print(f"... and {rule} {times - MOST_OF_A_RULE:,} times more; -o json has them all\n")
    screen.print(summary(facts, findings), soft_wrap=True)


def print_finding(screen: "Console", finding: "DoctorFinding") -> None:
    from rich.text import Text

    where = f"group {finding.group}" if finding.group else "the node"
    head = Text(f"{finding.severity.name:<7} ", style=COLOURS[finding.severity.name])
    head.append(harmless(where), style="bold").append(f"  {finding.rule}", style="dim")
    screen.print(head)
    lines = [Text(harmless(finding.what))]
    lines += [Text("- " + harmless(figure), style="cyan") for figure in finding.evidence]
    lines += [
        Text("why   " + finding.why, style="dim"),
        Text("to do ", style="green").append(strip_backticks(finding.todo)),
    ]
    for line in lines:
        hang = INDENT * 2 if line.plain.startswith("- ") else INDENT
        # Lines end where their words do: a terminal that is read aloud, or copied from, needs no padding.
        for part in line.wrap(screen, max(20, screen.width - len(hang))):
            part.rstrip()
            screen.print(Text(hang).append_text(part), soft_wrap=True)
    screen.print()


def strip_backticks(text: str) -> str:
    """Backticks are for pages; a terminal goes without."""
    return text.replace("`", "")


def summary(facts: "DoctorFacts", findings: Sequence["DoctorFinding"]) -> str:
    from muster.coordinator.observability.doctor.model import ExaminedNode

    node = "" if facts.node == ExaminedNode() else ", and the node"
    looked = (
        f"{plural(len(facts.groups), 'group')}, {plural(count_members(facts), 'member')}, "
        f"{plural(count_partitions(facts), 'partition')}{node}"
    )
    if not findings:
        return f"Nothing is wrong. Looked at {looked}."
    names = ("ERROR", "WARNING")
    counts = [plural(sum(f.severity.name == name for f in findings), name.lower()) for name in names]
    advice = sum(f.severity.name == "ADVICE" for f in findings)
    return f"{', '.join(counts)}, {advice} of advice. Looked at {looked}."


def count_members(facts: "DoctorFacts") -> int:
    return sum(len(group.members) for group in facts.groups)


def count_partitions(facts: "DoctorFacts") -> int:
    return sum(len(group.positions) for group in facts.groups)
