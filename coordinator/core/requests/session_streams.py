"""Session streams (pushed membership): which members listen, and what is pushed to them. Nothing is decided here.

A member with a session stream parks one `Listen`. Whenever its group has changed, the coordinator gives itself the
heartbeat that the member would send at its next poll; if the answer says something new, it answers the `Listen`. So a
pushed member receives what a polled one receives, only sooner, and one that has not acknowledged receives nothing
more.
"""

from collections.abc import Callable
from typing import TypeAlias

from muster.coordinator.core.groups.kind import HeartbeatOutlook
from muster.coordinator.core.groups.member_causes import explain_later
from muster.coordinator.core.groups.member_history import NO_CONNECTION
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply, HeartbeatReply, HelloReply, PushReply
from muster.coordinator.core.model.events import (
    ConnectionClosed,
    ConsumerHeartbeat,
    Heartbeat,
    Hello,
    Listen,
    SessionHeartbeat,
    StreamLost,
)
from muster.coordinator.core.model.records import (
    FenceForgotten,
    FenceStored,
    LossMended,
    NumbersPassed,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    Record,
    ShadowsForgotten,
    StallForgotten,
    StallRecorded,
    TakeoverForgotten,
    TakeoverRecorded,
    TxnMarked,
    TxnOffsetsStored,
)
from muster.coordinator.core.model.types import HEARTBEATS_IN_SESSION, RequestId
from muster.coordinator.errors import CoordinatorError, ErrorCode

Hear: TypeAlias = Callable[[Heartbeat | ConsumerHeartbeat, Step], None]
"""What handles a heartbeat."""

SILENT = (
    *(OffsetsStored, OffsetStored, OffsetDeleted),
    *(RebalanceDecided, RebalanceSettled, RebalanceShadowed, ShadowsForgotten, RebalanceForgotten),
    *(StallRecorded, StallForgotten, TakeoverRecorded, TakeoverForgotten, NumbersPassed, LossMended),
    *(FenceStored, FenceForgotten),
    *(TxnOffsetsStored, TxnMarked),
)
"""Facts that no heartbeat speaks of."""


def park_listener(event: Listen, hear: Hear, step: Step) -> None:
    """Answer at once if there is something to say; otherwise park it in place of an earlier one."""
    listeners = step.state.listeners.setdefault(event.group_id, {})
    if (earlier := listeners.pop(event.member_id, None)) is not None:
        step.reply(earlier.request_id, PushReply())
    listeners[event.member_id] = event
    step.state.parked[event.request_id] = event.member_id
    push_if_news(event, hear, step)


def welcome_member(event: Hello, step: Step) -> None:
    """A pushed member's heartbeats say no more than that it lives: three in a session, as many as a session is for."""
    group = step.state.groups.get(event.group_id)
    KINDS[type(group)].stream_opened(group, event.member_id, event.connection)
    session_ms = KINDS[type(group)].session_ms(group, event.member_id, step)
    step.reply(event.request_id, HelloReply(heartbeat_interval_ms=session_ms // HEARTBEATS_IN_SESSION))


def session_heartbeat(event: SessionHeartbeat, hear: Hear, step: Step) -> None:
    """A heartbeat from the stream; one that crossed a push is left aside, for the acknowledgement follows at once.

    All that it says then is that its sender lives.
    """
    inner = event.heartbeat
    listeners = step.state.listeners.get(inner.group_id, {})
    listener = listeners.get(inner.member_id)
    if event.listening is not None and (listener is None or listener.request_id != event.listening):
        step.reply(event.request_id, PushReply(crossed=True))
        group = step.state.groups.get(inner.group_id)
        KINDS[type(group)].lives(group, inner, step)
        return
    if listener is not None:
        step.reply(listener.request_id, PushReply())
        drop_listener(listener, step)
    told = Step(step.state, step.now_ms, pushed=True)
    try:
        hear(inner, told)
    except CoordinatorError as refusal:
        step.reply(event.request_id, PushReply(refusal.code, refusal.message))
        return
    merge_step(told, inner.request_id, step)
    for request_id, reply in told.out.replies:
        if request_id == inner.request_id and isinstance(reply, ConsumerHeartbeatReply):
            step.reply(event.request_id, PushReply(reply.code, reply.message, reply))


def stream_lost(event: StreamLost, step: Step) -> None:
    """Suspect, not dead: the session timer decides, at the latest after the grace. A process that dies breaks it."""
    if event.connection != NO_CONNECTION:
        group = step.state.groups.get(event.group_id)
        KINDS[type(group)].connection_closed(group, ConnectionClosed(event.group_id, event.connection), step)
    key = ("session", event.group_id, event.member_id)
    deadline_ms = step.state.deadlines.get(key)
    if deadline_ms is not None and step.now_ms + event.grace_ms < deadline_ms:
        step.arm(key, event.grace_ms)


def tell_listeners(hear: Hear, step: Step) -> None:
    """After a step: answer everyone whose next heartbeat would now be answered with something new.

    Speaking for one member may change the group for another (a partition comes free), so it goes on until nothing
    changes any more; each member is answered once at most.
    """
    state, out = step.state, step.out
    if not state.listeners:
        return
    seen = 0
    stirred = {notice.group_id for notice in out.notices}
    while state.listeners:
        stirred |= {group_of(record) for record in out.records[seen:]}
        seen = len(out.records)
        parked = [
            listener for group_id in sorted(stirred) for listener in list(state.listeners.get(group_id, {}).values())
        ]
        if not parked:
            return
        stirred = set()
        for listener in parked:
            push_if_news(listener, hear, step)


def group_of(record: Record) -> str:
    """The group whose members may have something to hear; empty when nobody has."""
    return "" if isinstance(record, SILENT) else record.group_id


def push_if_news(listener: Listen, hear: Hear, step: Step) -> None:
    """Ask on the member's behalf; say what is new."""
    if step.state.listeners.get(listener.group_id, {}).get(listener.member_id) is not listener:
        return  # it has been told meanwhile
    group = step.state.groups.get(listener.group_id)
    match KINDS[type(group)].outlook(group, listener):
        case HeartbeatOutlook.NOTHING_NEW:
            return
        case HeartbeatOutlook.MOVED_ON:
            # It has heard of the new epoch by a call of its own; from there it has to listen anew.
            drop_listener(listener, step)
            step.reply(listener.request_id, PushReply())
            return
    asked = Step(step.state, step.now_ms, on_behalf=True)
    try:
        hear(polled_heartbeat(listener), asked)
    except CoordinatorError as refusal:
        drop_listener(listener, step)
        if refusal.code is ErrorCode.FENCED_INSTANCE_ID:
            explain_later(listener, step)
        step.reply(listener.request_id, PushReply(refusal.code, refusal.message))
        return
    merge_step(asked, listener.request_id, step)
    for request_id, reply in asked.out.replies:
        if request_id == listener.request_id and (word := push_reply(listener, reply)) is not None:
            drop_listener(listener, step)
            step.reply(listener.request_id, word)
            return
    step.state.parked[listener.request_id] = listener.member_id  # what was said on its behalf was no answer to it


def polled_heartbeat(listener: Listen) -> Heartbeat | ConsumerHeartbeat:
    if listener.consumer:
        return ConsumerHeartbeat(
            listener.request_id,
            listener.group_id,
            listener.member_id,
            listener.generation,
            listener.group_instance_id,
        )
    return Heartbeat(
        listener.request_id,
        listener.group_id,
        listener.member_id,
        listener.group_instance_id,
        listener.generation,
    )


def push_reply(listener: Listen, reply: object) -> PushReply | None:
    match reply:
        case ConsumerHeartbeatReply():
            moved = reply.member_epoch != listener.generation or reply.assignment is not None
            return PushReply(reply.code, reply.message, reply) if reply.code or moved or reply.heirs_ready else None
        case HeartbeatReply():
            if not reply.code:
                return None
            return PushReply(reply.code, reply.message, cause=reply.cause, cause_detail=reply.cause_detail)
        case _:
            raise AssertionError(f"a heartbeat was answered by {type(reply).__name__}")


def merge_step(asked: Step, request_id: RequestId, step: Step) -> None:
    """What the heartbeat of a member did becomes part of the step, but for its answer."""
    step.out.records += asked.out.records
    step.out.timers |= asked.out.timers
    step.out.notices += asked.out.notices
    step.out.plans += asked.out.plans
    step.incidents += asked.incidents
    step.out.regexes += asked.out.regexes
    step.out.replies += [(asker, reply) for asker, reply in asked.out.replies if asker != request_id]


def drop_listener(listener: Listen, step: Step) -> None:
    listeners = step.state.listeners[listener.group_id]
    if listeners.get(listener.member_id) is listener:
        del listeners[listener.member_id]
    if not listeners:
        del step.state.listeners[listener.group_id]


def forget_listener(group_id: str, member_id: str, request_id: RequestId, step: Step) -> None:
    """The stream that listened is gone."""
    listener = step.state.listeners.get(group_id, {}).get(member_id)
    if listener is not None and listener.request_id == request_id:
        drop_listener(listener, step)


def release_listeners(step: Step) -> None:
    for listeners in step.state.listeners.values():
        for listener in listeners.values():
            step.reply(listener.request_id, PushReply(ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR.meaning))
    step.state.listeners.clear()
