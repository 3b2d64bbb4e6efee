"""How each verb begins: what is held then, one sentence with figures, and what of the group has to be planned anew."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster.coordinator.core.control.overrides.ground import OverrideContext, count_of
from muster.coordinator.core.model.control_events import AskDeploy, AskDrain, AskFreeze, AskPin
from muster.coordinator.core.model.correction import drained_members
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.model.values import By, Deploy, Drain, Freeze, HoldsStored, Orphans, Pin, Until
from muster.coordinator.core.settings.holding import HOLD_MS
from muster.coordinator.errors import CoordinatorError, ErrorCode

DEPLOY_MS = 15 * 60_000
"""A deploy that nobody ends is over then."""
DEPLOY_HOLD_MS = 120_000
"""How long a share waits for its heir in a deploy, where the group's `hold.ms` says nothing."""

MAX_FOR_MS = 366 * 86_400_000
MAX_DRAINS = 1_000
MAX_PINS = 1_000
MAX_EXPECTED = 100_000
MAX_NAME_CHARS = 249


@dataclass(frozen=True, slots=True)
class BegunOverride:
    """`cause` None: the plan that holds still does."""

    after: HoldsStored
    sentence: str
    cause: Cause | None = None


def begin_override(ask: Any, ground: OverrideContext, for_ms: int | None) -> BegunOverride:
    """Raises CoordinatorError for what cannot be."""
    if for_ms is not None and not 0 < for_ms <= MAX_FOR_MS:
        raise invalid_override(f"for_ms is {for_ms}; expected 1 to {MAX_FOR_MS} (a year), or nothing for no end")
    return VERBS[type(ask)](ask, ground, for_ms)


def override_end(ground: OverrideContext, for_ms: int | None) -> Until | None:
    return None if for_ms is None else Until(ground.step.now_ms + for_ms, for_ms)


def begin_freeze(ask: AskFreeze, ground: OverrideContext, for_ms: int | None) -> BegunOverride:
    itself = ground.plans_itself
    if itself and ask.orphans is Orphans.GIVE:
        ground.planned_here("give away what loses its owner (--orphans keep it can)")
    orphans = ask.orphans or (Orphans.KEEP if itself else Orphans.GIVE)
    after = replace(ground.holds, freeze=Freeze(orphans, override_end(ground, for_ms)))
    owners = ground.owners
    living = len(set(owners.values()))
    words = [
        f"{count_of(living, 'member')} {'keeps' if living == 1 else 'keep'} {count_of(len(owners), 'partition')}",
        "newcomers wait at the door" if itself else "newcomers get none",
        f"what loses its owner {'stays without one' if orphans is Orphans.KEEP else 'goes to whoever has least'}",
    ]
    if ground.at_rest:
        return BegunOverride(after, "; ".join(words))
    if itself:
        return BegunOverride(after, "; ".join([*words, "it counts when the rebalance that is under way has ended"]))
    return BegunOverride(after, "; ".join([*words, "what is on its way to somebody else stays"]), Cause.OPERATOR)


def begin_deploy(ask: AskDeploy, ground: OverrideContext, for_ms: int | None) -> BegunOverride:
    if not 0 < ask.expect <= MAX_EXPECTED:
        raise invalid_override(f"expect is {ask.expect}; how many members shall come back? 1 to {MAX_EXPECTED}")
    ground.planned_here("keep a share for whoever comes back")
    hold_ms = HOLD_MS.of(ground.step.state, ground.group.id) or DEPLOY_HOLD_MS
    ends = override_end(ground, DEPLOY_MS if for_ms is None else for_ms)
    after = replace(ground.holds, deploy=Deploy(ask.expect, hold_ms, until=ends))
    owners = ground.owners
    return BegunOverride(
        after,
        f"{ask.expect} of {count_of(len(ground.situation.who), 'member')} may go and come back: what each leaves waits "
        f"{hold_ms} ms for the next that comes, and otherwise none of {count_of(len(owners), 'partition')} moves",
    )


def begin_drain(ask: AskDrain, ground: OverrideContext, for_ms: int | None) -> BegunOverride:
    check_name("name", ask.name)
    ground.planned_here("take a member's partitions away")
    others = tuple(each for each in ground.holds.drains if (each.by, each.name) != (ask.by, ask.name))
    check_at_most("drains", len(others) + 1, MAX_DRAINS)
    after = replace(ground.holds, drains=(*others, Drain(ask.by, ask.name, override_end(ground, for_ms))))
    who = ground.situation.who
    drained = drained_members(after, ground.situation.who)
    if who and len(drained) == len(who):
        raise invalid_override(
            f"group {ground.group.id!r} would have nobody left: all {len(who)} members would be drained"
        )
    meant = [member_id for member_id, each in who.items() if each.is_named(ask.by, ask.name)]
    if not meant:
        return BegunOverride(
            after, f"no member has {ask.by.value} {ask.name!r} at the moment; who comes with it gets nothing"
        )
    owners = ground.owners
    held = [cell for cell, member_id in owners.items() if member_id in meant]
    leaving = [cell for cell in ground.moved_by(after) if owners[cell] in meant]
    pace = f", at most {ground.situation.budget} at a time" if ground.situation.budget else ""
    sentence = (
        f"{count_of(len(meant), 'member')} with {ask.by.value} {ask.name!r} {'has' if len(meant) == 1 else 'have'} "
        f"{count_of(len(held), 'partition')}: "
        f"{len(leaving)} move at once{pace}, to {count_of(len(who) - len(drained), 'member')}{ground.carrying(leaving)}"
    )
    return BegunOverride(after, sentence, Cause.DRAINED if leaving and not after.calm else None)


def begin_pin(ask: AskPin, ground: OverrideContext, for_ms: int | None) -> BegunOverride:
    check_name("name", ask.name)
    ground.planned_here("give a partition to a certain member")
    where = f"{ask.topic}-{ask.partition}"
    state = ground.step.state
    if state.catalog_known and not 0 <= ask.partition < state.partitions.get(ask.topic, 0):
        raise CoordinatorError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no {where}: topic {ask.topic!r} has {state.partitions.get(ask.topic, 0)} partitions",
        )
    others = tuple(each for each in ground.holds.pins if (each.topic, each.partition) != (ask.topic, ask.partition))
    check_at_most("pins", len(others) + 1, MAX_PINS)
    after = replace(ground.holds, pins=(*others, Pin(ask.topic, ask.partition, ask.name, override_end(ground, for_ms))))
    meant = [member_id for member_id, each in ground.situation.who.items() if each.is_named(By.ANY, ask.name)]
    owner = ground.owners.get((ask.topic, ask.partition))
    if not meant:
        return BegunOverride(
            after, f"nobody is called {ask.name!r} at the moment; {where} goes to whoever comes by that name"
        )
    if owner in meant:
        return BegunOverride(after, f"{owner} has {where}, and keeps it")
    taker = ground.owners_under(after).get((ask.topic, ask.partition))
    if taker not in meant:
        why = "nothing moves for now" if after.calm else f"{' and '.join(meant)} cannot have it"
        return BegunOverride(after, f"{where} stays with {owner or 'nobody'}: {why}")
    # What else moves, moves for other reasons: drains go on meanwhile.
    back = {cell for cell in ground.moved_by(after) if ground.owners[cell] == taker}
    more = f", and {count_of(len(back), 'partition')} the other way" if back else ""
    moved = back | {(ask.topic, ask.partition)}
    sentence = f"{where} moves from {owner or 'nobody'} to {taker}{more}{ground.carrying(moved)}"
    return BegunOverride(after, sentence, Cause.PIN_CHANGED)


VERBS: Mapping[type[Any], Callable[[Any, OverrideContext, int | None], BegunOverride]] = {
    AskFreeze: begin_freeze,
    AskDeploy: begin_deploy,
    AskDrain: begin_drain,
    AskPin: begin_pin,
}


def check_name(field: str, value: str) -> None:
    if not 0 < len(value) <= MAX_NAME_CHARS:
        raise invalid_override(f"{field} has {len(value)} characters; it needs 1 to {MAX_NAME_CHARS}")


def check_at_most(what: str, count: int, most: int) -> None:
    if count > most:
        raise CoordinatorError(ErrorCode.POLICY_VIOLATION, f"a group may have {most} {what}; end some first")


def invalid_override(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)
