"""Who handles an event: the table, and for a group of which kind, and what happens when its kind changes."""

from collections.abc import Callable
from typing import Any

from coordinator.core import describe, group_settings, offsets, push, stall
from coordinator.core.central import lifecycle as central
from coordinator.core.central import liveness as central_liveness
from coordinator.core.central import rebalance as central_rebalance
from coordinator.core.central import registration, telling
from coordinator.core.central import topics as central_topics
from coordinator.core.central.events import (
    AwaitOrders,
    Deregister,
    FetcherStarted,
    FetcherStopped,
    PingAnswered,
    RegisterConsumer,
    StreamClosed,
)
from coordinator.core.central.group import CentralGroup
from coordinator.core.classic import join, leave, lifecycle, liveness, rebalance, remote, remote_again, sync
from coordinator.core.classic.checks import group_id_given
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.consumer import classic_members, cleanup, leaving, regex, target, views
from coordinator.core.consumer import heartbeat as consumer_heartbeat
from coordinator.core.consumer import lifecycle as consumer_lifecycle
from coordinator.core.consumer.cleanup import forget_group
from coordinator.core.consumer.group import FIRST_EPOCH
from coordinator.core.consumer.records import GroupEpochStored, TargetEpochStored
from coordinator.core.events import (
    AlterSettings,
    ConsumerHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeSettings,
    ExplainGroup,
    Forget,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Listen,
    ListGroups,
    Loaded,
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
    Unload,
)
from coordinator.core.observed import views as observed_views
from coordinator.core.observed import watching
from coordinator.core.observed.events import GroupObserved, GroupUnseen
from coordinator.core.records import GroupStored
from coordinator.core.state import Step
from coordinator.core.types import TimerKey
from coordinator.errors import CoordinatorError, ErrorCode


def known_group(group_id: str, step: Step) -> ClassicGroup:
    group_id_given(group_id)
    group = step.state.groups.get(group_id)
    if group_id in step.state.central_groups:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} is a central group, whose members speak by their streams"
        )
    if group is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}; join with an empty member id"
        )
    return group


def on_join(event: JoinGroup, step: Step) -> None:
    join.acceptable(event, step.limits)
    if (central_group := step.state.central_groups.get(event.group_id)) is not None:
        join_after_central(central_group, event, step)
        return
    group = step.state.consumer_groups.get(event.group_id)
    if group is None:
        join.join_group(event, step)
        return
    if group.members:
        classic_members.join_group(group, event, step)
    else:
        # Nobody is left who would mind: the next generation continues where the epochs ended.
        join.may_open(ClassicGroup(group.id), event)
        forget_group(group, step)
        step.keep(GroupStored(group.id, "", group.epoch, None, None, step.now_ms, ()))
        step.state.groups[group.id].generation = group.epoch
        join.join_group(event, step)


def join_after_central(group: CentralGroup, event: JoinGroup, step: Step) -> None:
    """A central group that everybody has left becomes a classic one; its generations go on."""
    join.may_open(ClassicGroup(group.id), event)
    generation = central.make_room(group, "classic", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, step)
    step.keep(GroupStored(group.id, "", generation, None, None, step.now_ms, ()))
    step.state.groups[group.id].generation = generation
    join.join_group(event, step)


def on_consumer_heartbeat(event: ConsumerHeartbeat, step: Step) -> None:
    if (central_group := step.state.central_groups.get(event.group_id)) is not None:
        consumer_heartbeat.may_open(event, step.limits)
        generation = central.make_room(central_group, "consumer", ErrorCode.GROUP_ID_NOT_FOUND, step)
        epoch = max(generation, FIRST_EPOCH)
        step.keep(GroupEpochStored(event.group_id, epoch))
        step.keep(TargetEpochStored(event.group_id, epoch, 0))
    consumer_heartbeat.consumer_heartbeat(event, step)


def on_leave(event: LeaveGroup, step: Step) -> None:
    if observed_views.prevailing(event.group_id, step.state):
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"the members of {event.group_id!r} meet in ZooKeeper and cannot be removed from here; stop them, or "
            "delete their znodes in /consumers/[group]/ids",
        )
    if central_group := step.state.central_groups.get(event.group_id):
        central.leave_group(central_group, event, step)
    elif group := step.state.consumer_groups.get(event.group_id):
        leaving.leave_group(group, event, step)
    else:
        leave.leave_group(event, step)


def on_delete(event: DeleteGroup, step: Step) -> None:
    if observed_group := observed_views.prevailing(event.group_id, step.state):
        observed_views.delete_group(observed_group, event, step)
    elif central_group := step.state.central_groups.get(event.group_id):
        central.delete_group(central_group, event, step)
    elif group := step.state.consumer_groups.get(event.group_id):
        cleanup.delete_group(group, event, step)
    else:
        lifecycle.delete_group(event, step)


def on_heartbeat(event: Heartbeat, step: Step) -> None:
    if group := step.state.consumer_groups.get(event.group_id):
        classic_members.heartbeat(group, event, step)
        return
    liveness.heartbeat(known_group(event.group_id, step), event, step)


def hear(event: Heartbeat | ConsumerHeartbeat, step: Step) -> None:
    HANDLERS[type(event)](event, step)


def on_listen(event: Listen, step: Step) -> None:
    push.listen(event, hear, step)


def on_session_heartbeat(event: SessionHeartbeat, step: Step) -> None:
    push.session_heartbeat(event, hear, step)


def on_sync(event: SyncGroup, step: Step) -> None:
    if group := step.state.consumer_groups.get(event.group_id):
        classic_members.sync_group(group, event, step)
        return
    sync.sync_group(known_group(event.group_id, step), event, step)


def on_forget(event: Forget, step: Step) -> None:
    """Its client is gone. The member lives on until its session ends: one that had joined still counts as joined."""
    member_id = step.state.parked.pop(event.request_id, None)
    if member_id is None:
        return
    push.forget(event.group_id, member_id, event.request_id, step)
    central.forget(event.group_id, member_id, event.request_id, step)
    group = step.state.groups.get(event.group_id)
    member = group.members.get(member_id) if group is not None else None
    if group is not None and member is not None and member.sync_request == event.request_id:
        member.sync_request = None
        liveness.watch_again(group, member, step)


def on_timer(event: TimerFired, step: Step) -> None:
    if step.state.deadlines.get(event.key) != event.deadline_ms:
        return
    del step.state.deadlines[event.key]
    if event.key == ("retention",):
        offsets.expire(step)
        return
    observed_group = step.state.observed.get(event.key[1])
    if observed_group is not None and event.key == observed_group.timer:
        watching.quiet(observed_group, step)
        return
    central_group = step.state.central_groups.get(event.key[1])
    if central_group is not None:
        central.timer_fired(central_group, event.key, step)
        return
    consumer_group = step.state.consumer_groups.get(event.key[1])
    if consumer_group is not None:
        consumer_lifecycle.timer_fired(consumer_group, event.key, step)
        return
    group = step.state.groups.get(event.key[1])
    if group is not None:
        group_timer(group, event.key, step)


def group_timer(group: ClassicGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("join", _):
            rebalance.join_timer_fired(group, step)
        case ("assign", _):
            remote_again.retry(group, step)
        case ("sync", _):
            sync.sync_timer_fired(group, step)
        case ("session", _, member_id):
            liveness.session_expired(group, member_id, step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def on_topics(event: TopicsChanged, step: Step) -> None:
    state = step.state
    if event.ids.keys() - state.topic_ids.keys():
        state.topics_version = step.tick()
    last_words = {topic_id: name for topic_id, name in state.topic_names.items() if name in event.deleted}
    state.partitions, state.topic_ids = event.partitions, event.ids
    state.topic_names = {**last_words, **{topic_id: name for name, topic_id in event.ids.items()}}
    state.catalog_known = True
    if event.deleted:
        offsets.forget_topics(event.deleted, step)
    target.topics_changed(step)
    remote_again.topics_changed(step)
    central_topics.changed(step)


def on_planned(event: Planned, step: Step) -> None:
    if event.group_id in step.state.central_groups:
        central_rebalance.planned(event, step)
    elif event.group_id in step.state.consumer_groups:
        target.planned(event, step)
    else:
        remote.planned(event, step)


def on_regex(event: RegexResolved, step: Step) -> None:
    if event.group_id in step.state.central_groups:
        central_topics.resolved(event, step)
    else:
        regex.resolved(event, step)


def on_loaded(event: Loaded, step: Step) -> None:
    step.state.loaded_at_ms = step.now_ms
    lifecycle.load(step)
    consumer_lifecycle.load(step)
    central.load(step)
    # A topic may have been deleted while nobody listened, and made anew since.
    if step.state.catalog_known:
        offsets.forget_orphans(step)


def on_unload(event: Unload, step: Step) -> None:
    lifecycle.unload(step)
    push.unload(step)
    central.unload(step)


HANDLERS: dict[type[Any], Callable[[Any, Step], None]] = {
    Heartbeat: on_heartbeat,
    OffsetCommit: offsets.commit_offsets,
    OffsetFetch: offsets.fetch_offsets,
    JoinGroup: on_join,
    SyncGroup: on_sync,
    LeaveGroup: on_leave,
    OffsetDelete: offsets.delete_offsets,
    DescribeGroup: describe.describe_group,
    ListGroups: describe.list_groups,
    DeleteGroup: on_delete,
    ExplainGroup: describe.explain_group,
    DescribeSettings: group_settings.describe_settings,
    AlterSettings: group_settings.alter_settings,
    Listen: on_listen,
    SessionHeartbeat: on_session_heartbeat,
    StreamLost: push.stream_lost,
    ConsumerHeartbeat: on_consumer_heartbeat,
    DescribeConsumerGroup: views.describe_consumer_group,
    RegisterConsumer: registration.register_consumer,
    AwaitOrders: telling.await_orders,
    PingAnswered: central_liveness.ping_answered,
    FetcherStopped: central_liveness.fetcher_stopped,
    FetcherStarted: central_liveness.fetcher_started,
    Deregister: central_liveness.deregister,
    StreamClosed: central_liveness.stream_closed,
    GroupObserved: watching.observe,
    GroupUnseen: watching.unseen,
    Planned: on_planned,
    RegexResolved: on_regex,
    Forget: on_forget,
    TimerFired: on_timer,
    StoodStill: stall.stood_still,
    TopicsChanged: on_topics,
    Loaded: on_loaded,
    Unload: on_unload,
}
