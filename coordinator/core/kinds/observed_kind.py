"""Groups of the ZooKeeper era: what they answer, how they are followed, and what the ledger keeps of them.

Members meet in ZooKeeper, so a request that arrives here means the log's group with the same id. A group that is
migrating is in both places; `ObservedGroup.prevails` decides which of the two is shown, deleted, or has its members
removed.

Members of that era are woken by any change of the group's members, of the brokers, or of a topic; each then releases
all its partitions and claims its new share in its own time. A rebalance is over once every partition is claimed and
every owner has claimed since then; or, since a member whose share stays the same may leave its claim untouched, once
all is claimed and nothing has moved for a while. Each rebalance observed becomes one ledger entry.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from muster.assignors.api import Snapshot
from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.core.groups.bookkeeping import forget_ledger, keep_entry, next_number
from muster.coordinator.core.groups.group import ZOOKEEPER, GroupData, ObservedGroup, ObservedRebalance, OwnedPartitions
from muster.coordinator.core.groups.kind import NO_FACTS, GroupKind, HeartbeatOutlook, Positions, RefusedPositions
from muster.coordinator.core.groups.member_causes import changes_since, describe_change, describe_subscription
from muster.coordinator.core.groups.member_history import HOW_GONE, NO_CONNECTION, SeenMember, describe_ms
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import (
    DeleteReply,
    DescribeConsumerReply,
    DescribedMember,
    DescribeReply,
    GroupChanged,
)
from muster.coordinator.core.model.events import (
    ClaimFence,
    ConnectionClosed,
    ConsumerHeartbeat,
    DeleteGroup,
    GroupObserved,
    GroupUnseen,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LedgerFact,
    Listen,
    ObservedMember,
    OffsetCommit,
    OffsetFetch,
    Planned,
    RegexResolved,
    RegisterConsumer,
    StoodStill,
    SyncGroup,
)
from muster.coordinator.core.model.ledger import TOPIC_DELETED, RebalanceTrigger, phase_with_waits
from muster.coordinator.core.model.plan_correction import GroupSituation
from muster.coordinator.core.model.rights import RightsAnew
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Incarnation,
    ListedGroup,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    RebalancePhase,
    RequestId,
    TimerKey,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Views
# -----


def describe_group(group: ObservedGroup) -> DescribeReply:
    """The group as DescribeGroups shows it: claims as assignments, as they stand at this moment."""
    members = group.members
    return DescribeReply(
        group_id=group.id,
        state=group.state.value,
        protocol_type=ZOOKEEPER,
        generation=group.generation,
        members=tuple(
            DescribedMember(
                member_id,
                None,
                consumer_name(group.id, member_id),
                members[member_id].host,
                encode_subscription(Subscription(version=1, topics=members[member_id].topics)),
                encode_assignment(shares),
            )
            for member_id, shares in group.owned.items()
        ),
        waiting_for=group.late,
    )


def list_group(group: ObservedGroup) -> ListedGroup:
    return ListedGroup(group.id, ZOOKEEPER, group.state.value, ZOOKEEPER)


def partition_owners(group: ObservedGroup) -> OwnedPartitions:
    """By their claims, also of members that are gone and whose claims are not."""
    rows: dict[str, dict[int, str]] = {}
    for (topic, partition), owner in group.seen.owners.items():
        rows.setdefault(topic, {})[partition] = owner
    return OwnedPartitions(rows)


def delete_group(group: ObservedGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group's ledger; the edge has deleted what ZooKeeper held."""
    if group.members:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} has {len(group.members)} members in ZooKeeper; stop them first",
        )
    if not request.elsewhere:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"group {group.id!r} lies in ZooKeeper, which this request does not reach; use muster groups delete",
        )
    forget_ledger(group.id, step)
    step.state.overlook(group.id)
    step.disarm(group.timer)
    step.reply(request.request_id, DeleteReply())


# Ledger
# ------


def write_entry(group: ObservedGroup, rebalance: ObservedRebalance, outcome: Outcome, step: Step) -> None:
    """Keep the entry, within the ledger's bound. It is whole at once: nothing is fetched afterwards."""
    trigger, generation = rebalance.trigger, generation_of(group.id, step)
    entry = RebalanceEntry(
        number=next_number(group.id, step),
        previous_generation=generation,
        generation=generation + 1,
        protocol_type=ZOOKEEPER,
        protocol_name="",
        cause=trigger.cause,
        culprit=trigger.culprit,
        culprit_client_id=trigger.client_id,
        culprit_client_host=trigger.client_host,
        detail=trigger.detail,
        client_reason="",
        outcome=outcome,
        started_at_ms=rebalance.started_at_ms,
        ended_at_ms=rebalance.changed_at_ms,
        phases=tuple(phases(group, rebalance)),
        members=tuple(plans(group)),
        moves=tuple(moves(group, rebalance)),
        also=tuple(rebalance.also),
        unowned_partition_ms=unowned_ms(rebalance, step.now_ms),
        herd=len(rebalance.herd),
        notifications=rebalance.notifications,
        certainty=trigger.certainty,
        evidence=trigger.evidence,
        triggers=tuple(rebalance.triggers),
        topics=(*trigger.topics, *(change for change in rebalance.topics if change not in trigger.topics)),
        incarnations=tuple(rebalance.incarnations),
    )
    keep_entry(group.id, entry, step)
    group.generation = entry.generation
    step.out.notices.append(GroupChanged(group.id, group.state.value, group.generation, entry))


def announce_group(group: ObservedGroup, step: Step) -> None:
    """Tell the group's watchers how it stands."""
    step.out.notices.append(GroupChanged(group.id, group.state.value, group.generation))


def generation_of(group_id: str, step: Step) -> int:
    """The generation of the newest entry: groups of this kind have none of their own, so the ledger counts for them."""
    ledger = step.state.ledgers.get(group_id)
    return ledger.newest.generation if ledger and ledger.newest else 0


def phases(group: ObservedGroup, rebalance: ObservedRebalance) -> Iterator[RebalancePhase]:
    """Until the first claim went, and from there until the last one came."""
    claimed_from = rebalance.started_at_ms
    if rebalance.released_at_ms >= 0:
        yield RebalancePhase("release", rebalance.released_at_ms - rebalance.started_at_ms)
        claimed_from = rebalance.released_at_ms
    if rebalance.claimed:
        ended = {member: (WaitEnd.JOINED, at_ms) for member, at_ms in rebalance.claimed.items()}
        clients = {member: consumer_name(group.id, member) for member in ended}
        yield phase_with_waits("claim", clients, ended, claimed_from, rebalance.changed_at_ms)


def plans(group: ObservedGroup) -> Iterator[MemberPlan]:
    for member_id, shares in group.owned.items():
        assigned = tuple((topic, tuple(partitions)) for topic, partitions in shares.items())
        yield MemberPlan(member_id, consumer_name(group.id, member_id), group.members[member_id].host, None, assigned)


def moves(group: ObservedGroup, rebalance: ObservedRebalance) -> Iterator[PartitionMove]:
    before, after = rebalance.before, group.seen.owners
    for tp in sorted(before.keys() | after.keys()):
        source, target = before.get(tp, ""), after.get(tp, "")
        if source != target:
            free_ms = rebalance.unowned.get(tp, 0) if target else -1
            yield PartitionMove(*tp, source, target, free_ms, why(tp[0], source, target, rebalance))


def why(topic: str, source: str, target: str, rebalance: ObservedRebalance) -> str:
    if source in rebalance.gone:
        return rebalance.gone[source]
    if not target:
        return TOPIC_DELETED if topic in rebalance.deleted else "nobody claimed it"
    if not source:
        return "nobody owned it"
    return "balance" if target in rebalance.before.values() else "balance: its new owner joined"


def unowned_ms(rebalance: ObservedRebalance, now_ms: int) -> int:
    """The sum over all partitions, those that are still free included."""
    return sum(rebalance.unowned.values()) + sum(now_ms - since for since in rebalance.free_since.values())


# Following a group
# -----------------

QUIET_MS = 3_000
"""Longer than the default pause between two attempts of a member (rebalance.backoff.ms, 2000)."""
GIVE_UP_MS = 30_000
"""When nothing has moved for this long and partitions are still unclaimed, the members have given up."""


def take_observation(event: GroupObserved, step: Step) -> None:
    """Take note of the group as it is now."""
    group = step.state.observed(event.group_id)
    if group is None:
        group = first_observation(event, step)
    before, group.seen = group.seen, replace(event, was_there=False)
    triggers = list(changes_that_wake(group, before, event, step))
    for trigger in triggers:
        note_change(group, before, trigger, step)
    follow_claims(group, before, step)
    conclude_rebalance(group, step, quiet=False)
    if triggers or before.owners != event.owners:
        announce_group(group, step)


def first_observation(event: GroupObserved, step: Step) -> ObservedGroup:
    """A group that comes into being is compared with nothing; one that was there before, with itself."""
    seen = event if event.was_there else replace(event, members=(), owners={}, renewed=frozenset())
    group = ObservedGroup(event.group_id, seen, generation_of(event.group_id, step))
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


def changes_that_wake(
    group: ObservedGroup, before: GroupObserved, now: GroupObserved, step: Step
) -> Iterator[RebalanceTrigger]:
    """What has changed that wakes members, the heaviest first."""
    old, new = {m.id: m for m in before.members}, {m.id: m for m in now.members}
    for member_id in sorted(old.keys() - new.keys()):
        end = WaitEnd.EXPIRED if member_id in now.ended else WaitEnd.LEFT
        group.history.note_gone(seen_member(group, old[member_id], step), end, step.now_ms)
        yield departure(member_id, before, now)
    for member_id in sorted(new.keys() - old.keys()):
        yield arrival(group, new[member_id], step)
    for member_id in sorted(new.keys() & old.keys()):
        if new[member_id].topics != old[member_id].topics and new[member_id].pattern == "static":
            what = describe_subscription(set(old[member_id].topics), set(new[member_id].topics))
            name = consumer_name(group.id, member_id)
            yield RebalanceTrigger(Cause.SUBSCRIPTION_CHANGED, f"member {member_id} {what}", member_id, name)
    if old and new:
        yield from changes_around(before, now, step)


def changes_around(before: GroupObserved, now: GroupObserved, step: Step) -> Iterator[RebalanceTrigger]:
    """What members are told of beside each other: topics and brokers."""
    read = {topic for member in (*before.members, *now.members) for topic in member.topics}
    for topic in sorted(read):
        old, new = before.partitions.get(topic, 0), now.partitions.get(topic, 0)
        known = any(topic in member.topics for member in before.members)
        if old != new and (known or any(m.pattern != "static" for m in now.members)):
            change = topic_change(topic, old, new, step)
            yield RebalanceTrigger(Cause.PARTITIONS_CHANGED, describe_change(change), topics=(change,))
    for broker in sorted(set(before.brokers) ^ set(now.brokers)):
        word = "came" if broker in now.brokers else "went"
        yield RebalanceTrigger(Cause.BROKERS_CHANGED, f"broker {broker} {word}, which wakes every consumer")


def topic_change(topic: str, old: int, new: int, step: Step) -> TopicChange:
    """As the catalog has it, which says who changed the topic; of a topic of other brokers, as ZooKeeper shows it."""
    kind = (
        TopicChangeKind.MADE
        if not old
        else TopicChangeKind.DELETED
        if not new
        else TopicChangeKind.GREW
        if new > old
        else TopicChangeKind.REMADE
    )
    known = (each for each in changes_since(step.state, (topic,), 0) if each.after == new)
    return max(known, key=lambda each: each.at_ms, default=TopicChange(topic, kind, old, new, step.now_ms))


STARTED = re.compile(r"(-\d{10,}-[0-9a-f]{1,8}|:[0-9a-f-]+)$")
"""What a consumer's id ends with unless `consumer.id` is set: when its process began, and a random number."""


def consumer_name(group_id: str, member_id: str) -> str:
    """What of a consumer's id outlives its process: its host, or `consumer.id`.

    >>> consumer_name("g", "g_box-7-1700000000000-c0ffee00"), consumer_name("g", "g_mine"), consumer_name("g", "box:1f")
    ('box-7', 'mine', 'box')
    """
    return STARTED.sub("", member_id.removeprefix(f"{group_id}_"))


def seen_member(group: ObservedGroup, member: ObservedMember, step: Step) -> SeenMember:
    name = consumer_name(group.id, member.id)
    return SeenMember(member.id, name, member.host, "", "", NO_CONNECTION, step.now_ms, 0)


def arrival(group: ObservedGroup, member: ObservedMember, step: Step) -> RebalanceTrigger:
    """A new member, or one that was there before: its next process has another id, unless `consumer.id` is set."""
    topics = ", ".join(member.topics) or "nothing that exists"
    newcomer = seen_member(group, member, step)
    returned = group.history.find_return(newcomer, (), step.now_ms)
    if returned is None:
        detail = f"member {member.id} joined; it reads {topics}"
        return RebalanceTrigger(Cause.MEMBER_JOINED, detail, member.id, newcomer.client_id, member.host)
    former = returned.former
    group.history.succeed(former.id, member.id)
    away_ms = max(0, step.now_ms - former.gone_ms)
    if former.id != member.id:
        group.arrived_again.append(Incarnation(member.id, former.id, away_ms, HOW_GONE[former.end]))
    how = "its session had ended" if former.end is WaitEnd.EXPIRED else "it had left"
    was = f" (was {former.id})" if former.id != member.id else ""
    return RebalanceTrigger(
        Cause.MEMBER_RESTARTED,
        f"member {member.id} is back {describe_ms(away_ms)} after {how}{was}; it reads {topics}",
        member.id,
        newcomer.client_id,
        member.host,
        certainty=Certainty.INFERRED,
        evidence="same consumer.id" if former.id == member.id else "its id names the same host",
    )


def departure(member_id: str, before: GroupObserved, now: GroupObserved) -> RebalanceTrigger:
    """Left in order, or gone with its claims standing: then its session ended, by death or by a plain goodbye."""
    host = next((member.host for member in before.members if member.id == member_id), "")
    client_id = consumer_name(now.group_id, member_id)
    if member_id in now.ended:
        detail = f"the session of member {member_id} ended while it held partitions"
        return RebalanceTrigger(Cause.SESSION_EXPIRED, detail, member_id, client_id, host)
    return RebalanceTrigger(Cause.MEMBER_LEFT, f"member {member_id} left", member_id, client_id, host)


def note_change(group: ObservedGroup, before: GroupObserved, trigger: RebalanceTrigger, step: Step) -> None:
    """The first trigger gives the rebalance its cause; a later one is noted, and everybody has to claim once more.

    One whose cause was not seen, such as a member that gives its claims up before it leaves, has found it now.
    """
    if group.rebalance is None:
        begin_rebalance(group, before, trigger, step)
    elif group.rebalance.trigger.cause is Cause.UNSPECIFIED:
        group.rebalance.trigger = trigger
    else:
        group.rebalance.note(trigger, step.now_ms)
        group.rebalance.claimed.clear()
    assert group.rebalance is not None
    group.rebalance.incarnations.extend(each for each in group.arrived_again if each.member_id == trigger.culprit)
    group.arrived_again = [each for each in group.arrived_again if each.member_id != trigger.culprit]
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
        begin_rebalance(group, before, RebalanceTrigger(Cause.UNSPECIFIED, detail, certainty=Certainty.UNKNOWN), step)
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
        write_entry(group, rebalance, Outcome.EMPTIED, step)
    elif group.settled or (quiet and group.complete):
        only_woken = not rebalance.herd and rebalance.trigger.cause is Cause.BROKERS_CHANGED
        if not only_woken:  # nobody let go of anything: nothing to be told of
            write_entry(group, rebalance, Outcome.COMPLETED, step)
    elif quiet and idle_ms >= GIVE_UP_MS:
        write_entry(group, rebalance, Outcome.FAILED, step)
    else:
        step.arm(group.timer, QUIET_MS if group.complete else max(1, GIVE_UP_MS - idle_ms))
        return
    group.rebalance = None
    step.disarm(group.timer)
    if quiet:
        announce_group(group, step)


class ObservedKind:
    """`kind_of` tells the kind of the log's group behind this one, which may be none."""

    facts = NO_FACTS
    counts_from_last_heard = True

    def __init__(self, kind_of: Callable[[GroupData | None], GroupKind[Any]]) -> None:
        self._kind_of = kind_of

    # What is answered for the group that ZooKeeper holds, unless the log's prevails.

    def leave(self, group: ObservedGroup, event: LeaveGroup, step: Step, /) -> None:
        if group.prevails:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"the members of {event.group_id!r} meet in ZooKeeper and cannot be removed from here; stop them, or "
                "delete their znodes in /consumers/[group]/ids",
            )
        self._kind_of(group.logged).leave(group.logged, event, step)

    def delete(self, group: ObservedGroup, event: DeleteGroup, step: Step, /) -> None:
        if group.prevails:
            delete_group(group, event, step)
        else:
            self._kind_of(group.logged).delete(group.logged, event, step)

    def view(self, group: ObservedGroup, group_id: str, step: Step, /) -> DescribeReply:
        if group.prevails:
            return describe_group(group)
        return self._kind_of(group.logged).view(group.logged, group_id, step)

    def listed(self, group: ObservedGroup, /) -> Iterator[ListedGroup]:
        """The one that prevails, and those with members beside the log's: nobody may think that the one is alone."""
        if group.members or group.prevails:
            yield list_group(group)
        if not group.prevails:
            yield from self._kind_of(group.logged).listed(group.logged)

    def owners(self, group: ObservedGroup, state: ShardState, former: OwnedPartitions, /) -> OwnedPartitions:
        return partition_owners(group)

    def timer(self, group: ObservedGroup, key: TimerKey, step: Step, /) -> None:
        if key == group.timer:
            fire_quiet_timer(group, step)
        else:
            self._kind_of(group.logged).timer(group.logged, key, step)

    # What is meant for the log's group.

    def join(self, group: ObservedGroup, event: JoinGroup, step: Step, /) -> None:
        self._kind_of(group.logged).join(group.logged, event, step)

    def sync(self, group: ObservedGroup, event: SyncGroup, step: Step, /) -> None:
        self._kind_of(group.logged).sync(group.logged, event, step)

    def heartbeat(self, group: ObservedGroup, event: Heartbeat, step: Step, /) -> None:
        self._kind_of(group.logged).heartbeat(group.logged, event, step)

    def consumer_heartbeat(self, group: ObservedGroup, event: ConsumerHeartbeat, step: Step, /) -> None:
        self._kind_of(group.logged).consumer_heartbeat(group.logged, event, step)

    def register(self, group: ObservedGroup, event: RegisterConsumer, step: Step, /) -> None:
        self._kind_of(group.logged).register(group.logged, event, step)

    def lives(self, group: ObservedGroup, event: ConsumerHeartbeat, step: Step, /) -> None:
        self._kind_of(group.logged).lives(group.logged, event, step)

    def spoke(self, group: ObservedGroup, member_id: str, step: Step, /) -> None:
        self._kind_of(group.logged).spoke(group.logged, member_id, step)

    def session_ms(self, group: ObservedGroup, member_id: str, step: Step, /) -> int:
        return self._kind_of(group.logged).session_ms(group.logged, member_id, step)

    def stream_opened(self, group: ObservedGroup, member_id: str, connection: int, /) -> None:
        self._kind_of(group.logged).stream_opened(group.logged, member_id, connection)

    def forget(self, group: ObservedGroup, member_id: str, request: RequestId, step: Step, /) -> None:
        self._kind_of(group.logged).forget(group.logged, member_id, request, step)

    def may_commit(self, group: ObservedGroup, event: OffsetCommit, step: Step, /) -> RefusedPositions:
        return self._kind_of(group.logged).may_commit(group.logged, event, step)

    def owns(self, group: ObservedGroup, event: ClaimFence, step: Step, /) -> bool | None:
        if group.prevails:
            return group.seen.owners.get((event.topic, event.partition)) == event.member_id
        return self._kind_of(group.logged).owns(group.logged, event, step)

    def positions(self, group: ObservedGroup, event: OffsetFetch, step: Step, /) -> Positions:
        return self._kind_of(group.logged).positions(group.logged, event, step)

    def subscribed(self, group: ObservedGroup, group_id: str, /) -> frozenset[str] | None:
        return self._kind_of(group.logged).subscribed(group.logged, group_id)

    def epochs(self, group: ObservedGroup, group_id: str, step: Step, /) -> DescribeConsumerReply:
        return self._kind_of(group.logged).epochs(group.logged, group_id, step)

    def assignor(self, group: ObservedGroup, step: Step, /) -> str:
        return self._kind_of(group.logged).assignor(group.logged, step)

    def plans_itself(self, group: ObservedGroup, /) -> bool:
        return self._kind_of(group.logged).plans_itself(group.logged)

    def classic_offers(self, group: ObservedGroup, /) -> Iterable[tuple[str, frozenset[str]]]:
        return self._kind_of(group.logged).classic_offers(group.logged)

    def situation(self, group: ObservedGroup, step: Step, /) -> GroupSituation:
        return self._kind_of(group.logged).situation(group.logged, step)

    def at_rest(self, group: ObservedGroup, /) -> bool:
        return self._kind_of(group.logged).at_rest(group.logged)

    def replan(self, group: ObservedGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self._kind_of(group.logged).replan(group.logged, trigger, step)

    def settings_changed(self, group: ObservedGroup, trigger: RebalanceTrigger, step: Step, /) -> None:
        self._kind_of(group.logged).settings_changed(group.logged, trigger, step)

    def is_planned_by(self, group: ObservedGroup, candidate: AssignorCandidate, step: Step, /) -> bool:
        return self._kind_of(group.logged).is_planned_by(group.logged, candidate, step)

    def snapshot(self, group: ObservedGroup, step: Step, /) -> Snapshot | None:
        return self._kind_of(group.logged).snapshot(group.logged, step)

    def load(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).load(group.logged, step)

    def damaged(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).damaged(group.logged, step)

    def word_lost(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).word_lost(group.logged, step)

    def unload(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).unload(group.logged, step)

    def stood_still(self, group: ObservedGroup, event: StoodStill, step: Step, /) -> None:
        self._kind_of(group.logged).stood_still(group.logged, event, step)

    def topics_changed(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).topics_changed(group.logged, step)

    def connection_closed(self, group: ObservedGroup, event: ConnectionClosed, step: Step, /) -> None:
        self._kind_of(group.logged).connection_closed(group.logged, event, step)

    def explain(self, group: ObservedGroup, event: LedgerFact, step: Step, /) -> None:
        self._kind_of(group.logged).explain(group.logged, event, step)

    def rights_changed(self, group: ObservedGroup, event: RightsAnew, step: Step, /) -> None:
        self._kind_of(group.logged).rights_changed(group.logged, event, step)

    def planned(self, group: ObservedGroup, event: Planned, step: Step, /) -> None:
        self._kind_of(group.logged).planned(group.logged, event, step)

    def resolved(self, group: ObservedGroup, event: RegexResolved, step: Step, /) -> None:
        self._kind_of(group.logged).resolved(group.logged, event, step)

    def expire(self, group: ObservedGroup, step: Step, /) -> None:
        self._kind_of(group.logged).expire(group.logged, step)

    def outlook(self, group: ObservedGroup, listener: Listen, /) -> HeartbeatOutlook:
        return self._kind_of(group.logged).outlook(group.logged, listener)

    def steady(self, group: ObservedGroup, event: ConsumerHeartbeat, state: ShardState, /) -> bool:
        return self._kind_of(group.logged).steady(group.logged, event, state)
