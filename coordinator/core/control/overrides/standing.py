"""What stands of a group's holds: read from the state, kept, and looked at again when its time comes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.types import TimerKey
from muster.coordinator.core.model.values import HoldsEnded, HoldsStored, Until

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
