"""Recorded rounds planned again by other assignors: how many partitions would have moved, and for how long without an
owner.

A candidate is carried through the whole history: what it owns before a round is what it planned in the round before,
with the members that came and went as they did. How long a partition has no owner in a hand-over is taken from the
record of the same round. Eager members let go of everything, cooperative and KIP-848 members of what moves; a plan that
the coordinator makes is handed over as the group's own plans are.

First each recorded plan is made again by the assignor that made it. Only a round that comes out as recorded counts: of
an assignor that is not understood, nothing can be said by comparison (EX-A4).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from muster.assignors.api import Assignor, AssignorError, Member, RebalanceProtocol, Snapshot, TopicPartition
from muster.assignors.registry import BUILT_IN, own_name, resolve
from muster.assignors.run import run
from muster.assignors.tools.what_if import owner_of, restore_question
from muster.coordinator.observability.advice.model import GroupRecord
from muster.coordinator.observability.advice.recorded_decisions import (
    DIFFERS,
    FAILED,
    REPRODUCED,
    RecordedDecision,
    compare_with_record,
    recorded_decision,
)
from muster.coordinator.observability.advice.rounds import Owners, RecordedRound
from muster.coordinator.observability.views.formatting import plural

COOPERATIVE_STICKY: Final = "cooperative-sticky"
CANDIDATES: Final = (COOPERATIVE_STICKY, "sticky", "uniform", "lag-sticky")
MOST_PLANNED: Final = 50_000
"""Partitions of all rounds together that are planned again by each candidate: the newest rounds within that."""


@dataclass(frozen=True, slots=True)
class ReplayCost:
    """What an assignor's plans cost over the compared rounds. `seconds`: partition-seconds without an owner."""

    assignor: str
    moves: int
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class PlanReplay:
    """`problem`: why nothing is said about the assignor; empty where the comparison holds."""

    assignor: str = ""
    problem: str = ""
    rounds: int = 0
    """Rounds that the assignor that it has planned as recorded: those that are compared."""
    real: ReplayCost = ReplayCost("", 0, 0.0)
    others: Mapping[str, ReplayCost] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskedRound:
    """A round and the assignor's input. `counts`: its plan comes out as recorded."""

    round: RecordedRound
    snapshot: Snapshot
    counts: bool


def replay_plans(record: GroupRecord, candidates: Sequence[str] = CANDIDATES) -> PlanReplay:
    """Plan the rounds of the group's present assignor again."""
    decisions = read_decisions(record.rounds)
    if not decisions:
        return PlanReplay(problem="no plan on record has the assignor's input: nothing can be planned again")
    newest = decisions[-1][1]
    own = own_name(newest.decided_by)
    if own not in BUILT_IN:
        return PlanReplay(
            own, f"{own or 'its assignor'} is not an assignor that Muster knows: its plans are not made again"
        )
    asked: list[AskedRound] = []
    wrong: list[tuple[int, str]] = []
    for each, decision in decisions:
        if own_name(decision.decided_by) != own or decision.snapshot is None:
            continue
        verdict, detail = compare_with_record(decision)
        if verdict in (DIFFERS, FAILED):
            wrong.append((decision.number, detail))
        asked.append(AskedRound(each, decision.snapshot, verdict == REPRODUCED))
    if wrong:
        number, detail = wrong[-1]
        problem = (
            f"{plural(len(wrong), 'plan')} of {len(asked)} is not what Muster's {own} makes of the same input, as in "
            f"rebalance #{number} ({detail}): nothing is said about the assignor"
        )
        return PlanReplay(own, problem)
    counted = [each.round for each in asked if each.counts]
    real = ReplayCost(own, sum(each.moves for each in counted), sum(each.seconds for each in counted))
    cooperative = record.by_consumer_protocol or resolve(own).protocol is RebalanceProtocol.COOPERATIVE
    others = {
        name: carry_through(resolve(name), asked, cooperative or name == COOPERATIVE_STICKY)
        for name in candidates
        if name != own
        and not (cooperative and name == "sticky")
        and not (record.by_consumer_protocol and name == COOPERATIVE_STICKY)
    }
    return PlanReplay(own, "", len(counted), real, others)


def read_decisions(rounds: Sequence[RecordedRound]) -> list[tuple[RecordedRound, RecordedDecision]]:
    """Those with the assignor's input, newest ones up to `MOST_PLANNED` partitions."""
    found: list[tuple[RecordedRound, RecordedDecision]] = []
    planned = 0
    for each in reversed(rounds):
        if not each.entry.snapshot_json:
            continue
        try:
            decision = recorded_decision(each.entry)
        except (ValueError, RecursionError):
            continue
        planned += decision.snapshot.size if decision.snapshot is not None else 0
        if planned > MOST_PLANNED and found:
            break
        found.append((each, decision))
    return found[::-1]


def carry_through(assignor: Assignor, asked: Sequence[AskedRound], incremental: bool) -> ReplayCost:
    """The history by this assignor, from who owned what before the first of these rounds. `incremental`: members keep
    what does not move."""
    owners = dict(asked[0].round.before) if asked else {}
    present: frozenset[str] = frozenset(owners.values())
    before: Sequence[Member] = ()
    gaps = [each.round.kept_gap for each in asked if each.round.kept_gap > 0]
    follow_up_s = (statistics.median(gaps) if gaps else 0.0) if incremental else None
    moves, seconds = 0, 0.0
    for each in asked:
        owners = rename_static(owners, before, each.snapshot.members)
        shown = replace(each.snapshot, members=members_with(each.snapshot.members, owners, present))
        try:
            target = owner_of(run(assignor, restore_question(shown, assignor), withhold=False).to_dict())
        except AssignorError as error:
            return ReplayCost(assignor.name, 0, 0.0, str(error))
        if each.counts:
            moved, waited = handover_cost(each.round, owners, target, follow_up_s)
            moves, seconds = moves + moved, seconds + waited
        owners, present, before = target, each.round.members, each.snapshot.members
    return ReplayCost(assignor.name, moves, seconds)


def rename_static(owners: Owners, before: Sequence[Member], now: Sequence[Member]) -> dict[TopicPartition, str]:
    """A static member that restarted keeps its share under its new id (KIP-345)."""
    here = {member.instance_id: member.id for member in now if member.instance_id is not None}
    renamed = {member.id: here[member.instance_id] for member in before if member.instance_id in here}
    return {tp: renamed.get(owner, owner) for tp, owner in owners.items()}


def members_with(members: Sequence[Member], owners: Owners, present: frozenset[str]) -> list[Member]:
    """The members with what they would own; one that was in no round before reports nothing."""
    owned: dict[str, dict[str, list[int]]] = {}
    for topic, partition in sorted(owners):
        owned.setdefault(owners[topic, partition], {}).setdefault(topic, []).append(partition)
    return [
        replace(
            member,
            owned=owned.get(member.id, {}) if member.id in present or member.id in owned else None,
            generation=1 if member.id in present or member.id in owned else -1,
            user_data=b"",
        )
        for member in members
    ]


def handover_cost(each: RecordedRound, before: Owners, target: Owners, follow_up_s: float | None) -> tuple[int, float]:
    """Partitions that would have changed hands, and partition-seconds without an owner.

    `follow_up_s` None: members let go of everything, whatever the plan, so it takes as long as it took. Otherwise of
    what moves. If the recorded round was eager, an heir gets its partition after a second round, for which all members
    join again: that takes as long as this one, and as long as members of this group usually stop for one.
    """
    moves, seconds = 0, 0.0
    handover = max(each.handover_gap, follow_up_s, each.length_s) if follow_up_s else each.handover_gap
    for tp, owner in target.items():
        was = before.get(tp)
        if was is None:
            seconds += each.new_gaps.get(tp, 0.0)
        elif was != owner:
            moves += 1
            seconds += handover if was in each.members else each.orphan_gap(was)
    return moves, each.seconds if follow_up_s is None else seconds
