"""What holds mean for a group's members, for its kind to call: what one leaves waits, and plans are corrected."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.assignors.api import Snapshot
from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.bounds import share_bytes
from muster.coordinator.core.model.correction import (
    CorrectedPlan,
    GroupSituation,
    correct_with_overrides,
    drained_members,
    without_members,
)
from muster.coordinator.core.model.ledger import OngoingRebalance, RebalanceTrigger
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import Cause, Partitions
from muster.coordinator.core.model.values import HeldShare, MemberIdentifiers, Until
from muster.coordinator.core.settings.holding import HOLD_MS
from muster.coordinator.core.settings.who import chosen_options

BUDGET = "move.budget"


def hold_share(group_id: str, who: MemberIdentifiers, share: Mapping[str, Partitions], step: Step) -> bool:
    """A member of a group that the coordinator plans for is gone: whether what it had waits for an heir.

    A static member waits for itself. A freeze has its own word for what is left, and what the log could not take does
    not wait.
    """
    holds = standing.overrides_of(step.state, group_id)
    kept = tuple(sorted((topic, tuple(partitions)) for topic, partitions in share.items() if partitions))
    hold_ms = holds.deploy.hold_ms if holds.deploy else HOLD_MS.of(step.state, group_id)
    if who.instance_id is not None or not kept or not hold_ms or holds.freeze is not None:
        return False
    waiting = HeldShare(who.member_id, who.client_id, kept, Until(step.now_ms + hold_ms, hold_ms))
    size = sum(share_bytes(dict(each.share)) for each in (*holds.shares, waiting))
    if size > step.limits.max_group_bytes:
        return False
    standing.keep_overrides(replace(holds, shares=(*holds.shares, waiting)), step)
    return True


def assignor_input(group_id: str, snapshot: Snapshot, people: Iterable[MemberIdentifiers], step: Step) -> Snapshot:
    """What the assignor is told: it does not hear of drained members, unless its word will not count anyway."""
    holds = step.state.holds.get(group_id)
    if holds is None or not holds.drains or holds.calm:
        return snapshot
    return without_members(snapshot, drained_members(holds, {each.member_id: each for each in people}))


def correct_plan(
    group_id: str, plan: Plan, situation: GroupSituation, rebalance: OngoingRebalance | None, step: Step
) -> CorrectedPlan:
    """The plan that counts; the entry of its rebalance says what was changed."""
    kept = correct_with_overrides(plan, step.state.holds[group_id], situation)
    if rebalance is not None:
        rebalance.gone.update({share.member_id: "its owner went, and this is its heir" for share in kept.inherited})
        for note in kept.notes:
            rebalance.note(RebalanceTrigger(Cause.OPERATOR, note))
    return kept


def release_inherited_shares(group_id: str, shares: Iterable[HeldShare], step: Step) -> None:
    """The plan holds from here on, and in it these shares have found their heirs."""
    inherited = tuple(shares)
    if not inherited:
        return
    holds = step.state.holds[group_id]
    deploy = holds.deploy and replace(holds.deploy, back=holds.deploy.back + len(inherited))
    rest = tuple(share for share in holds.shares if share not in inherited)
    standing.keep_overrides(replace(holds, deploy=deploy, shares=rest), step)


def release_all_shares(group_id: str, step: Step) -> None:
    """A leader's plan holds from here on: nobody could keep it from giving away what waited for an heir."""
    holds = step.state.holds.get(group_id)
    if holds is not None and holds.shares:
        standing.keep_overrides(replace(holds, shares=()), step)


def move_budget(state: ShardState, group_id: str) -> int:
    """How many partitions of drained members may move at once: what balance may move; 0: all."""
    for budget in (chosen_options(state, group_id).get(BUDGET), balance_budget(state, group_id)):
        if isinstance(budget, int) and budget > 0:
            return budget
    return 0


def balance_budget(state: ShardState, group_id: str) -> object:
    stored = state.settings.get(group_id)
    return stored.values.get(f"balance.{BUDGET}") if stored else None
