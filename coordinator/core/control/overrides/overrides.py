"""The overrides in force for a group, and what they mean to its members: held shares and corrected plans.

Overrides are read from the state, kept as one record, and looked at again when the first of them ends or when the
group has come to rest. When a member leaves, its share may wait for a replacement; when a plan is made, it is corrected
by what is in force. Kinds of groups call this module as an extension (`control/extensions.py`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from muster.assignors.api import Snapshot
from muster.coordinator.core.groups.extensions import GroupView, StandingPlan
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import Plan, share_bytes
from muster.coordinator.core.model.plan_correction import (
    CorrectedPlan,
    correct_with_overrides,
    drained_members,
    partition_set,
    without_members,
)
from muster.coordinator.core.model.records import HeldShare, HoldsEnded, HoldsStored, MemberIdentifiers, Orphans, Until
from muster.coordinator.core.model.types import Cause, Partitions, TimerKey
from muster.coordinator.core.settings.assignor_choice import move_budget
from muster.coordinator.core.settings.setting import HOLD_MS

# What is in force
# ----------------

ENDS = "hold"
LOOKS = "look"
TIMERS = frozenset({ENDS, LOOKS})

U = TypeVar("U", Until, Until | None)


def overrides_of(state: ShardState, group_id: str) -> HoldsStored:
    """What is held of the group; nothing, as a rule."""
    return state.holds.get(group_id) or HoldsStored(group_id)


def are_members_protected(state: ShardState, group_id: str) -> bool:
    """Whether nobody who lives may lose a partition for now: balance and canaries rest."""
    holds = state.holds.get(group_id)
    return holds is not None and holds.calm


def override_end_timer(group_id: str) -> TimerKey:
    """The soonest end of anything."""
    return (ENDS, group_id)


def override_look_timer(group_id: str) -> TimerKey:
    """The group has come to rest: what is left of a drain, or the end of a deploy, has its turn."""
    return (LOOKS, group_id)


def keep_overrides(holds: HoldsStored, step: Step) -> None:
    """These are the holds from here on."""
    if not holds.nothing:
        step.keep(holds)
    elif holds.group_id in step.state.holds:
        step.keep(HoldsEnded(holds.group_id))
    watch_override_ends(holds, step)


def watch_override_ends(holds: HoldsStored, step: Step) -> None:
    """Look again when the first of them ends."""
    ends = [until.at_ms for until in override_ends(holds)]
    if ends:
        step.arm(override_end_timer(holds.group_id), max(0, min(ends) - step.now_ms))
    else:
        step.disarm(override_end_timer(holds.group_id))


def note_settled(group_id: str, step: Step) -> None:
    """Everybody has what the last plan gives it. What waits for that has its turn in a step of its own."""
    holds = step.state.holds.get(group_id)
    if holds is not None and (holds.drains or holds.deploy):
        step.arm(override_look_timer(group_id), 0)


def forget_overrides(group_id: str, step: Step) -> None:
    """The group goes, and nothing is held of it."""
    if group_id in step.state.holds:
        keep_overrides(HoldsStored(group_id), step)
        step.disarm(override_look_timer(group_id))


def rewatch_overrides(step: Step) -> None:
    """The log has been replayed: watch all ends. One that the clock, set back since, puts off ends no later than it
    would have from now on.
    """
    for holds in list(step.state.holds.values()):
        clamped = clamp_ends(holds, step.now_ms)
        if clamped != holds:
            step.keep(clamped)
        watch_override_ends(clamped, step)
        note_settled(clamped.group_id, step)


def clamp_ends(holds: HoldsStored, now_ms: int) -> HoldsStored:
    """The same with no end later than so long from now as it was when it was asked for."""
    freeze, deploy = holds.freeze, holds.deploy
    return replace(
        holds,
        freeze=freeze and replace(freeze, until=clamp_end(freeze.until, now_ms)),
        deploy=deploy and replace(deploy, until=clamp_end(deploy.until, now_ms)),
        drains=tuple(replace(drain, until=clamp_end(drain.until, now_ms)) for drain in holds.drains),
        pins=tuple(replace(pin, until=clamp_end(pin.until, now_ms)) for pin in holds.pins),
        shares=tuple(replace(share, until=clamp_end(share.until, now_ms)) for share in holds.shares),
    )


def clamp_end(until: U, now_ms: int) -> U:
    return until if until is None else replace(until, at_ms=min(until.at_ms, now_ms + until.after_ms))


def extend_held_shares(stalled_ms: int, step: Step) -> None:
    """No heir could come while nobody was heard: what waits for one waits longer by the stall."""
    for holds in list(step.state.holds.values()):
        if holds.shares and stalled_ms:
            longer = tuple(replace(s, until=replace(s.until, at_ms=s.until.at_ms + stalled_ms)) for s in holds.shares)
            keep_overrides(replace(holds, shares=longer), step)


def override_ends(holds: HoldsStored) -> Iterator[Until]:
    if holds.freeze is not None and holds.freeze.until is not None:
        yield holds.freeze.until
    if holds.deploy is not None and holds.deploy.until is not None:
        yield holds.deploy.until
    yield from (drain.until for drain in holds.drains if drain.until is not None)
    yield from (pin.until for pin in holds.pins if pin.until is not None)
    for share in holds.shares:
        yield share.until


# Members and plans
# -----------------


def hold_share(group_id: str, who: MemberIdentifiers, share: Mapping[str, Partitions], step: Step) -> bool:
    """A member of a group that the coordinator plans for is gone: whether its partitions wait for a replacement.

    A static member waits for itself. A freeze has its own word for what is left, and what the log could not take does
    not wait.
    """
    holds = overrides_of(step.state, group_id)
    kept = tuple(sorted((topic, tuple(partitions)) for topic, partitions in share.items() if partitions))
    hold_ms = holds.deploy.hold_ms if holds.deploy else HOLD_MS.of(step.state, group_id)
    if who.instance_id is not None or not kept or not hold_ms or holds.freeze is not None:
        return False
    waiting = HeldShare(who.member_id, who.client_id, kept, Until(step.now_ms + hold_ms, hold_ms))
    size = sum(share_bytes(dict(each.share)) for each in (*holds.shares, waiting))
    if size > step.limits.max_group_bytes:
        return False
    keep_overrides(replace(holds, shares=(*holds.shares, waiting)), step)
    return True


def assignor_input(group_id: str, snapshot: Snapshot, people: Iterable[MemberIdentifiers], step: Step) -> Snapshot:
    """What the assignor is told: it does not hear of drained members, unless its word will not count anyway."""
    holds = step.state.holds.get(group_id)
    if holds is None or not holds.drains or holds.calm:
        return snapshot
    return without_members(snapshot, drained_members(holds, {each.member_id: each for each in people}))


def correct_plan(view: GroupView, plan: Plan, snapshot: Snapshot, step: Step) -> CorrectedPlan | None:
    """The plan that counts; the entry of its rebalance says what was changed. None: nothing is in force."""
    holds, rebalance = step.state.holds.get(view.id), view.rebalance
    if holds is None:
        return None
    kept = correct_with_overrides(plan, holds, view.situation(snapshot, move_budget(step.state, view.id)))
    if rebalance is not None:
        rebalance.gone.update(
            {share.member_id: "its owner left, and this member replaces it" for share in kept.inherited}
        )
        for note in kept.notes:
            rebalance.note(RebalanceTrigger(Cause.OPERATOR, note), step.now_ms)
    return kept


def restore_snapshot(group_id: str, seen: Snapshot, whole: Callable[[], Snapshot], step: Step) -> Snapshot:
    """What the assignor was told, with the drained members of whom it was not."""
    if group_id not in step.state.holds:
        return seen
    known = {member.id for member in seen.members}
    return replace(seen, members=[*seen.members, *(each for each in whole().members if each.id not in known)])


def standing_plan(
    group_id: str, planned_here: bool, departed: Collection[str], state: ShardState
) -> StandingPlan | None:
    """Members left, and no other has to come back: their shares wait for a replacement, or the group is frozen."""
    holds = state.holds.get(group_id)
    if holds is None:
        return None
    waiting = {share.member_id: tuple(partition_set(share)) for share in holds.shares}
    if holds.freeze is not None:
        if planned_here and holds.freeze.orphans is Orphans.GIVE:
            return None
        return StandingPlan("what it had stays without an owner while the group is frozen", waiting)
    if planned_here and waiting.keys() >= set(departed):
        return StandingPlan("its partitions wait for a replacement", waiting)
    return None


def release_inherited_shares(group_id: str, shares: Iterable[HeldShare], step: Step) -> None:
    """The plan holds from here on, and in it these shares have found their heirs."""
    inherited = tuple(shares)
    if not inherited:
        return
    holds = step.state.holds[group_id]
    deploy = holds.deploy and replace(holds.deploy, back=holds.deploy.back + len(inherited))
    rest = tuple(share for share in holds.shares if share not in inherited)
    keep_overrides(replace(holds, deploy=deploy, shares=rest), step)


def release_all_shares(group_id: str, step: Step) -> None:
    """A leader's plan holds from here on: nobody could keep it from giving away what waited for an heir."""
    holds = step.state.holds.get(group_id)
    if holds is not None and holds.shares:
        keep_overrides(replace(holds, shares=()), step)
