"""Who handles an event: the table. What is meant for a group goes to its kind, which answers in its own way."""

from collections import ChainMap
from collections.abc import Callable
from typing import Any

from muster.coordinator.core.central import liveness, telling
from muster.coordinator.core.classic import join
from muster.coordinator.core.classic.assigning import check_cooperative_only
from muster.coordinator.core.control.balance import door as balance
from muster.coordinator.core.control.overrides import reloaded, standing, verbs
from muster.coordinator.core.control.trials import canary, shadow
from muster.coordinator.core.groups import gone
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds import watching
from muster.coordinator.core.kinds.conversions import convert_if_due
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.balance_events import BalanceGoesOn
from muster.coordinator.core.model.consumer_records import OF_ONE_MEMBER
from muster.coordinator.core.model.control_events import DescribeHolds, HoldGroup, ResumeGroup
from muster.coordinator.core.model.core_events import (
    AlterSettings,
    ConsumerHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeSettings,
    ExpireOffsets,
    ExplainGroup,
    Forget,
    ForgetOffsets,
    Heartbeat,
    Hello,
    JoinGroup,
    LeaveGroup,
    Listen,
    ListGroups,
    ListSettings,
    Loaded,
    LoadMeasured,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Planned,
    RegexResolved,
    SessionHeartbeat,
    StoodStill,
    StreamLost,
    SyncGroup,
    TimerFired,
    TopicsChanged,
    TurnedAway,
    Unload,
)
from muster.coordinator.core.model.core_records import OF_WHO_PLANS, LossMended
from muster.coordinator.core.model.events import (
    AwaitOrders,
    Deregister,
    FetcherStarted,
    FetcherStopped,
    PingAnswered,
    RegisterConsumer,
    StreamClosed,
)
from muster.coordinator.core.model.fences_events import ClaimFence
from muster.coordinator.core.model.observed_events import GroupObserved, GroupUnseen
from muster.coordinator.core.model.rights import RightsAnew
from muster.coordinator.core.model.streams import CutFound, HeldBack, TookOver
from muster.coordinator.core.model.trial_events import DescribeCanary, EndCanary, LagMeasured, Shadowed, StartCanary
from muster.coordinator.core.model.txn_events import TxnEnded, TxnOffsetCommit, TxnOffsetsWritten, TxnWriteOver
from muster.coordinator.core.model.values import HoldsEnded
from muster.coordinator.core.requests import (
    audit_entries,
    commits,
    describe,
    fence_claims,
    offsets,
    session_streams,
    settings,
    stall,
    sweeps,
    takeovers,
)


def on_join(event: JoinGroup, step: Step) -> None:
    join.check_join_request(event, step.limits)
    check_cooperative_only(event, step.state)
    group = convert_if_due(event, step)
    KINDS[type(group)].join(group, event, step)


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
    if sweeps.delete_in_part(event, step):
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
    if event.key[0] == balance.BALANCE_TIMER:
        balance.take_sample_due(event.key[1], step)
        return
    if event.key == ("retention",):
        sweeps.look_for_expired(step)
        return
    if event.key[0] in standing.TIMERS:
        verbs.fire_override_timer(event.key, step)
        return
    if event.key[0] == gone.CANARY_TIMER:
        canary.end_canary_time(event.key[1], step)
        return
    group = step.state.groups.get(event.key[1])
    KINDS[type(group)].timer(group, event.key, step)


def on_topics(event: TopicsChanged, step: Step) -> None:
    state = step.state
    if not event.ids.keys() <= state.topic_ids.keys():
        state.topics_version = step.tick()
    last_words = {state.topic_ids[name]: name for name in event.deleted if name in state.topic_ids}
    state.partitions, state.topic_ids = event.partitions, event.ids
    # All shards share the names: a copy for each would take long where there are thousands.
    state.topic_names = ChainMap(last_words, event.names) if last_words else event.names
    state.catalog_known = True
    sweeps.forget_topics(event, step)
    for group in list(state.groups.values()):
        KINDS[type(group)].topics_changed(group, step)


def on_rights(event: RightsAnew, step: Step) -> None:
    for group in list(step.state.groups.values()):
        KINDS[type(group)].rights_changed(group, event, step)


def on_planned(event: Planned, step: Step) -> None:
    if balance.take_balance_plan(event, step):
        return
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].planned(group, event, step)


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
            reloaded.take_lost_overrides(tombstone, step)
            continue
        kind.damaged(damaged, step)
        if isinstance(tombstone, OF_ONE_MEMBER):
            step.keep(tombstone)
    if event.lost_until > step.state.losses_mended:
        # Nobody can say whose they were.
        for group in list(step.state.groups.values()):
            KINDS[type(group)].damaged(group, step)
        step.keep(LossMended(event.lost_until))
    balance.load_balance(step)
    reloaded.load_overrides(step)
    canary.load_canaries(step)
    step.arm(("retention",), step.limits.offsets_retention_check_ms)
    # A topic may have been deleted while nobody listened, and made anew since.
    if step.state.catalog_known:
        sweeps.forget_orphan_slice(event, step)


def on_unload(event: Unload, step: Step) -> None:
    """The shard goes away: whoever is parked is answered, and no timer is set any more. Nothing hard changes."""
    for group in list(step.state.groups.values()):
        KINDS[type(group)].unload(group, step)
    for key in list(step.state.deadlines):
        step.disarm(key)
    session_streams.release_listeners(step)


HANDLERS: dict[type[Any], Callable[[Any, Step], None]] = {
    Heartbeat: on_heartbeat,
    OffsetCommit: offsets.commit_offsets,
    OffsetFetch: offsets.fetch_offsets,
    JoinGroup: on_join,
    SyncGroup: on_sync,
    LeaveGroup: on_leave,
    OffsetDelete: offsets.delete_offsets,
    TxnOffsetCommit: commits.allow_transactional_commit,
    TxnOffsetsWritten: commits.take_written,
    TxnWriteOver: commits.finish_write,
    TxnEnded: commits.take_transaction_end,
    DescribeGroup: describe.describe_group,
    ListGroups: describe.list_groups,
    DeleteGroup: on_delete,
    ExplainGroup: describe.explain_group,
    DescribeSettings: settings.describe_settings,
    ListSettings: settings.list_settings,
    AlterSettings: settings.alter_settings,
    ClaimFence: fence_claims.claim_fence,
    HoldGroup: verbs.hold_group,
    ResumeGroup: verbs.resume_group,
    DescribeHolds: verbs.describe_holds,
    Listen: on_listen,
    Hello: on_hello,
    SessionHeartbeat: on_session_heartbeat,
    StreamLost: session_streams.stream_lost,
    HeldBack: stall.take_held_back,
    TookOver: takeovers.note_takeover,
    CutFound: takeovers.note_cut,
    TurnedAway: stall.take_turned_away,
    ConsumerHeartbeat: on_consumer_heartbeat,
    DescribeConsumerGroup: describe.describe_consumer_group,
    RegisterConsumer: on_register,
    AwaitOrders: telling.await_orders,
    PingAnswered: liveness.ping_answered,
    FetcherStopped: liveness.fetcher_stopped,
    FetcherStarted: liveness.fetcher_started,
    Deregister: liveness.deregister,
    StreamClosed: liveness.stream_closed,
    GroupObserved: watching.take_observation,
    GroupUnseen: watching.take_unseen,
    Planned: on_planned,
    Shadowed: shadow.take_shadow_scores,
    StartCanary: canary.start_canary,
    EndCanary: canary.end_canary,
    DescribeCanary: canary.describe_canary,
    LagMeasured: canary.take_lag_sample,
    RegexResolved: on_regex,
    LoadMeasured: balance.take_measured,
    BalanceGoesOn: balance.continue_evaluation,
    Forget: on_forget,
    TimerFired: on_timer,
    StoodStill: stall.take_stall,
    TopicsChanged: on_topics,
    RightsAnew: on_rights,
    ExpireOffsets: sweeps.expire_slice,
    ForgetOffsets: sweeps.forget_slice,
    Loaded: on_loaded,
    Unload: on_unload,
}
