"""The ledger's entries of rebalances as rows, documents and words, and their shadow assignors' decisions."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from typing_extensions import TypedDict

from muster.coordinator.core.model.types import AUDIT_OUTCOMES
from muster.coordinator.observability.views.formatting import bounded, duration, moment
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import PartitionMove, PlanScore, Rebalance

# Entries
# -------


class RebalanceRow(TypedDict):
    number: int
    generation: int
    started: str
    took: str
    cause: str
    by: str | None
    moved: int
    unowned: str
    outcome: str
    assignor: str | None
    detail: str | None


def rebalance_row(entry: ledger_pb2.Rebalance, names: Names) -> RebalanceRow:
    return {
        "number": entry.number,
        "generation": entry.generation,
        "started": moment(entry.started_at_ms),
        "took": took_words(entry),
        "cause": cause_word(entry),
        "by": names[entry.culprit] or None,
        "moved": len(entry.moves),
        "unowned": bounded(surely_unowned_seconds(entry) * 1000, entry.unowned_partition_seconds * 1000, duration),
        "outcome": outcome_word(entry),
        "assignor": entry.protocol_name or None,
        "detail": entry.detail or None,
    }


def entry_document(entry: ledger_pb2.Rebalance) -> dict[str, Any]:
    """Every field, also those at their defaults, with the contract's names; enums by their short names."""
    found: dict[str, Any] = MessageToDict(
        entry, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    for key in ("number", "started_at_ms", "ended_at_ms"):
        found[key] = int(found[key])
    for item, phase in zip(found["phases"], entry.phases, strict=True):
        item["duration_ms"] = int(item["duration_ms"])
        item["waited_for"] = waited_for(phase)
        del item["waits"]
    for item, trigger in zip(found["triggers"], entry.triggers, strict=True):
        item["at_ms"] = int(item["at_ms"])
        item["cause"] = cause_word(trigger).replace(" ", "_").upper()
        item["certainty"] = certainty_word(trigger)
    for item, change in zip(found["topics"], entry.topics, strict=True):
        item["at_ms"] = int(item["at_ms"])
        item["kind"] = ledger_pb2.TopicChangeKind.Name(change.kind).removeprefix("TOPIC_CHANGE_KIND_").lower()
    for item in found["incarnations"]:
        item["away_ms"] = int(item["away_ms"])
    for item, late in zip(found["late_fetches"], entry.late_fetches, strict=True):
        item["after_ms"] = int(item["after_ms"])
        item["certainty"] = certainty_word(late)
    for item in found["members"]:
        item |= {key: int(item[key]) for key in ("joined_at_ms", "synced_at_ms") if key in item}
    for item in found["shadows"]:
        item |= {"took_ms": int(item["took_ms"])} if "took_ms" in item else {}
    for item in found["moves"]:
        item["unowned_ms"] = int(item["unowned_ms"])
        item["unowned_at_least_ms"] = int(item["unowned_at_least_ms"]) if "unowned_at_least_ms" in item else None
    for item in found["positions"]:
        item |= {key: int(item[key]) if key in item else None for key in ("before", "after")}
    found.setdefault("unowned_at_least_partition_seconds", None)
    found["cause"] = cause_word(entry).replace(" ", "_").upper()
    found["outcome"] = outcome_word(entry).upper()
    found["certainty"] = certainty_word(entry)
    found["source"] = ledger_pb2.RebalanceSource.Name(entry.source).removeprefix("REBALANCE_SOURCE_").lower()
    snapshot = found.pop("snapshot_json")
    found["snapshot"] = json.loads(snapshot) if snapshot else None
    return found


class WaitDocument(TypedDict):
    """A member that a phase waited for. `came` is joined, expired, left, replaced or never; both it and `after_ms` are
    None in entries of older versions, which name who came last."""

    member: str
    client_id: str
    came: str | None
    after_ms: int | None


def waited_for(phase: ledger_pb2.RebalancePhase) -> list[WaitDocument]:
    if not phase.waits:
        return [{"member": member, "client_id": "", "came": None, "after_ms": None} for member in phase.waited_for]
    return [
        {
            "member": wait.member_id,
            "client_id": wait.client_id,
            "came": ledger_pb2.WaitEnd.Name(wait.came).removeprefix("WAIT_END_").lower(),
            "after_ms": wait.after_ms,
        }
        for wait in phase.waits
    ]


def is_rebalance(entry: ledger_pb2.Rebalance) -> bool:
    """Not something that an operator did beside."""
    return int(entry.outcome) not in AUDIT_OUTCOMES


def is_watched(entry: Rebalance) -> bool:
    """Whether the entry was concluded from what another broker records, which does not tell how members went."""
    return entry.source == ledger_pb2.REBALANCE_SOURCE_WATCHED


def describe_history_begin(entries: Sequence[Rebalance]) -> str:
    """From when on a watched group's records tell, of all its entries, oldest first; empty: from its first generation.

    >>> late = ledger_pb2.Rebalance(source=1, previous_generation=28, generation=29, ended_at_ms=1_760_000_000_000)
    >>> describe_history_begin([late]).partition(" with ")[2]
    'generation 28: what was before is no longer on record.'
    """
    watched = [entry for entry in entries if is_watched(entry)]
    if not watched or watched[0].previous_generation <= 1:
        return ""
    first = watched[0]
    begin = moment(first.ended_at_ms).partition(".")[0]
    return (
        f"History begins {begin} with generation {first.previous_generation}: what was before is no longer on record."
    )


def certainty_word(entry: ledger_pb2.Rebalance | ledger_pb2.FurtherTrigger | ledger_pb2.LateFetch) -> str | None:
    """How it is known; None in entries of older versions."""
    if not entry.certainty:
        return None
    return ledger_pb2.Certainty.Name(entry.certainty).removeprefix("CERTAINTY_").lower()


def cause_word(entry: ledger_pb2.Rebalance | ledger_pb2.FurtherTrigger) -> str:
    name = ledger_pb2.RebalanceCause.Name(entry.cause)
    return name.removeprefix("REBALANCE_CAUSE_").replace("_", " ").lower()


def outcome_word(entry: ledger_pb2.Rebalance) -> str:
    return ledger_pb2.RebalanceOutcome.Name(entry.outcome).removeprefix("REBALANCE_OUTCOME_").lower()


def took_ms(entry: ledger_pb2.Rebalance) -> int:
    """The phases' sum, which goes on after the plan until every member has its share; else the entry's own ends."""
    return sum(phase.duration_ms for phase in entry.phases) or max(0, entry.ended_at_ms - entry.started_at_ms)


EXACT_PHASES = frozenset({"assign", "reconcile"})
"""Records of KIP-848 groups tell of these."""


def generation_words(entry: ledger_pb2.Rebalance, to: str) -> str:
    """From which generation to which; "" where a watched group's are not known. to: stands between them."""
    if not entry.generation and not entry.previous_generation and is_watched(entry):
        return ""
    return f"{entry.previous_generation} {to} {entry.generation}"


def took_words(entry: ledger_pb2.Rebalance) -> str:
    """How long it took, for people; "" where nobody knows: records of a watched classic group tell when a rebalance
    ended, and only looks at it when it had begun."""
    words = duration(took_ms(entry))
    if not is_watched(entry):
        return words
    if not entry.phases:
        return ""
    return words if entry.phases[0].name in EXACT_PHASES else f"at least {words}"


# Time without an owner
# ---------------------


def surely_unowned_seconds(entry: ledger_pb2.Rebalance) -> float:
    """Partition-seconds without an owner, at the least; `unowned_partition_seconds` are the most."""
    if entry.HasField("unowned_at_least_partition_seconds"):
        return entry.unowned_at_least_partition_seconds
    return entry.unowned_partition_seconds


def unowned_words(moves: Iterable[PartitionMove]) -> str:
    """How long these partitions had no owner, at least and at most; "": nobody has told."""
    known = [move for move in moves if move.unowned_ms >= 0]
    if not known:
        return ""
    most = max(move.unowned_ms for move in known)
    if any(move.HasField("unowned_at_least_ms") for move in known):
        least = min(
            move.unowned_at_least_ms if move.HasField("unowned_at_least_ms") else move.unowned_ms for move in known
        )
        return bounded(least, most, duration)
    low, high = duration(min(move.unowned_ms for move in known)), duration(most)
    return low if low == high else f"{low} to {high}"


# Shadow assignors
# ----------------


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
