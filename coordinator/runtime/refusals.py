"""The answer to a request whose shard cannot take it: the right reply type, with a code and nothing else."""

from collections.abc import Mapping
from typing import TypeGuard

from coordinator.core import effects, events
from coordinator.core.central import events as central
from coordinator.core.effects import Reply
from coordinator.core.events import Event, Request
from coordinator.errors import ErrorCode

REPLY_TYPES: Mapping[type[Event], type[Reply]] = {
    events.JoinGroup: effects.JoinReply,
    events.SyncGroup: effects.SyncReply,
    events.Heartbeat: effects.HeartbeatReply,
    events.Listen: effects.PushReply,
    events.SessionHeartbeat: effects.PushReply,
    events.LeaveGroup: effects.LeaveReply,
    events.OffsetCommit: effects.OffsetCommitReply,
    events.OffsetFetch: effects.OffsetFetchReply,
    events.OffsetDelete: effects.OffsetDeleteReply,
    events.DescribeGroup: effects.DescribeReply,
    events.ListGroups: effects.ListReply,
    events.DeleteGroup: effects.DeleteReply,
    events.ExplainGroup: effects.ExplainReply,
    events.ConsumerHeartbeat: effects.ConsumerHeartbeatReply,
    events.DescribeConsumerGroup: effects.DescribeConsumerReply,
    central.RegisterConsumer: effects.CentralReply,
    central.AwaitOrders: effects.CentralReply,
    central.PingAnswered: effects.CentralReply,
    central.FetcherStopped: effects.CentralReply,
    central.FetcherStarted: effects.CentralReply,
    central.Deregister: effects.CentralReply,
}
"""Every request and how it is answered; an event that is not in here is not a request."""


def is_request(event: Event) -> TypeGuard[Request]:
    return type(event) in REPLY_TYPES


def refusal(kind: type[Event], code: ErrorCode) -> Reply:
    return REPLY_TYPES[kind](code=code, message=code.meaning)


def while_loading(kind: type[Event]) -> Reply:
    """The answer of a shard that is not yet replayed.

    A heartbeat is answered as if all were well: a failover must not send members into a rejoin.
    """
    if kind is events.Heartbeat:
        return effects.HeartbeatReply()
    return refusal(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
