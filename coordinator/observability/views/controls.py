"""What operators control of a group: its balance, its running canary and its fences (docs/control.md), a line each."""

from collections.abc import Iterator

from typing_extensions import TypedDict

from muster.coordinator.observability.read_model.groups import Canary, GroupBalance, GroupControls
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.overrides import format_minute, sentence


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
