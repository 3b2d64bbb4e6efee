"""`muster groups watch`: each rebalance of a group as it happens.

The node is asked again and again for the group's last rebalances, so a group that moves to another node, and a node
that restarts, are followed as by any other command.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import click

from muster.cli.common.commands import stop_on_signal
from muster.cli.common.options import COUNT, client_options, connect_admin, seconds_option
from muster.cli.common.output import console, format_json, notice
from muster.cli.common.watching import ConditionTeller, live_watching_options
from muster.cli.groups.arguments import group_argument

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance

AT_ONCE = 20
"""Rebalances that are asked for in each look; more where the last one that was printed is not among them."""

Told: TypeAlias = tuple[int, int, int, str, str]
"""Of a rebalance: what makes it worth telling again when it changes."""


@click.command("watch")
@live_watching_options
@client_options
@click.option(
    "-o", "--output", "style", type=click.Choice(["table", "wide", "json"]), default="table", show_default=True,
    help="Output format; wide shows each rebalance in full, json prints one object per line.",
)  # fmt: skip
@click.option("--limit", type=COUNT, default=1, show_default=True, help="Begin with the last N rebalances.")
@seconds_option("--every", 2.0, "How often to look.", least=0.1)
@group_argument
def watch(bootstrap: str, overrides: dict[str, str], style: str, limit: int, every: float, group: str) -> None:
    """Print each rebalance of GROUP as it happens, until Ctrl-C.

    A line has the rebalance's number, time, cause, the member behind it, and how many partitions moved. A rebalance
    whose cause turns out to be another one, for example when a broker's log tells more, is printed again.
    """
    stopping = stop_on_signal()
    with connect_admin(bootstrap, overrides) as admin:
        for entries in follow_rebalances(admin, group, limit, every, stopping):
            print_entries(entries, style)


def follow_rebalances(
    admin: "Admin", group: str, limit: int, every_s: float, stopping: threading.Event
) -> "Iterator[list[Rebalance]]":
    """The last `limit` rebalances, oldest first, and from then on those that are new or are explained otherwise now,
    until `stopping` is set. A node that does not answer is told of on standard error, and asked again."""
    from muster.client.errors import ClientError

    told: dict[int, Told] = {}
    began, first = False, 0
    conditions, trouble = ConditionTeller(), ""
    while not stopping.is_set():
        try:
            found = look_back(admin, group, AT_ONCE if began else limit, told)
            conditions.tell(admin)
        except ClientError as error:
            if not began:
                raise
            if str(error) != trouble:
                trouble = str(error)
                notice(f"{trouble}; it is asked again")
        else:
            if not began:
                began, first = True, found[0].number if found else 0
                if not found:
                    notice(
                        f"There is no group '{group}', or nothing is known of it yet; waiting for its first rebalance."
                    )
            if told and found and found[-1].number < max(told):
                told, first = {}, 0  # the group was deleted and made again
            found, trouble = [entry for entry in found if entry.number >= first], ""
            if fresh := [entry for entry in found if told.get(entry.number) != sum_up(entry)]:
                yield fresh
                told = {entry.number: sum_up(entry) for entry in found}
        stopping.wait(every_s)


def look_back(admin: "Admin", group: str, most: int, told: dict[int, Told]) -> "list[Rebalance]":
    """The last rebalances, oldest first, back to one that is known; none of a group that is not there."""
    from muster.client.errors import GroupNotFound

    try:
        found = admin.explain(group, most)[::-1]
    except GroupNotFound:
        return []
    if told and found and found[0].number > max(told) + 1:
        found = [entry for entry in admin.explain(group)[::-1] if entry.number > max(told)]
    return found


def sum_up(entry: "Rebalance") -> Told:
    return entry.cause, entry.certainty, entry.outcome, entry.culprit, entry.detail


def print_entries(entries: "list[Rebalance]", style: str) -> None:
    if style == "json":
        from muster.coordinator.observability.views.ledger import entry_document

        for entry in entries:
            click.echo(format_json(entry_document(entry)))
        return
    from muster.cli.groups.rebalance_story import entry_line, print_story
    from muster.coordinator.observability.views.member_names import names_of

    out = console()
    if style == "wide":
        print_story(out, entries, full=True)
        return
    names = names_of(entries, full=False)
    for entry in entries:
        out.print(entry_line(entry, names), soft_wrap=True)
