"""What operators control of a group: overrides, canary, balance and fences (docs/control.md); rows, and a line each."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from muster.coordinator.observability.read_model.groups import Canary, GroupBalance, GroupControls, GroupHolds
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
        left = "stay unowned" if holds.orphans == "keep" else "go to the member with the fewest"
        yield f"freeze, partitions that lose their owner {left}", holds.freeze_until_ms
    if holds.expect is not None:
        yield f"deploy, {holds.back} of {holds.expect} back", holds.deploy_until_ms
    for pin in holds.pins:
        yield f"pin {pin.topic}-{pin.partition} to {pin.name}", pin.until_ms
    for drain in holds.drains:
        by = "" if drain.by == "member-id" else f"{drain.by} "
        yield f"drain {by}{drain.name}, {plural(drain.left, 'partition')} still to move", drain.until_ms
    for share in holds.shares:
        who = share.client_id or share.member_id
        yield f"share of {who}, {plural(share.partitions, 'partition')} wait for a replacement", share.until_ms


def format_minute(epoch_ms: int) -> str:
    """Local time, to the minute: with its day unless that is today's."""
    then = datetime.fromtimestamp(epoch_ms / 1000)
    return then.strftime("%H:%M" if then.date() == datetime.now().date() else "%Y-%m-%d %H:%M")


# The canary
# ----------


# The canary in words
# -------------------


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


# What goes on beside: canary, balance and fences
# -----------------------------------------------


class CanaryStateRow(TypedDict):
    state: str
    assignor: str
    former: str
    until_ms: int
    promotes: bool
    rebalances: int


class BalanceRow(TypedDict):
    mode: str
    idle: str | None
    heaviest: str | None
    ratio: float | None
    paid: int
    rounds: int
    resting: int


class FenceRow(TypedDict):
    topic: str
    partition: int
    member_id: str
    generation: int
    producer_id: int
    producer_epoch: int
    claimed_at_ms: int


class FencesRow(TypedDict):
    """`newest`: at most 20 of them, those first that were claimed last."""

    count: int
    newest: list[FenceRow]


def canary_row(found: Canary | None) -> CanaryStateRow | None:
    if found is None:
        return None
    return {
        "state": found.state,
        "assignor": found.assignor,
        "former": found.former,
        "until_ms": found.until_ms,
        "promotes": found.promotes,
        "rebalances": found.rebalances,
    }


def balance_row(found: GroupBalance | None) -> BalanceRow | None:
    if found is None:
        return None
    return {
        "mode": found.mode,
        "idle": found.idle or None,
        "heaviest": found.heaviest or None,
        "ratio": None if found.ratio is None else round(found.ratio, 3),
        "paid": found.paid,
        "rounds": found.rounds,
        "resting": found.resting,
    }


def fences_row(found: GroupControls) -> FencesRow | None:
    if not found.fences:
        return None
    newest: list[FenceRow] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "member_id": each.member_id,
            "generation": each.generation,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "claimed_at_ms": each.claimed_at_ms,
        }
        for each in found.newest_fences
    ]
    return {"count": found.fences, "newest": newest}


def control_lines(found: GroupControls) -> Iterator[str]:
    """As `muster groups describe` says it: `FENCES: 3 partitions claimed, last orders-0 by web-1 at 12:31 (...)`."""
    if found.canary is not None:
        yield f"CANARY: {sentence(found.canary).removeprefix('Canary ')}"
    if found.balance is not None:
        yield f"BALANCE: {balance_words(found.balance)}"
    if found.fences:
        yield f"FENCES: {fence_words(found)}"


def balance_words(found: GroupBalance) -> str:
    """
    >>> balance_words(GroupBalance("act", "", "web-1", 1.983, 2, 3, 4))
    'act; web-1 carried most, 1.98 times the mean; moves paid in 2 of 3 evaluations in a row; 4 partitions rest'
    >>> balance_words(GroupBalance("watch", "it rests while a canary runs", "", None, 0, 3, 0))
    'watch; it rests while a canary runs'
    """
    parts = [found.mode, found.idle]
    if found.ratio is not None:
        parts.append(f"{found.heaviest} carried most, {found.ratio:.3g} times the mean")
        parts.append(f"moves paid in {found.paid} of {found.rounds} evaluations in a row")
    if found.resting:
        parts.append(f"{plural(found.resting, 'partition')} {'rests' if found.resting == 1 else 'rest'}")
    return "; ".join(part for part in parts if part)


def fence_words(found: GroupControls) -> str:
    words = f"{plural(found.fences, 'partition')} claimed"
    for last in found.newest_fences[:1]:
        words += (
            f", last {last.topic}-{last.partition} by {last.member_id} at {format_minute(last.claimed_at_ms)} "
            f"(producer id {last.producer_id}, epoch {last.producer_epoch})"
        )
    return words
