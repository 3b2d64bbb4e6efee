"""Every request and how it is answered; a refusal is an answer of the same kind with a code."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.model import control_events as control
from muster.coordinator.core.model import core_events, effects
from muster.coordinator.core.model import events as central
from muster.coordinator.core.model import trial_events as trial
from muster.coordinator.core.model.core_events import DescribeGroup, Event, JoinGroup, Request
from muster.coordinator.core.model.effects import DescribeReply, Effects, JoinReply, Reply
from muster.coordinator.core.model.fences_events import ClaimFence
from muster.coordinator.core.model.replies import CanaryReply
from muster.coordinator.core.model.txn_events import TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.model.txn_replies import TxnOffsetCommitReply, TxnWriteOverReply
from muster.coordinator.errors import CoordinatorError, ErrorCode

REPLY_TYPES: Mapping[type[Event], type[Reply]] = {
    core_events.JoinGroup: effects.JoinReply,
    core_events.SyncGroup: effects.SyncReply,
    core_events.Heartbeat: effects.HeartbeatReply,
    core_events.Listen: effects.PushReply,
    core_events.Hello: effects.HelloReply,
    core_events.SessionHeartbeat: effects.PushReply,
    core_events.LeaveGroup: effects.LeaveReply,
    core_events.OffsetCommit: effects.OffsetCommitReply,
    core_events.OffsetFetch: effects.OffsetFetchReply,
    core_events.OffsetDelete: effects.OffsetDeleteReply,
    TxnOffsetCommit: TxnOffsetCommitReply,
    TxnWriteOver: TxnWriteOverReply,
    core_events.DescribeGroup: effects.DescribeReply,
    core_events.ListGroups: effects.ListReply,
    core_events.DeleteGroup: effects.DeleteReply,
    core_events.ExplainGroup: effects.ExplainReply,
    core_events.DescribeSettings: effects.SettingsReply,
    core_events.ListSettings: effects.ListSettingsReply,
    core_events.AlterSettings: effects.SettingsReply,
    ClaimFence: effects.ClaimFenceReply,
    control.HoldGroup: effects.HoldsReply,
    control.ResumeGroup: effects.HoldsReply,
    control.DescribeHolds: effects.HoldsReply,
    trial.StartCanary: CanaryReply,
    trial.EndCanary: CanaryReply,
    trial.DescribeCanary: CanaryReply,
    core_events.ConsumerHeartbeat: effects.ConsumerHeartbeatReply,
    core_events.DescribeConsumerGroup: effects.DescribeConsumerReply,
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
