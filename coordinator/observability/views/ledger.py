"""The ledger's entries of rebalances: as rows, as whole documents, and the words for cause and outcome."""

import json
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict
from typing_extensions import TypedDict

from muster.coordinator.core.model.types import AUDIT_OUTCOMES
from muster.coordinator.observability.views.formatting import Names, duration, moment
from muster.coordinator.rpc.v1 import ledger_pb2


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
        "took": duration(took_ms(entry)),
        "cause": cause_word(entry),
        "by": names[entry.culprit] or None,
        "moved": len(entry.moves),
        "unowned": duration(entry.unowned_partition_seconds * 1000),
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
    for item in (*found["phases"],):
        item["duration_ms"] = int(item["duration_ms"])
    for item in found["members"]:
        item |= {key: int(item[key]) for key in ("joined_at_ms", "synced_at_ms") if key in item}
    for item in found["shadows"]:
        item |= {"took_ms": int(item["took_ms"])} if "took_ms" in item else {}
    for item in found["moves"]:
        item["unowned_ms"] = int(item["unowned_ms"])
    for item in found["positions"]:
        item |= {key: int(item[key]) if key in item else None for key in ("before", "after")}
    found["cause"] = cause_word(entry).replace(" ", "_").upper()
    found["outcome"] = outcome_word(entry).upper()
    snapshot = found.pop("snapshot_json")
    found["snapshot"] = json.loads(snapshot) if snapshot else None
    return found


def is_rebalance(entry: ledger_pb2.Rebalance) -> bool:
    """Not something that an operator did beside."""
    return int(entry.outcome) not in AUDIT_OUTCOMES


def names_of(rebalances: Iterable[ledger_pb2.Rebalance], *, full: bool = False) -> Names:
    """Short names over all members that the entries mention."""
    ids: set[str] = set()
    for entry in rebalances:
        ids.add(entry.culprit)
        ids.update(member.member_id for member in entry.members)
        ids.update(end for move in entry.moves for end in (move.source, move.target))
        ids.update(member for phase in entry.phases for member in phase.waited_for)
    return Names(ids, full=full)


def cause_word(entry: ledger_pb2.Rebalance) -> str:
    name = ledger_pb2.RebalanceCause.Name(entry.cause)
    return name.removeprefix("REBALANCE_CAUSE_").replace("_", " ").lower()


def outcome_word(entry: ledger_pb2.Rebalance) -> str:
    return ledger_pb2.RebalanceOutcome.Name(entry.outcome).removeprefix("REBALANCE_OUTCOME_").lower()


def took_ms(entry: ledger_pb2.Rebalance) -> int:
    """The phases' sum, which goes on after the plan until every member has its share; else the entry's own ends."""
    return sum(phase.duration_ms for phase in entry.phases) or max(0, entry.ended_at_ms - entry.started_at_ms)
