"""Which answers may be released, and when: an answer waits until everything that was decided before it is durable.

`refusal_of` gives the reply of the right type to a request whose shard cannot take it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeGuard

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.effects import (
    REPLY_TYPES,
    GroupChanged,
    MeasureLoad,
    OffsetCommitReply,
    Reply,
    ResolveRegex,
)
from muster.coordinator.core.model.events import ConsumerHeartbeat, Event, JoinGroup, OffsetCommit, Request
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.model.types import RequestId
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.node_status import FENCING, Metrics
from muster.coordinator.runtime.shards import HeldAnswers, Notices, Replies, ShardSlot, ShardStatus

# Refusals
# --------


def is_request(event: Event) -> TypeGuard[Request]:
    return type(event) in REPLY_TYPES


def refusal_of(kind: type[Event], code: ErrorCode, why: str = "") -> Reply:
    return REPLY_TYPES[kind](code=code, message=why or code.meaning)


def refusal_while_loading(kind: type[Event]) -> Reply:
    """The answer of a shard that is not yet replayed.

    A heartbeat is answered as if all were well: a failover must not send members into a rejoin.
    """
    if kind is events.Heartbeat:
        return effects.HeartbeatReply()
    return refusal_of(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


BY_INSTANCE = (JoinGroup, ConsumerHeartbeat)
"""Requests by which an instance id may change hands. A tuple: a union would be made anew for each answer."""


@dataclass(frozen=True, slots=True)
class ShardWork:
    """Something a shard wants computed off the loop; its answer goes back with `Engine.answer_work`."""

    shard: int
    life: int
    request: PlanRequest | ResolveRegex | ShadowRequest


@dataclass(frozen=True, slots=True)
class LoadMeasurementWork:
    """A measurement that a shard wants taken; what comes of it goes back with `Engine.answer_work`, in pieces."""

    shard: int
    life: int
    request: MeasureLoad


@dataclass(slots=True)
class ReleasedAnswers:
    """What may be told now, in the order it was decided, and what is to be computed meanwhile."""

    replies: list[tuple[RequestId, Reply]] = field(default_factory=list)
    notices: list[GroupChanged] = field(default_factory=list)
    work: list[ShardWork] = field(default_factory=list)
    loads: list[LoadMeasurementWork] = field(default_factory=list)


class Answers:
    """Keeps what may be told until the driver takes it. What may not be told yet is kept by its slot."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._released = ReleasedAnswers()

    def take_released(self) -> ReleasedAnswers:
        released, self._released = self._released, ReleasedAnswers()
        return released

    def request_work(self, slot: ShardSlot, request: PlanRequest | ResolveRegex | ShadowRequest) -> None:
        """Have something computed for a shard. It is no fact yet, so it waits for nothing."""
        self._released.work.append(ShardWork(slot.index, slot.life, request))

    def measure(self, slot: ShardSlot, request: MeasureLoad) -> None:
        """Have the load of one of its groups measured."""
        self._released.loads.append(LoadMeasurementWork(slot.index, slot.life, request))

    def answer(self, kind: type[Event], request_id: RequestId, reply: Reply) -> None:
        self._metrics.requests[kind.__name__, reply.code] += 1
        self._released.replies.append((request_id, reply))

    def refuse(self, slot: ShardSlot, request_ids: Iterable[RequestId], why: str = "") -> None:
        for request_id in request_ids:
            kind = type(slot.unanswered.pop(request_id))
            self.answer(kind, request_id, refusal_of(kind, ErrorCode.NOT_COORDINATOR, why))

    def deliver_answers(self, slot: ShardSlot, replies: Replies, notices: Notices) -> None:
        """Release at once what rests on durable facts only; hold the rest."""
        position = slot.position
        if position <= slot.durable:
            self.release(slot, replies, notices)
        else:
            slot.held.append(HeldAnswers(position, replies, notices))
            self._metrics.held += len(replies)

    def reached(self, slot: ShardSlot, position: int) -> None:
        """The shard's first `position` appends are durable: tell what rests on them."""
        slot.durable = max(slot.durable, position)
        while slot.held and slot.held[0].position <= slot.durable:
            held = slot.held.popleft()
            self._metrics.held -= len(held.replies)
            self.release(slot, held.replies, held.notices)

    def forget_held(self, slot: ShardSlot) -> None:
        """What was held back will never be durable."""
        self._metrics.held -= sum(len(held.replies) for held in slot.held)
        slot.held.clear()

    def release(self, slot: ShardSlot, replies: Replies, notices: Notices) -> None:
        anybody_refused = self._metrics.refused_commits
        for request_id, reply in replies:
            request = slot.unanswered.pop(request_id, None)
            if request is not None:  # None: its client is gone
                self.answer(type(request), request_id, reply)
                if reply.code in FENCING and knows_member(slot, group_id := getattr(request, "group_id", "")):
                    self._metrics.fence(group_id, reply.code)
                if isinstance(request, BY_INSTANCE) and request.group_instance_id:
                    self._metrics.instance_answered(request, reply)
                if isinstance(reply, OffsetCommitReply) and (reply.code or reply.partitions or anybody_refused):
                    assert isinstance(request, OffsetCommit), "this is what is answered to commits"
                    if knows_member(slot, request.group_id, request.member_id):
                        self._metrics.commit_answered(request, reply)
        self._released.notices += notices


def knows_member(slot: ShardSlot, group_id: str, member_id: str | None = None) -> bool:
    """Strangers invent names: what is counted by name is counted of those who are there."""
    return slot.core is not None and slot.core.knows(group_id, member_id)


def loading_excuse(slot: ShardSlot, kind: type[Event]) -> Reply:
    """The answer of a shard that is not active."""
    if slot.status is ShardStatus.LOADING:
        return refusal_while_loading(kind)
    return refusal_of(kind, ErrorCode.NOT_COORDINATOR, slot.why if slot.status is ShardStatus.FAILED else "")
