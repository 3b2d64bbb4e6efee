"""Follows the groups of the ZooKeeper era: what changed, who had to claim anew, and when it was over.

Members of that era are woken by any change of the group's members, of the brokers, or of a topic; then each lets go of
all its partitions and claims its new share, in its own time. A rebalance is over once every partition is claimed and
everybody who owns something has claimed it since; or, since a member whose share stays the same may let it be, once
all is claimed and nothing has moved for a while.
"""

from collections.abc import Iterator
from dataclasses import replace

from muster.coordinator.core.groups.observed_group import ObservedGroup, ObservedRebalance
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds import history
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.observed_events import GroupObserved, GroupUnseen
from muster.coordinator.core.model.types import Cause, Outcome

QUIET_MS = 3_000
"""Longer than the default pause between two attempts of a member (rebalance.backoff.ms, 2000)."""
GIVE_UP_MS = 30_000
"""When nothing has moved for this long and partitions are still unclaimed, the members have given up."""


def take_observation(event: GroupObserved, step: Step) -> None:
    """Take note of the group as it is now."""
    group = step.state.observed(event.group_id)
    if group is None:
        group = first_sight(event, step)
    before, group.seen = group.seen, replace(event, was_there=False)
    triggers = list(changes_that_wake(before, event))
    for trigger in triggers:
        note_change(group, before, trigger, step)
    follow_claims(group, before, step)
    conclude_rebalance(group, step, quiet=False)
    if triggers or before.owners != event.owners:
        history.announce_group(group, step)


def first_sight(event: GroupObserved, step: Step) -> ObservedGroup:
    """A group that comes into being is compared with nothing; one that was there before, with itself."""
    seen = event if event.was_there else replace(event, members=(), owners={}, renewed=frozenset())
    group = ObservedGroup(event.group_id, seen, history.generation_of(event.group_id, step))
    step.state.observe(group)
    return group


def take_unseen(event: GroupUnseen, step: Step) -> None:
    """It is gone; its ledger stays."""
    group = step.state.overlook(event.group_id)
    if group is not None:
        step.disarm(group.timer)


def fire_quiet_timer(group: ObservedGroup, step: Step) -> None:
    """Nothing has moved for a while."""
    conclude_rebalance(group, step, quiet=True)


def changes_that_wake(before: GroupObserved, now: GroupObserved) -> Iterator[RebalanceTrigger]:
    """What has changed that wakes members, the heaviest first."""
    old, new = {m.id: m for m in before.members}, {m.id: m for m in now.members}
    for member_id in sorted(old.keys() - new.keys()):
        yield departure(member_id, before, now)
    for member_id in sorted(new.keys() - old.keys()):
        member = new[member_id]
        topics = ", ".join(member.topics) or "nothing that exists"
        detail = f"member {member_id} joined; it reads {topics}"
        yield RebalanceTrigger(Cause.MEMBER_JOINED, detail, member_id, client_host=member.host)
    for member_id in sorted(new.keys() & old.keys()):
        if new[member_id].topics != old[member_id].topics and new[member_id].pattern == "static":
            yield RebalanceTrigger(
                Cause.SUBSCRIPTION_CHANGED, f"member {member_id} changed its subscription", member_id
            )
    if old and new:
        yield from changes_around(before, now)


def changes_around(before: GroupObserved, now: GroupObserved) -> Iterator[RebalanceTrigger]:
    """What members are told of beside each other: topics and brokers."""
    read = {topic for member in (*before.members, *now.members) for topic in member.topics}
    for topic in sorted(read):
        old, new = before.partitions.get(topic, 0), now.partitions.get(topic, 0)
        known = any(topic in member.topics for member in before.members)
        if old != new and (known or any(m.pattern != "static" for m in now.members)):
            yield RebalanceTrigger(Cause.PARTITIONS_CHANGED, f"topic {topic} has {new} partitions now, {old} before")
    for broker in sorted(set(before.brokers) ^ set(now.brokers)):
        word = "came" if broker in now.brokers else "went"
        yield RebalanceTrigger(Cause.BROKERS_CHANGED, f"broker {broker} {word}, which wakes every consumer")


def departure(member_id: str, before: GroupObserved, now: GroupObserved) -> RebalanceTrigger:
    """Left in order, or gone with its claims standing: then its session ended, by death or by a plain goodbye."""
    host = next((member.host for member in before.members if member.id == member_id), "")
    if member_id in now.ended:
        detail = f"the session of member {member_id} ended while it held partitions"
        return RebalanceTrigger(Cause.SESSION_EXPIRED, detail, member_id, client_host=host)
    return RebalanceTrigger(Cause.MEMBER_LEFT, f"member {member_id} left", member_id, client_host=host)


def note_change(group: ObservedGroup, before: GroupObserved, trigger: RebalanceTrigger, step: Step) -> None:
    """The first trigger gives the rebalance its cause; a later one is noted, and everybody has to claim once more.

    One whose cause was not seen, such as a member that gives its claims up before it leaves, has found it now.
    """
    if group.rebalance is None:
        begin_rebalance(group, before, trigger, step)
    elif group.rebalance.trigger.cause is Cause.UNSPECIFIED:
        group.rebalance.trigger = trigger
    else:
        group.rebalance.note(trigger)
        group.rebalance.claimed.clear()
    assert group.rebalance is not None
    group.rebalance.changed_at_ms = step.now_ms
    group.rebalance.notifications += len(group.seen.members)
    if trigger.cause in (Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED):
        group.rebalance.gone[trigger.culprit] = trigger.detail


def begin_rebalance(group: ObservedGroup, before: GroupObserved, trigger: RebalanceTrigger, step: Step) -> None:
    group.rebalance = ObservedRebalance(trigger, step.now_ms, dict(before.owners), step.now_ms)


def follow_claims(group: ObservedGroup, before: GroupObserved, step: Step) -> None:
    """Which claims went, and which came, since the last look."""
    old, new = before.owners, group.seen.owners
    went = {tp for tp in old if new.get(tp) != old[tp]} | (group.seen.renewed & old.keys())
    came = {tp for tp in new if new[tp] != old.get(tp)} | (group.seen.renewed & new.keys())
    if not went and not came:
        return
    if group.rebalance is None:
        if not before.members and not group.seen.members:
            return  # claims of nobody: somebody tidies up, or writes by hand
        detail = "members let go of partitions or claimed them, and what called for it was not seen"
        begin_rebalance(group, before, RebalanceTrigger(Cause.UNSPECIFIED, detail), step)
    rebalance = group.rebalance
    assert rebalance is not None
    rebalance.changed_at_ms = step.now_ms
    for tp in went:
        went_at_ms = max(rebalance.started_at_ms, step.now_ms - group.seen.gone_for_ms.get(tp, 0))
        rebalance.free_since.setdefault(tp, went_at_ms)
    if went and rebalance.released_at_ms < 0:
        rebalance.released_at_ms = min(rebalance.free_since[tp] for tp in went)
    for tp in sorted(came):
        free_ms = step.now_ms - rebalance.free_since.pop(tp, step.now_ms)
        rebalance.unowned[tp] = rebalance.unowned.get(tp, 0) + free_ms
        rebalance.claimed.pop(new[tp], None)
        rebalance.claimed[new[tp]] = step.now_ms
        rebalance.herd.add(new[tp])


def conclude_rebalance(group: ObservedGroup, step: Step, *, quiet: bool) -> None:
    """Write the entry if the rebalance is over; else look again when nothing has moved for a while."""
    rebalance = group.rebalance
    if rebalance is None:
        return
    idle_ms = step.now_ms - rebalance.changed_at_ms
    if not group.seen.members:
        history.write_entry(group, rebalance, Outcome.EMPTIED, step)
    elif group.settled or (quiet and group.complete):
        only_woken = not rebalance.herd and rebalance.trigger.cause is Cause.BROKERS_CHANGED
        if not only_woken:  # nobody let go of anything: nothing to be told of
            history.write_entry(group, rebalance, Outcome.COMPLETED, step)
    elif quiet and idle_ms >= GIVE_UP_MS:
        history.write_entry(group, rebalance, Outcome.FAILED, step)
    else:
        step.arm(group.timer, QUIET_MS if group.complete else max(1, GIVE_UP_MS - idle_ms))
        return
    group.rebalance = None
    step.disarm(group.timer)
    if quiet:
        history.announce_group(group, step)
