"""One shard: the groups of one partition of `__consumer_offsets`. `Shard.step` decides what an event means. Pure.

`HANDLERS` maps each event type to its handler. What is meant for a group goes to the group's kind
(`kinds/registry.py`), which answers in its own way. A refusal is one reply and changes nothing. `Shard.apply` makes a
recorded fact true, live and in replay.

`leaves_no_record` tells before a step whether a request only reads or says no more than that its member is alive:
such requests go on while the log has no room.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping
from typing import Any

from muster.coordinator.core.central import group_task, registration
from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic import early_rejoins, lifecycle, membership
from muster.coordinator.core.classic.group import ClassicGroup, check_cooperative_only
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.control.balance import balance_switch as balance
from muster.coordinator.core.control.extensions import EXTENSIONS
from muster.coordinator.core.control.overrides import override_commands
from muster.coordinator.core.control.trials import canary, shadow_assignors
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.member_causes import explain_later, take_topic_changes
from muster.coordinator.core.groups.state import MAX_TOPIC_CHANGES, ShardState, Step, TopicReview, apply_record
from muster.coordinator.core.kinds import observed_kind
from muster.coordinator.core.kinds.registry import FACTS, KINDS, convert_if_due
from muster.coordinator.core.model.effects import Effects, add_refusal, refusal_reply
from muster.coordinator.core.model.events import (
    AlterSettings,
    AwaitOrders,
    BalanceGoesOn,
    ClaimFence,
    ConnectionClosed,
    ConsumerHeartbeat,
    ContinueTask,
    CutFound,
    DeleteGroup,
    Deregister,
    DescribeCanary,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeHolds,
    DescribeSettings,
    EndCanary,
    Event,
    ExpireOffsets,
    ExplainGroup,
    FetchedAfterLeaving,
    FetcherStarted,
    FetcherStopped,
    Forget,
    ForgetOffsets,
    GroupObserved,
    GroupUnseen,
    Heartbeat,
    HeldBack,
    Hello,
    HoldGroup,
    InstanceIdUser,
    JoinGroup,
    LagMeasured,
    LeaveGroup,
    Listen,
    ListGroups,
    ListSettings,
    Loaded,
    LoadMeasured,
    LongWorkGoesOn,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PingAnswered,
    Planned,
    RegexResolved,
    RegisterConsumer,
    Request,
    ResumeGroup,
    ReviewTopics,
    SessionHeartbeat,
    Shadowed,
    StartCanary,
    StoodStill,
    StreamClosed,
    StreamLost,
    SyncGroup,
    TimerFired,
    TookOver,
    TopicsChanged,
    TurnedAway,
    TxnEnded,
    TxnMarkerRead,
    TxnOffsetCommit,
    TxnOffsetsWritten,
    TxnWriteOver,
    Unload,
)
from muster.coordinator.core.model.ledger import GroupLedger
from muster.coordinator.core.model.records import OF_ONE_MEMBER, OF_WHO_PLANS, HoldsEnded, LossMended, Record
from muster.coordinator.core.model.rights import Rights, RightsAnew
from muster.coordinator.core.model.types import Limits, TimerKey
from muster.coordinator.core.requests import (
    audit_entries,
    committed_offsets,
    describe,
    fence_claims,
    session_streams,
    settings,
    shard_diary,
)
from muster.coordinator.core.requests.committed_offsets import check_not_being_deleted
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Requests that leave no record
# -----------------------------

QUESTIONS = (
    OffsetFetch,
    DescribeGroup,
    DescribeConsumerGroup,
    ListGroups,
    ExplainGroup,
    DescribeSettings,
    ListSettings,
    DescribeHolds,
    DescribeCanary,
)
READS = (*QUESTIONS, Hello, TxnWriteOver)
SIGNS_OF_LIFE = (Heartbeat, Listen, PingAnswered, AwaitOrders)


def leaves_no_record(event: Event, state: ShardState) -> bool:
    """Whether a request reads, or says no more than that a member is still there."""
    if isinstance(event, SessionHeartbeat):
        return leaves_no_record(event.heartbeat, state)
    if isinstance(event, ConsumerHeartbeat):
        group = state.groups.get(event.group_id)
        return KINDS[type(group)].steady(group, event, state)
    return isinstance(event, READS + SIGNS_OF_LIFE)


# Handlers by event
# -----------------


def on_join(event: JoinGroup, step: Step) -> None:
    membership.check_join_request(event, step.state.limits)
    if event.group_id in step.state.settings:
        check_cooperative_only(event, step.state)
    group = convert_if_due(event, step)
    is_newcomer = not event.group_instance_id and (group is None or event.member_id not in group.members)
    KINDS[type(group)].join(group, event, step)
    if is_newcomer and step.state.first_sessions:
        shard_diary.end_first_sessions(event.group_id, step)


def on_consumer_heartbeat(event: ConsumerHeartbeat, step: Step) -> None:
    group = convert_if_due(event, step)
    KINDS[type(group)].consumer_heartbeat(group, event, step)


def on_register(event: RegisterConsumer, step: Step) -> None:
    group = convert_if_due(event, step)
    KINDS[type(group)].register(group, event, step)


def on_sync(event: SyncGroup, step: Step) -> None:
    group_id_given(event.group_id)
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].sync(group, event, step)


def on_heartbeat(event: Heartbeat, step: Step) -> None:
    group_id_given(event.group_id)
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].heartbeat(group, event, step)


def on_leave(event: LeaveGroup, step: Step) -> None:
    group_id_given(event.group_id)
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].leave(group, event, step)


def on_delete(event: DeleteGroup, step: Step) -> None:
    if committed_offsets.delete_in_part(event, step):
        return
    group = step.state.groups.get(event.group_id)
    farewell = audit_entries.farewell_entry(event, step)
    KINDS[type(group)].delete(group, event, step)
    audit_entries.keep_farewell(event.group_id, farewell, step)


def hear(event: Heartbeat | ConsumerHeartbeat, step: Step) -> None:
    HANDLERS[type(event)](event, step)


def on_listen(event: Listen, step: Step) -> None:
    session_streams.park_listener(event, hear, step)


def on_hello(event: Hello, step: Step) -> None:
    session_streams.welcome_member(event, step)


def on_session_heartbeat(event: SessionHeartbeat, step: Step) -> None:
    session_streams.session_heartbeat(event, hear, step)


def on_forget(event: Forget, step: Step) -> None:
    """Its client is gone. The member lives on until its session ends: one that had joined still counts as joined."""
    member_id = step.state.parked.pop(event.request_id, None)
    if member_id is None:
        return
    session_streams.forget_listener(event.group_id, member_id, event.request_id, step)
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].forget(group, member_id, event.request_id, step)


def on_timer(event: TimerFired, step: Step) -> None:
    if step.state.deadlines.get(event.key) != event.deadline_ms:
        return
    del step.state.deadlines[event.key]
    if event.key == ("retention",):
        committed_offsets.look_for_expired(step)
        return
    extension = step.state.extensions.by_timer.get(event.key[0])
    if extension is not None:
        extension.fire_timer(event.key, step)
        return
    group = step.state.groups.get(event.key[1])
    if event.key[0] == "explain":
        for untold in step.state.explanations.pop(event.key[1], ()):
            KINDS[type(group)].explain(group, untold, step)
        return
    KINDS[type(group)].timer(group, event.key, step)


def on_topics(event: TopicsChanged, step: Step) -> None:
    """Where there are many groups, each looks at the topics in a later turn, or before its own next event."""
    take_catalog(event, step)
    committed_offsets.forget_topics(event, step)
    state = step.state
    if len(state.groups) <= step.limits.slice_positions or not state.loaded_at_ms:
        state.review = None
        for group in list(state.groups.values()):
            KINDS[type(group)].topics_changed(group, step)
        return
    begun, state.review = state.review is not None, TopicReview(tuple(state.groups))
    if not begun:
        step.out.chores.append(ReviewTopics())


def review_slice(event: ReviewTopics, step: Step) -> None:
    """A slice of the groups looks at the topics."""
    review = step.state.review
    if review is None:
        return
    end = review.begin + step.limits.slice_positions
    for group_id in review.group_ids[review.begin : end]:
        review_topics(group_id, review, step)
    review.begin = end
    if end < len(review.group_ids):
        step.out.chores.append(event)
    else:
        step.state.review = None


def review_topics(group_id: str, review: TopicReview, step: Step) -> None:
    """The group looks at them, unless it has."""
    group = step.state.groups.get(group_id)
    if group is not None and group_id not in review.done:
        review.done.add(group_id)
        KINDS[type(group)].topics_changed(group, step)


def may_have_news(group_id: str, state: ShardState) -> bool:
    """Whether the group has yet to look at topics that have changed."""
    return state.review is not None and group_id in state.groups and group_id not in state.review.done


def group_of_event(event: Event) -> str:
    """The group that an event is about; empty: none, or several."""
    if isinstance(event, TimerFired):
        return str(event.key[1]) if len(event.key) > 1 else ""
    named = event.heartbeat if isinstance(event, SessionHeartbeat) else event
    return str(getattr(named, "group_id", ""))


def take_catalog(event: TopicsChanged, step: Step) -> None:
    """Which topics there are, and what has happened to them."""
    state = step.state
    if not event.ids.keys() <= state.topic_ids.keys():
        state.topics_version = step.tick()
    last_words = {state.topic_ids[name]: name for name in event.deleted if name in state.topic_ids}
    take_topic_changes(event, step)
    state.partitions, state.topic_ids = event.partitions, event.ids
    # All shards share the names: a copy for each would take long where there are thousands.
    state.former_topics.update(last_words)
    while len(state.former_topics) > MAX_TOPIC_CHANGES:
        del state.former_topics[next(iter(state.former_topics))]
    state.topic_names = ChainMap(last_words, event.names) if last_words else event.names
    state.catalog_known = True


INSTANCE_ID_REFUSALS = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


def note_instance_id_refusal(event: Event, step: Step) -> None:
    """A member was refused because another process has its group instance id: the group's kind may tell of it."""
    if isinstance(event, SessionHeartbeat):
        event = event.heartbeat
    if isinstance(event, InstanceIdUser):
        explain_later(event, step)


def on_connection_closed(event: ConnectionClosed, step: Step) -> None:
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].connection_closed(group, event, step)


def on_fetched_after_leaving(event: FetchedAfterLeaving, step: Step) -> None:
    if event.group_id in step.state.groups:
        explain_later(event, step)


def on_rights(event: RightsAnew, step: Step) -> None:
    step.out.rows += len(step.state.groups)
    for group in list(step.state.groups.values()):
        KINDS[type(group)].rights_changed(group, event, step)


def on_planned(event: Planned, step: Step) -> None:
    waiting = step.state.plan_waits.pop(event.epoch, None)
    if waiting is not None:
        take_up_again(waiting, event, step)
        return
    if step.state.extensions.take_plan(event, step):
        return
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].planned(group, event, step)


def take_up_again(request: Request, planned: Planned, step: Step) -> None:
    """The plan that an operator's request waited for has come. What it meets by now may refuse it."""
    try:
        RESUMED[type(request)](request, step, planned)
    except CoordinatorError as refusal:
        step.reply(request.request_id, refusal_reply(request, refusal.code, refusal.message))


def on_regex(event: RegexResolved, step: Step) -> None:
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].resolved(group, event, step)


def on_loaded(event: Loaded, step: Step) -> None:
    step.state.loaded_at_ms = step.now_ms
    for group in list(step.state.groups.values()):
        KINDS[type(group)].load(group, step)
    for tombstone in event.damaged:
        damaged = step.state.groups.get(tombstone.group_id)
        kind = KINDS[type(damaged)]
        if isinstance(tombstone, OF_WHO_PLANS):
            kind.word_lost(damaged, step)
            step.keep(tombstone)
            continue
        if isinstance(tombstone, HoldsEnded):
            step.state.extensions.take_lost_record(tombstone, step)
            continue
        kind.damaged(damaged, step)
        if isinstance(tombstone, OF_ONE_MEMBER):
            step.keep(tombstone)
    if event.lost_until > step.state.losses_mended:
        # Nobody can say whose they were.
        for group in list(step.state.groups.values()):
            KINDS[type(group)].damaged(group, step)
        step.keep(LossMended(event.lost_until))
    step.state.extensions.load(step)
    step.arm(("retention",), step.limits.offsets_retention_check_ms)
    # A topic may have been deleted while nobody listened, and made anew since.
    if step.state.catalog_known:
        committed_offsets.forget_orphan_slice(event, step)


def on_unload(event: Unload, step: Step) -> None:
    """The shard goes away: whoever is parked is answered, and no timer is set any more. Nothing hard changes."""
    step.out.rows += len(step.state.groups)
    for group in list(step.state.groups.values()):
        KINDS[type(group)].unload(group, step)
    for key in list(step.state.deadlines):
        step.disarm(key)
    session_streams.release_listeners(step)
    for request in step.state.plan_waits.values():
        refusal = refusal_reply(request, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR.meaning)
        step.reply(request.request_id, refusal)
    step.state.plan_waits.clear()


HANDLERS: dict[type[Any], Callable[[Any, Step], None]] = {
    Heartbeat: on_heartbeat,
    OffsetCommit: committed_offsets.commit_offsets,
    OffsetFetch: committed_offsets.fetch_offsets,
    JoinGroup: on_join,
    SyncGroup: on_sync,
    LeaveGroup: on_leave,
    OffsetDelete: committed_offsets.delete_offsets,
    TxnOffsetCommit: committed_offsets.commit_in_transaction,
    TxnEnded: committed_offsets.end_transaction,
    TxnOffsetsWritten: committed_offsets.take_written,
    TxnWriteOver: committed_offsets.finish_write,
    TxnMarkerRead: committed_offsets.take_transaction_end,
    DescribeGroup: describe.describe_group,
    ListGroups: describe.list_groups,
    DeleteGroup: on_delete,
    ExplainGroup: describe.explain_group,
    DescribeSettings: settings.describe_settings,
    ListSettings: settings.list_settings,
    AlterSettings: settings.alter_settings,
    ClaimFence: fence_claims.claim_fence,
    HoldGroup: override_commands.hold_group,
    ResumeGroup: override_commands.resume_group,
    DescribeHolds: override_commands.describe_holds,
    Listen: on_listen,
    Hello: on_hello,
    SessionHeartbeat: on_session_heartbeat,
    StreamLost: session_streams.stream_lost,
    HeldBack: shard_diary.take_held_back,
    TookOver: shard_diary.note_takeover,
    CutFound: shard_diary.note_cut,
    TurnedAway: shard_diary.take_turned_away,
    ConsumerHeartbeat: on_consumer_heartbeat,
    DescribeConsumerGroup: describe.describe_consumer_group,
    RegisterConsumer: on_register,
    AwaitOrders: group_task.await_orders,
    PingAnswered: registration.ping_answered,
    FetcherStopped: registration.fetcher_stopped,
    FetcherStarted: registration.fetcher_started,
    Deregister: registration.deregister,
    StreamClosed: registration.stream_closed,
    GroupObserved: observed_kind.take_observation,
    GroupUnseen: observed_kind.take_unseen,
    Planned: on_planned,
    Shadowed: shadow_assignors.take_shadow_scores,
    StartCanary: canary.start_canary,
    EndCanary: canary.end_canary,
    DescribeCanary: canary.describe_canary,
    LagMeasured: canary.take_lag_sample,
    RegexResolved: on_regex,
    LoadMeasured: balance.take_measured,
    BalanceGoesOn: balance.continue_evaluation,
    Forget: on_forget,
    TimerFired: on_timer,
    StoodStill: shard_diary.take_stall,
    TopicsChanged: on_topics,
    ConnectionClosed: on_connection_closed,
    FetchedAfterLeaving: on_fetched_after_leaving,
    RightsAnew: on_rights,
    ExpireOffsets: committed_offsets.expire_slice,
    ForgetOffsets: committed_offsets.forget_slice,
    ContinueTask: group_task.continue_task,
    ReviewTopics: review_slice,
    LongWorkGoesOn: committed_offsets.go_on,
    Loaded: on_loaded,
    Unload: on_unload,
}


RESUMED: dict[type[Any], Callable[[Any, Step, Planned], None]] = {
    HoldGroup: override_commands.hold_group,
    ResumeGroup: override_commands.resume_group,
    AlterSettings: settings.alter_settings,
    StartCanary: canary.start_canary,
}
"""Requests that may wait for a plan of their own."""


# The shard
# ---------


class Shard:
    """One offsets partition. `index` is its number, for messages only.

    >>> from muster.coordinator.core.model.events import Heartbeat
    >>> shard = Shard(Limits(), 0)
    >>> effects = shard.step(Heartbeat(7, "g", "a", None, 1), now_ms=0)
    >>> effects.replies[0][1].code.name
    'UNKNOWN_MEMBER_ID'
    """

    __slots__ = ("index", "state")

    def __init__(self, limits: Limits, index: int) -> None:
        self.index = index
        self.state = ShardState(limits, FACTS, EXTENSIONS)

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic ones, by id."""
        return {group.id: group for group in self.state.all_of(ClassicGroup)}

    @property
    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        return {group.id: group for group in self.state.all_of(ConsumerGroup)}

    @property
    def central_groups(self) -> dict[str, CentralGroup]:
        return {group.id: group for group in self.state.all_of(CentralGroup)}

    @property
    def ledgers(self) -> dict[str, GroupLedger]:
        return self.state.ledgers

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        """When each timer is due, ms. There is no other place where that is kept."""
        return self.state.deadlines

    def apply(self, record: Record) -> None:
        """Make a recorded fact true again (replay)."""
        apply_record(self.state, record)

    def committed_to(self) -> Counter[tuple[str, bytes]]:
        """How many positions there are of each topic, by name and id. It looks at all: for whoever replays."""
        return committed_offsets.count_committed(self.state.offsets) + self.state.pending.topics()

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        """Take the heartbeat of a dynamic classic member if all is well: its session ends later now.

        The short way for the most frequent request; `step` decides the same. False: nothing was done, `step` it.
        """
        state = self.state
        group = state.groups.get(group_id)
        if not isinstance(group, ClassicGroup) or (state.review is not None and may_have_news(group_id, state)):
            return False
        return lifecycle.take_steady_heartbeat(group, member_id, generation, rights, state, now_ms)

    def writes_nothing(self, event: Event) -> bool:
        """Whether a request can be told in advance to leave no record."""
        return not may_have_news(group_of_event(event), self.state) and leaves_no_record(event, self.state)

    def knows(self, group_id: str, member_id: str | None) -> bool:
        """Whether there is such a group, and such a member in it (None: whoever)."""
        group = self.state.groups.get(group_id)
        return group is not None and (member_id is None or member_id in group.members)

    def may_follow_topics(self, event: JoinGroup) -> bool:
        """Whether a member joins again, and a change of topics that the catalog does not have yet may be why."""
        group = self.state.groups.get(event.group_id)
        return isinstance(group, ClassicGroup) and early_rejoins.may_follow_topics(group, event)

    def step(self, event: Event, now_ms: int) -> Effects:
        """Decide what an event means. A refusal is one reply and changes nothing."""
        step = Step(self.state, now_ms)
        reviewed = False
        if self.state.review is not None:
            review_topics(group_of_event(event), self.state.review, step)
            reviewed = step.out.decided
        try:
            if self.state.going:
                check_not_being_deleted(event, self.state)
            HANDLERS[type(event)](event, step)
        except CoordinatorError as refusal:
            assert reviewed or not step.out.decided, "a request was refused after something had been decided"
            if refusal.code in INSTANCE_ID_REFUSALS:
                note_instance_id_refusal(event, step)
            return add_refusal(event, refusal, step.out)
        if self.state.listeners:
            session_streams.tell_listeners(hear, step)
        if self.state.canaries and canary.watch_canaries(step):
            session_streams.tell_listeners(hear, step)
        return step.out
