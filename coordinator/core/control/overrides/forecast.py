"""What an override would move, as the group is now: the plan that its assignor would make, corrected as plans are.

A plan of a KIP-848, central or coordinator-planned classic group goes this way: the assignor sees the members that are
not drained, and what is in force corrects its answer. A forecast goes the same way with what would be in force. A plan
that a step cannot make at once is asked for like any other, and whoever wants the forecast waits for it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster.assignors.api import AssignorError, Snapshot, TopicPartition
from muster.assignors.registry import BUILT_IN
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.kind import GroupKind
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import Planned, Request
from muster.coordinator.core.model.plan import PlanRequest, lacks_lags, loadable_name
from muster.coordinator.core.model.plan_correction import (
    GroupSituation,
    correct_with_overrides,
    drained_members,
    partition_owner_map,
    without_members,
)
from muster.coordinator.core.model.records import HoldsStored
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import PartitionMove
from muster.coordinator.core.settings.assignor_choice import TRIAL

TRIED = "tried on the group as it is, and nothing was changed"
"""Of a plugin that failed before it counted."""

UNDER_WAY = "the plan is being made"
"""Of a command that is carried out, and does not wait for it."""

MAX_WAITING = 100
"""Requests of a shard that wait for a plan of their own; a further one is answered without."""


@dataclass(frozen=True, slots=True)
class MoveForecast:
    """What would move if the group were planned now. `unknown`: why nothing is known of it; then there are no moves."""

    moves: tuple[PartitionMove, ...] = ()
    assignor: str = ""
    """By whose plan; empty: none is made, everybody keeps what it has."""
    unknown: str = ""
    unsaid: bool = False
    """That it is unknown is not worth a word in a sentence."""

    def describe_others(self, said: Collection[TopicPartition]) -> str:
        """To be said after `said`, of which the sentence speaks: what else changes hands, and by whose plan.

        >>> move = PartitionMove("t", 1, "a", "b", -1, "")
        >>> MoveForecast((move,), "range").describe_others([])
        '; 1 partition changes hands: range plans the whole group again'
        >>> MoveForecast((move,), "range").describe_others([("t", 0)])
        '; 1 partition more changes hands: range plans the whole group again'
        >>> MoveForecast((move,), "range").describe_others([("t", 1)])
        ''
        >>> MoveForecast(unknown="assignor 'x' failed").describe_others([])
        "; what moves is unknown: assignor 'x' failed"
        """
        if self.unsaid:
            return ""
        if self.unknown:
            return f"; what {'else ' if said else ''}moves is unknown: {self.unknown}"
        others = sum((move.topic, move.partition) not in said for move in self.moves)
        if not others:
            return ""
        count, change = ("1 partition", "changes") if others == 1 else (f"{others} partitions", "change")
        return f"; {count}{' more' if said else ''} {change} hands: {self.assignor} plans the whole group again"


@dataclass(frozen=True, slots=True)
class ForecastQuestion:
    """What the assignor would be asked, and what each partition's owner is by the plan that stands."""

    asked: PlanRequest
    standing: Mapping[TopicPartition, str]


def forecast_question(
    kind: GroupKind[Any],
    group: GroupData,
    after: HoldsStored,
    situation: GroupSituation,
    step: Step,
    candidate: AssignorCandidate | None = None,
) -> ForecastQuestion | None:
    """The question if the group were planned under `after`; None: no assignor is asked, no member loses anything.

    `candidate`: plans in place of the group's own assignor.
    """
    plain = None if after.calm else kind.snapshot(group, step)
    if plain is None:
        return None
    if candidate is not None:
        plain = asked_of(candidate, plain, step)
    snapshot = step.state.extensions.prepare_snapshot(group, plain, step)
    asked = without_members(snapshot, drained_members(after, situation.who))
    return ForecastQuestion(PlanRequest(group.id, 0, snapshot.assignor, asked), plain.owners())


def asked_of(candidate: AssignorCandidate, snapshot: Snapshot, step: Step) -> Snapshot:
    return replace(snapshot, assignor=loadable_name(candidate.name, step.limits), options=candidate.options)


def plugin_trial(
    group_id: str, kind: GroupKind[Any], group: GroupData | None, candidate: AssignorCandidate, step: Step
) -> PlanRequest | None:
    """What a plugin is asked before it counts for the group: the group as it is. None: it is built in.

    A group without members, or without subscriptions that can be read, stands for two members and two partitions.
    """
    if candidate.name in BUILT_IN:
        return None
    live = kind.snapshot(group, step) if group is not None and group.members else None
    asked = asked_of(candidate, live or replace(TRIAL, lags={"t": [0, 0]}), step)
    return PlanRequest(group_id, 0, asked.assignor, asked)


def plan_now(question: ForecastQuestion, step: Step) -> Planned | None:
    """The assignor's answer, or its failure, where it can be had in this step."""
    asked = question.asked
    if lacks_lags(asked):
        return None
    try:
        plan = step.state.planner(asked)
    except AssignorError as error:
        return Planned(asked.group_id, asked.epoch, None, str(error), asked.snapshot)
    return None if plan is None else Planned(asked.group_id, asked.epoch, plan, "", asked.snapshot)


def wait_for_plan(asked: PlanRequest, request: Request, step: Step) -> bool:
    """Have the plan made off the loop, and the request taken up again with it; False: too many wait already."""
    waiting = step.state.plan_waits
    if len(waiting) >= MAX_WAITING:
        return False
    fresh = replace(asked, epoch=step.fresh_epoch(asked.epoch), trial=True)
    waiting[fresh.epoch] = request
    step.out.plans.append(fresh)
    return True


def forecast_moves(
    question: ForecastQuestion, answer: Planned, after: HoldsStored, situation: GroupSituation
) -> MoveForecast:
    """What would change hands, in order of topic and partition."""
    if answer.plan is None:
        return MoveForecast(unknown=answer.error)
    seen = answer.snapshot or question.asked.snapshot
    shown = {member.id for member in seen.members}
    rest = [member for member in situation.snapshot.members if member.id not in shown]
    whole = replace(situation, snapshot=replace(seen, members=[*seen.members, *rest]))
    then = correct_with_overrides(answer.plan, after, whole).plan
    was, will = question.standing, {cell: member_id for member_id, cell in partition_owner_map(then)}
    moves = tuple(
        PartitionMove(*cell, was.get(cell, ""), will.get(cell, ""), -1, "")
        for cell in sorted(was.keys() | will.keys())
        if was.get(cell) != will.get(cell)
    )
    return MoveForecast(moves, question.asked.assignor)
