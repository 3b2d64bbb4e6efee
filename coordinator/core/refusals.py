"""Every request and how it is answered; a refusal is an answer of the same kind with a code."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core import effects, events
from muster.coordinator.core.central import events as central
from muster.coordinator.core.control import events as control
from muster.coordinator.core.control.fences.events import ClaimFence
from muster.coordinator.core.control.trial import events as trial
from muster.coordinator.core.control.trial.replies import CanaryReply
from muster.coordinator.core.effects import DescribeReply, Effects, JoinReply, Reply
from muster.coordinator.core.events import DescribeGroup, Event, JoinGroup, Request
from muster.coordinator.core.txn.events import TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.txn.replies import TxnOffsetCommitReply, TxnWriteOverReply
from muster.coordinator.errors import CoordinatorError, ErrorCode

REPLY_TYPES: Mapping[type[Event], type[Reply]] = {
    events.JoinGroup: effects.JoinReply,
    events.SyncGroup: effects.SyncReply,
    events.Heartbeat: effects.HeartbeatReply,
    events.Listen: effects.PushReply,
    events.Hello: effects.HelloReply,
    events.SessionHeartbeat: effects.PushReply,
    events.LeaveGroup: effects.LeaveReply,
    events.OffsetCommit: effects.OffsetCommitReply,
    events.OffsetFetch: effects.OffsetFetchReply,
    events.OffsetDelete: effects.OffsetDeleteReply,
    TxnOffsetCommit: TxnOffsetCommitReply,
    TxnWriteOver: TxnWriteOverReply,
    events.DescribeGroup: effects.DescribeReply,
    events.ListGroups: effects.ListReply,
    events.DeleteGroup: effects.DeleteReply,
    events.ExplainGroup: effects.ExplainReply,
    events.DescribeSettings: effects.SettingsReply,
    events.ListSettings: effects.ListSettingsReply,
    events.AlterSettings: effects.SettingsReply,
    ClaimFence: effects.ClaimFenceReply,
    control.HoldGroup: effects.HoldsReply,
    control.ResumeGroup: effects.HoldsReply,
    control.DescribeHolds: effects.HoldsReply,
    trial.StartCanary: CanaryReply,
    trial.EndCanary: CanaryReply,
    trial.DescribeCanary: CanaryReply,
    events.ConsumerHeartbeat: effects.ConsumerHeartbeatReply,
    events.DescribeConsumerGroup: effects.DescribeConsumerReply,
    central.RegisterConsumer: effects.CentralReply,
    central.AwaitOrders: effects.CentralReply,
    central.PingAnswered: effects.CentralReply,
    central.FetcherStopped: effects.CentralReply,
    central.FetcherStarted: effects.CentralReply,
    central.Deregister: effects.CentralReply,
}
"""An event that is not in here is not a request."""


def add_refusal(request: Any, refusal: CoordinatorError) -> Effects:
    out = Effects()
    out.reply(request.request_id, refusal_reply(request, refusal.code, refusal.message))
    return out


def refusal_reply(request: Request, code: ErrorCode, message: str) -> Reply:
    """The reply of the right kind that says no."""
    if isinstance(request, JoinGroup):
        return JoinReply(code, message, member_id=request.member_id)
    if isinstance(request, DescribeGroup):
        return DescribeReply(code, message, group_id=request.group_id)
    return REPLY_TYPES[type(request)](code=code, message=message)
