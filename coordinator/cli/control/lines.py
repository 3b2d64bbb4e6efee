"""What operators hold of a group, a line each."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from muster.coordinator.views.words import plural

if TYPE_CHECKING:
    from muster.coordinator.client.described import GroupHolds


class HoldRow(TypedDict):
    group: str
    version: int
    held: str
    until: str | None


def hold_rows(group: str, holds: "GroupHolds") -> list[HoldRow]:
    return [
        {"group": group, "version": holds.version, "held": words, "until": None if ms is None else minute(ms)}
        for words, ms in held(holds)
    ]


def hold_lines(holds: "GroupHolds") -> list[str]:
    """As `muster groups describe` says it: `HELD: deploy until 12:31, 7 of 10 back`."""
    lines = []
    for words, ms in held(holds):
        first, comma, more = words.partition(", ")
        lines.append(f"HELD: {first}{'' if ms is None else f' until {minute(ms)}'}{comma}{more}")
    return lines


def held(holds: "GroupHolds") -> Iterator[tuple[str, int | None]]:
    if holds.orphans is not None:
        left = "stays without one" if holds.orphans == "keep" else "goes to whoever has least"
        yield f"freeze, what loses its owner {left}", holds.freeze_until_ms
    if holds.expect is not None:
        yield f"deploy, {holds.back} of {holds.expect} back", holds.deploy_until_ms
    for pin in holds.pins:
        yield f"pin {pin.topic}-{pin.partition} to {pin.name}", pin.until_ms
    for drain in holds.drains:
        by = "" if drain.by == "member-id" else f"{drain.by} "
        yield f"drain {by}{drain.name}, {plural(drain.left, 'partition')} still to move", drain.until_ms
    for share in holds.shares:
        who = share.client_id or share.member_id
        yield f"share of {who}, {plural(share.partitions, 'partition')} wait for an heir", share.until_ms


def minute(epoch_ms: int) -> str:
    """Local time, to the minute: with its day unless that is today's."""
    then = datetime.fromtimestamp(epoch_ms / 1000)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%Y-%m-%d %H:%M")
