"""A group's decisions beside those that its shadow assignors would have made, as rows."""

from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from muster.coordinator.rpc.v1.ledger_pb2 import PlanScore, Rebalance


class ShadowRow(TypedDict):
    """Figures are None where they are not known. `lag_share` and the balances are fractions and ratios."""

    number: int
    assignor: str
    real: bool
    moves: int | None
    differs: int | None
    unassigned: int | None
    count_balance: float | None
    lag_balance: float | None
    lag_share: float | None
    rate_balance: float | None
    partition_seconds: float | None
    took_ms: int | None
    failure: str | None


def compare_shadows(entries: Sequence[Rebalance], limit: int) -> list[ShadowRow]:
    """The last `limit` decisions that were shadowed, oldest first as the entries are: the real one, then each shadow.

    What a shadow's moves would have cost is told by what the group's moves did cost, all that is on record together.
    """
    cost = seconds_per_move(entries)
    shadowed = [entry for entry in entries if entry.shadows][-limit:]
    return [shadow_row(entry, score, cost) for entry in shadowed for score in entry.shadows]


def seconds_per_move(entries: Iterable[Rebalance]) -> float | None:
    """Partition-seconds without an owner, for each partition that changed hands; None: nothing moved yet."""
    seconds, moves = 0.0, 0
    for entry in entries:
        moved = sum(1 for move in entry.moves if move.source)
        if moved and all(move.unowned_ms >= 0 or not move.target for move in entry.moves):
            seconds += entry.unowned_partition_seconds
            moves += moved
    return seconds / moves if moves else None


def shadow_row(entry: Rebalance, score: PlanScore, cost: float | None) -> ShadowRow:
    # The plan that counts was made elsewhere, so nobody took its time; a failed shadow has no figures.
    real = not score.failure and not score.HasField("took_ms")
    if score.failure:
        cost = None
    seconds = entry.unowned_partition_seconds if real else None if cost is None else round(cost * score.moves, 3)
    known = not score.failure
    return {
        "number": entry.number,
        "assignor": score.assignor,
        "real": real,
        "moves": score.moves if known else None,
        "differs": score.differs if known else None,
        "unassigned": score.unassigned if known else None,
        "count_balance": score.balance_count if score.HasField("balance_count") else None,
        "lag_balance": score.balance_lag if score.HasField("balance_lag") else None,
        "lag_share": round(score.balance_lag / score.members, 4) if has_known_lag(score) else None,
        "rate_balance": score.balance_rate if score.HasField("balance_rate") else None,
        "partition_seconds": seconds,
        "took_ms": score.took_ms if score.HasField("took_ms") else None,
        "failure": score.failure or None,
    }


def has_known_lag(score: PlanScore) -> bool:
    return score.HasField("balance_lag") and score.members > 0
