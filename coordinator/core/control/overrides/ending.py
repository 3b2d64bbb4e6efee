"""How what is held ends: by an operator's word, or by itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from muster.coordinator.core.control.overrides.ground import OverrideContext, count_of
from muster.coordinator.core.model.control_events import EndDeploy, EndFreeze, OverrideEnd, Undrain, Unpin
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.model.values import Drain, HeldShare, HoldsStored, Orphans, Pin, Until


@dataclass(frozen=True, slots=True)
class EndedOverrides:
    """What is left. `sentences` empty: nothing ended. `cause` None: the plan that holds still does."""

    after: HoldsStored
    sentences: tuple[str, ...] = ()
    cause: Cause | None = None


def end_by_hand(end: OverrideEnd | None, ground: OverrideContext) -> EndedOverrides:
    """What the operator names; all of it for None. What is not held ends without a word."""
    holds = ground.holds
    match end:
        case None:
            return describe_end(holds, HoldsStored(holds.group_id))
        case EndFreeze():
            return describe_end(holds, replace(holds, freeze=None))
        case EndDeploy():
            return describe_end(holds, replace(holds, deploy=None, shares=()))
        case Undrain(by, name):
            drains = tuple(each for each in holds.drains if (each.by, each.name) != (by, name))
            return describe_end(holds, replace(holds, drains=drains))
        case Unpin(topic, partition):
            pins = tuple(each for each in holds.pins if (each.topic, each.partition) != (topic, partition))
            return describe_end(holds, replace(holds, pins=pins))


def end_by_time(ground: OverrideContext, now_ms: int) -> EndedOverrides:
    """Whatever is due; a deploy also when everybody is back and has what it is to have."""
    holds, deploy, freeze = ground.holds, ground.holds.deploy, ground.holds.freeze
    all_back = deploy is not None and deploy.back >= deploy.expect and ground.at_rest
    over = deploy is not None and (all_back or is_due(deploy.until, now_ms))
    after = replace(
        holds,
        freeze=None if freeze is not None and is_due(freeze.until, now_ms) else freeze,
        deploy=None if over else deploy,
        drains=tuple(each for each in holds.drains if not is_due(each.until, now_ms)),
        pins=tuple(each for each in holds.pins if not is_due(each.until, now_ms)),
        shares=() if over else tuple(each for each in holds.shares if not is_due(each.until, now_ms)),
    )
    return describe_end(holds, after)


def is_due(until: Until | None, now_ms: int) -> bool:
    return until is not None and until.at_ms <= now_ms


def describe_end(before: HoldsStored, after: HoldsStored) -> EndedOverrides:
    """What the difference means: a sentence for each verb that is over, and the first cause that calls for a plan."""
    told: list[tuple[str, Cause | None]] = []
    if before.freeze is not None and after.freeze is None:
        told.append(("the freeze is over", Cause.THAW))
    if before.deploy is not None and after.deploy is None:
        back, expect = before.deploy.back, before.deploy.expect
        told.append((f"the deploy is over: {back} of {expect} came back", Cause.DEPLOY_OVER))
    told += [
        (f"{drain.by.value} {drain.name!r} is not drained any more", Cause.DRAINED)
        for drain in entries_gone(before.drains, after.drains)
    ]
    told += [
        (f"{pin.topic}-{pin.partition} is not pinned to {pin.name!r} any more", None)
        for pin in entries_gone(before.pins, after.pins)
    ]
    told += [(unclaimed(share), Cause.MEMBER_LEFT) for share in entries_gone(before.shares, after.shares)]
    causes = [cause for _, cause in told if cause is not None]
    # While nobody may lose anything, a plan could at most give out what nobody has.
    still = after.freeze is not None and after.freeze.orphans is Orphans.KEEP
    return EndedOverrides(after, tuple(text for text, _ in told), causes[0] if causes and not still else None)


def unclaimed(share: HeldShare) -> str:
    who = f"{share.member_id} ({share.client_id or 'no client id'})"
    return f"{count_of(share.size, 'partition')} that {who} left wait for an heir no longer"


T = TypeVar("T", Drain, Pin, HeldShare)


def entries_gone(before: Sequence[T], after: Sequence[T]) -> list[T]:
    return [each for each in before if each not in after]
