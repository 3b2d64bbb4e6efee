"""Operator overrides of a group and its canary (docs/control.md): rows, and a line each for people."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from muster.coordinator.observability.read_model.groups import Canary, GroupHolds
from muster.coordinator.observability.views.formatting import plural

# Overrides: freeze, deploy, drains, pins
# ---------------------------------------


class HoldRow(TypedDict):
    group: str
    version: int
    held: str
    until: str | None
    """To the minute, on this machine's clock, for people."""
    until_ms: int | None


def hold_rows(group: str, holds: GroupHolds) -> list[HoldRow]:
    return [
        {
            "group": group,
            "version": holds.version,
            "held": words,
            "until": None if ms is None else format_minute(ms),
            "until_ms": ms,
        }
        for words, ms in override_words(holds)
    ]


def hold_lines(holds: GroupHolds) -> list[str]:
    """As `muster groups describe` says it: `HELD: deploy until 12:31, 7 of 10 back`."""
    lines = []
    for words, ms in override_words(holds):
        first, comma, more = words.partition(", ")
        lines.append(f"HELD: {first}{'' if ms is None else f' until {format_minute(ms)}'}{comma}{more}")
    return lines


def override_words(holds: GroupHolds) -> Iterator[tuple[str, int | None]]:
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


def format_minute(epoch_ms: int) -> str:
    """Local time, to the minute: with its day unless that is today's."""
    then = datetime.fromtimestamp(epoch_ms / 1000)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%Y-%m-%d %H:%M")


# The canary
# ----------


def sentence(found: Canary) -> str:
    """
    >>> sentence(Canary("rolled back", "lag", "range", "", 0, 0, True, (), 0, 0, "guard 'expired > 0' tripped"))
    "Canary lag in place of range: rolled back, guard 'expired > 0' tripped."
    """
    begins = f"Canary {found.assignor} in place of {found.former}: "
    if found.state == "canary":
        then = "is promoted" if found.promotes else "waits"
        since = plural(found.rebalances, "rebalance")
        return f"{begins}until {format_minute(found.until_ms)}, then it {then}; {since} since its own."
    if found.state == "waiting":
        return f"{begins}its time was over at {format_minute(found.until_ms)}, it waits for promote or rollback."
    return f"{begins}{found.state}, {found.ended}."


def guard_row(guard: dict[str, Any]) -> dict[str, Any]:
    figures = {key: None if guard[key] is None else f"{guard[key]:.6g}" for key in ("baseline", "figure")}
    return {"guard": guard["guard"], "counts": guard["idle"] or "yes", **figures}
