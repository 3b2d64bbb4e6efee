"""Recorded decisions made again: is the plan the same, and what would another assignor have decided?

An assignor is a pure function of its snapshot, and the ledger keeps the snapshot, so a decision of last week can be
repeated today. Works on entries of the ledger, and as `muster groups explain -o json --snapshots` prints them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from muster.assignors.api import AssignorError, Snapshot
from muster.assignors.data import values
from muster.assignors.plugin_pool import decide_for_tool
from muster.assignors.registry import own_name, resolve
from muster.assignors.run import hand_over
from muster.assignors.tools.what_if import list_moves, restore_question
from muster.coordinator.core.model.types import DELAYED
from muster.coordinator.core.watched.consumer_history import TARGET_RECORDS
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.ledger import cause_word
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance

Shares: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]

REMOTE = ("remote", "setting")
WHOLE_PLANS = ("target", "central", TARGET_RECORDS)
REPRODUCED = "same"
DIFFERS = "differs"
FALLBACK = "fallback"
HELD_BACK = "held"
FAILED = "failed"
UNKNOWN = "no snapshot"

STICKY_BY_OTHERS: Mapping[str, tuple[str, ...]] = {
    TARGET_RECORDS: ("uniform",),
    "records": ("sticky", "cooperative-sticky"),
    "coordinator": ("sticky", "cooperative-sticky"),
}
"""By source of the snapshot, the assignors whose plans a broker or a client library made: each deals to equal members
in an order of its own, which no record tells (EX-A9)."""


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A completed rebalance as the ledger keeps it. `snapshot` None: it was not kept."""

    number: int
    generation: int
    cause: str
    assignor: str
    source: str
    shares: Shares
    snapshot: Snapshot | None

    @property
    def decided_by(self) -> str:
        """The assignor; a coordinator that was asked to plan may use another than the members' protocol is called."""
        return (self.snapshot.assignor if self.snapshot is not None else "") or self.assignor


@dataclass(frozen=True, slots=True)
class PlanMeasure:
    """How good a plan is: partitions that change hands against the plan before, fewest and most of a member."""

    moves: int
    least: int
    most: int

    @property
    def spread(self) -> str:
        return f"{self.least}-{self.most}"


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One decision made again. `other` None: not asked for, or not possible; `detail` says why."""

    recorded: RecordedDecision
    verdict: str
    detail: str
    then: PlanMeasure
    other: PlanMeasure | None = None


def read_entries(documents: object) -> list[RecordedDecision]:
    """Completed rebalances, oldest first. ValueError says what is wrong with the documents."""
    if isinstance(documents, dict):
        documents = documents.get("rebalances")
    if not isinstance(documents, list):
        raise ValueError(f"a JSON {type(documents).__name__}; expected what `groups explain -o json` prints")
    entries = [read_entry(document) for document in documents]
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.number)


def read_entry(document: Any) -> RecordedDecision | None:
    """One entry; None for a rebalance that ended without a plan."""
    try:
        if document["outcome"] != "COMPLETED":
            return None
        snapshot = document["snapshot"]
        return RecordedDecision(
            number=int(document["number"]),
            generation=int(document["generation"]),
            cause=str(document["cause"]).replace("_", " ").lower(),
            assignor=str(document["protocol_name"]),
            source=str(document["snapshot_source"]),
            shares={
                str(member["member_id"]): {
                    str(share["topic"]): [int(number) for number in share["partitions"]] for share in member["assigned"]
                }
                for member in document["members"]
            },
            snapshot=None if snapshot is None else Snapshot.from_json(json.dumps(snapshot)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"an entry without {error}; expected one that `groups explain -o json` printed") from None


def recorded_decision(entry: Rebalance) -> RecordedDecision:
    """A completed rebalance. ValueError says what is wrong with its snapshot."""
    return RecordedDecision(
        number=entry.number,
        generation=entry.generation,
        cause=cause_word(entry),
        assignor=entry.protocol_name,
        source=entry.snapshot_source,
        shares={
            member.member_id: {share.topic: list(share.partitions) for share in member.assigned}
            for member in entry.members
        },
        snapshot=Snapshot.from_json(entry.snapshot_json) if entry.snapshot_json else None,
    )


def replay_decisions(entries: Iterable[RecordedDecision], other: str | None = None) -> list[ReplayedDecision]:
    """Make each decision again, and once more with `other`. Raises UnknownAssignor for `other` only."""
    if other is not None:
        resolve(other)
    before: Shares = {}
    done = []
    for entry in entries:
        done.append(replay_decision(entry, before, other))
        before = entry.shares
    return done


def replay_decision(entry: RecordedDecision, before: Shares, other: str | None) -> ReplayedDecision:
    verdict, detail = compare_with_record(entry)
    then = measure_plan(before, entry.shares)
    if other is None or entry.snapshot is None:
        return ReplayedDecision(entry, verdict, detail, then)
    try:
        # The whole target: what a hand-over in two rounds ends in, not where it pauses.
        assignor = resolve(other)
        plan = decide_for_tool(assignor, restore_question(entry.snapshot, assignor), False).to_dict()
    except AssignorError as error:
        return ReplayedDecision(entry, verdict, f"{detail}; {error}" if detail else str(error), then)
    return ReplayedDecision(entry, verdict, detail, then, measure_plan(before, plan))


def compare_with_record(entry: RecordedDecision) -> tuple[str, str]:
    """Whether the decision comes out as recorded, and what there is to say of it."""
    if entry.snapshot is None:
        return UNKNOWN, entry.source
    options = entry.snapshot.options
    if values.FALLBACK in options:
        return FALLBACK, f"the assignor had failed: {options.get(values.REASON)}"
    if values.HELD in options:
        return HELD_BACK, f"the assignor's word was not the last: {options[values.HELD]}"
    try:
        again = repeat_decision(entry.snapshot, entry)
    except ValueError as error:
        return FAILED, str(error)
    changed = list_moves(entry.shares, again)
    if not changed:
        return REPRODUCED, ""
    if own_name(entry.decided_by) in STICKY_BY_OTHERS.get(entry.source, ()) and is_as_good(entry, again):
        return REPRODUCED, f"{plural(len(changed), 'partition')} of equal members dealt out otherwise"
    first = changed[0]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    rebuilt = "; the snapshot was rebuilt by the coordinator" if entry.source == "coordinator" else ""
    went, goes = first.source or "nobody", first.target or "nobody"
    return DIFFERS, f"{first.topic}-{first.partition} went to {went}, now to {goes}{more}{rebuilt}"


def is_as_good(entry: RecordedDecision, again: Shares) -> bool:
    """Whether a recorded plan is as even, and moves as little, as ours for the same input."""
    if entry.snapshot is None:
        return False
    before = {member.id: member.owned or {} for member in entry.snapshot.members}
    sizes = [sorted(sum(map(len, share.values())) for share in plan.values()) for plan in (entry.shares, again)]
    return sizes[0] == sizes[1] and measure_plan(before, entry.shares) == measure_plan(before, again)


def repeat_decision(snapshot: Snapshot, entry: RecordedDecision) -> Shares:
    """The plan for a snapshot by the assignor that made it. ValueError when there is none to be had."""
    word = entry.decided_by
    if word == DELAYED:
        from muster.client.members.delayed_rebalance import replay_decision

        decision = replay_decision(snapshot)
        return {worker: {resource: [0] for resource in share} for worker, share in decision.shares.items()}
    assignor = resolve(word)
    question = restore_question(snapshot, assignor)
    if entry.source in WHOLE_PLANS:
        # A KIP-848 target is the whole plan; members find their way to it one by one.
        return decide_for_tool(assignor, question, False).to_dict()
    if entry.source in REMOTE:
        return hand_over(snapshot, decide_for_tool(assignor, question, False)).to_dict()
    return decide_for_tool(assignor, question, True).to_dict()


def measure_plan(before: Shares, after: Shares) -> PlanMeasure:
    """Moves count from owner to owner: what nobody had, or nobody has, did not move."""
    moved = sum(1 for move in list_moves(before, after) if move.source is not None and move.target is not None)
    loads = [sum(len(numbers) for numbers in share.values()) for share in after.values()] or [0]
    return PlanMeasure(moved, min(loads), max(loads))
