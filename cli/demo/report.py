"""What the demo shows at its end: who owned what, why it changed, and the proof."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.demo.proof import DeliveryProof
from muster.cli.groups.rebalance_story import print_story
from muster.coordinator.observability.views.formatting import Names, plural, spans
from muster.coordinator.observability.views.ledger import cause_word, names_of, outcome_word
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance

COLOURS = ("cyan", "magenta", "blue", "yellow", "bright_red", "bright_green", "bright_cyan", "bright_magenta")


def show_ownership(out: Console, entries: Sequence[Rebalance]) -> None:
    """A row for each generation, a column for each worker; what a worker has just gained is bold."""
    names = names_of(entries)
    workers = sorted({member.member_id for entry in entries for member in entry.members}, key=lambda id: names[id])
    table = Table(title="Who owned which partitions", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("generation", justify="right")
    for at, worker in enumerate(workers):
        table.add_column(names[worker], style=COLOURS[at % len(COLOURS)])
    table.add_column("because")
    before: dict[str, set[int]] = {}
    for entry in entries:
        owned = {member.member_id: partitions_of(entry, member.member_id) for member in entry.members}
        cells = [owned_text(owned.get(worker), before.get(worker, set())) for worker in workers]
        table.add_row(str(entry.generation), *cells, cause_text(entry, names))
        before = owned
    out.print(table)


def partitions_of(entry: Rebalance, member_id: str) -> set[int]:
    return {
        partition
        for member in entry.members
        if member.member_id == member_id
        for assigned in member.assigned
        for partition in assigned.partitions
    }


def owned_text(owned: set[int] | None, before: set[int]) -> Text:
    """Kept partitions plain, gained ones bold with a plus; a dash for a member without any, nothing for no member."""
    if owned is None:
        return Text("")
    parts = [Text(spans(owned & before))] if owned & before else []
    if owned - before:
        parts.append(Text(f"+{spans(owned - before)}", style="bold"))
    return Text(" ").join(parts) if parts else Text("-")


def cause_text(entry: Rebalance, names: Names) -> str:
    ending = "" if outcome_word(entry) == "completed" else f" ({outcome_word(entry)})"
    return f"{cause_word(entry)} {names[entry.culprit]}".strip() + ending


def show_explanations(out: Console, entries: Sequence[Rebalance]) -> None:
    out.print(Text("Why, from the ledger", style="bold"))
    out.print()
    print_story(out, entries)


def show_proof(out: Console, proof: DeliveryProof, lag: int, killed: str) -> None:
    """The figures that decide the exit code."""
    table = Table(title="Proof", title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    again = f"consumed by {killed} but not committed before it was killed" if proof.duplicates else ""
    table.add_row("lines produced", f"{proof.produced:,}", "")
    table.add_row("distinct lines consumed", f"{proof.distinct:,}", "by partition, offset and checksum of the content")
    table.add_row("duplicates", f"{proof.duplicates:,}", again)
    table.add_row("altered", Text(f"{proof.altered:,}", style=loss_verdict(proof.altered)), "")
    table.add_row("lost", Text(f"{proof.lost:,}", style=loss_verdict(proof.lost)), "")
    table.add_row("left to commit", Text(f"{lag:,}", style=loss_verdict(lag)), "lag of the group at the end")
    out.print(table)


def loss_verdict(count: int) -> str:
    return "bold red" if count else "bold green"


def key_shares(by_partition: Sequence[int]) -> str:
    """How evenly the keys spread.

    >>> key_shares([5, 15])
    '25 % to 75 % of the lines in a partition'
    """
    total = sum(by_partition) or 1
    low, high = 100 * min(by_partition) / total, 100 * max(by_partition) / total
    return f"{low:.0f} % to {high:.0f} % of the lines in a partition"


def summary(lines: int, description: str, keyed_by: str, by_partition: Sequence[int]) -> str:
    return f"{plural(lines, 'line')} of {description}, keyed by {keyed_by}: {key_shares(by_partition)}"
