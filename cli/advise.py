"""`muster advise`: what to change about groups, from their own history, with the exact setting and the proof."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from muster.cli.common.commands import Exit
from muster.cli.common.options import (
    ONE_SHOT_PATIENCE_MS,
    Duration,
    client_options,
    client_properties,
    output_option,
    require_listener,
)
from muster.cli.common.output import columns, console, notice, print_document, print_rows
from muster.cli.common.watching import watching_options
from muster.cli.doctor import strip_backticks
from muster.coordinator.observability.views.formatting import harmless, partition_seconds, plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from muster.coordinator.observability.advice.model import Advice
    from muster.coordinator.observability.advice.table import GroupAdvice

COLUMNS = columns(
    "GROUP:cyan, KIND, SAVES=share, PARTITION-SECONDS, MOVES, REBALANCES, ADVICE=sentence, SETTINGS, HOW+, PROOF+"
)
NOT_FOUND = 69


@click.command()
@watching_options
@client_options
@output_option
@click.option(
    "--window",
    "window_ms",
    type=Duration(),
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Judge the rebalances of this long until now.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also when there is advice.")
@click.argument("group", required=False)
def advise(
    bootstrap: str, overrides: dict[str, str], style: str, window_ms: int, exit_zero: bool, group: str | None
) -> int:
    """Advise what to change about GROUP, or about all groups.

    Judges a group by its own history: which change would have saved how many partition-seconds without an owner, and
    how many moves. The change that helps most comes first; changes that would have saved less than 5 % are left out.
    Each figure says what one change would have saved alone. Exit code 6 when there is advice. docs/advise.md lists the
    kinds of advice.
    """
    found = collect_advice(bootstrap, overrides, group, window_ms)
    if style in ("json", "yaml"):
        print_document([each.to_dict() for each in found], style)
    elif style in ("csv", "wide"):
        print_rows([advice_row(each.group_id, advice) for each in found for advice in each.advice], COLUMNS, style)
    else:
        print_advice(console(), found)
    return Exit.ADVICE if any(each.advice for each in found) and not exit_zero else Exit.OK


def collect_advice(bootstrap: str, overrides: dict[str, str], group: str | None, window_ms: int) -> "list[GroupAdvice]":
    """One group after the other: ledgers with snapshots are large."""
    from muster.cli.node_polling import fetch_node_status, gather_groups
    from muster.client.aio import AsyncAdmin
    from muster.client.errors import GroupNotFound
    from muster.client.twins import shared_loop
    from muster.coordinator.observability.advice.table import advise_group

    given = client_properties(bootstrap, overrides, default_api_timeout_ms=ONE_SHOT_PATIENCE_MS)

    async def work() -> "list[GroupAdvice]":
        async with AsyncAdmin(given) as admin:
            require_listener(bootstrap, overrides)
            status = await fetch_node_status(admin)
            now_ms = (status and status.now_ms) or int(time.time() * 1000)
            untold: list[str] = []
            listings = {listing.group_id: listing for listing in await admin.list_groups(missing=untold.append)}
            if group is None or group not in listings:  # else nobody asked for the rest
                for sentence in untold:
                    notice(sentence)
            if group is not None and group not in listings:
                raise GroupNotFound(NOT_FOUND, "GROUP_ID_NOT_FOUND", f"there is no group {group!r}")
            partitions = await admin.list_topics(include_internal=True)
            found: list[GroupAdvice] = []
            for described in await admin.describe_groups(list(listings) if group is None else [group]):
                examined = await gather_groups(
                    admin,
                    [described],
                    listings,
                    partitions,
                    now_ms,
                    notice,
                    entries=0,
                    snapshots=True,
                    commits=True,
                )
                found += [advise_group(each, partitions, now_ms, now_ms - window_ms) for each in examined]
        return found

    return shared_loop().run(work())


def advice_row(group_id: str, advice: "Advice") -> dict[str, object]:
    return {
        "group": group_id,
        "kind": advice.kind,
        "share": f"{advice.saves.share:.0%}",
        "partition_seconds": advice.saves.partition_seconds,
        "moves": advice.saves.moves,
        "rebalances": advice.saves.rebalances,
        "sentence": advice.sentence,
        "settings": list(advice.settings),
        "how": strip_backticks(advice.how),
        "proof": "; ".join(advice.proof),
    }


# For people
# ----------

HANG = "   "


def print_advice(screen: "Console", found: "Sequence[GroupAdvice]") -> None:
    """A block for each group with advice, and a line for each that is well."""
    for group in sorted(found, key=lambda each: not each.advice):
        if group.advice:
            print_group(screen, group)
        else:
            print_wrapped(screen, said(("bold", group.group_id), ("", f"  {group.nothing_to_change}")), "  ")
        for sentence in group.not_judged:
            print_wrapped(screen, said(("dim", f"Not judged: {sentence}.")), "  ", "  ")
    advised = sum(bool(each.advice) for each in found)
    if len(found) > 1:
        screen.print(f"\nAdvice for {advised} of {plural(len(found), 'group')}.", soft_wrap=True)


def print_group(screen: "Console", group: "GroupAdvice") -> None:
    cost = f"{partition_seconds(group.partition_seconds)} partition-seconds without an owner, {group.moves:,} moves"
    head = said(("bold", group.group_id), ("dim", f"  {group.looked_at}. In all {cost}."))
    print_wrapped(screen, head, "  ")
    for number, advice in enumerate(group.advice, 1):
        screen.print()
        print_wrapped(screen, said(("bold cyan", f"{number}. "), ("bold", advice.sentence)), HANG)
        print_wrapped(screen, said(("green", "saves "), ("", advice.saves.words())), HANG * 3, HANG)
        for setting in advice.settings:
            print_wrapped(screen, said(("green", "set   "), ("cyan", setting)), HANG * 3, HANG)
        print_wrapped(screen, said(("green", "how   "), ("", strip_backticks(advice.how))), HANG * 3, HANG)
        for at, line in enumerate(advice.proof):
            print_wrapped(screen, said(("dim", f"{'proof' if not at else '':<6}{line}")), HANG * 3, HANG)
    screen.print()


def said(*parts: tuple[str, str]) -> "Text":
    """Texts with their styles, and nothing in them that would command a terminal."""
    from rich.text import Text

    text = Text()
    for style, part in parts:
        text.append(harmless(part), style=style)
    return text


def print_wrapped(screen: "Console", text: "Text", hang: str, first: str = "") -> None:
    """Lines end where their words do: a terminal that is read aloud, or copied from, needs no padding."""
    from rich.text import Text

    lead = first
    rest, width = text, screen.width
    lines = rest.wrap(screen, max(20, width - len(hang)))
    for line in lines:
        line.rstrip()
        screen.print(Text(lead).append_text(line), soft_wrap=True)
        lead = hang
