"""What goes on in a group at an operator's word, as values of the admin client."""

from dataclasses import astuple

from muster.client.described import Canary, CanaryGuardStatus, GroupBalance, GroupControls, GroupFence
from muster.coordinator.observability.views.controls import seen_controls
from muster.coordinator.observability.views.trials import STATES
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb


def read_controls(group: group_pb.DescribedGroup) -> GroupControls:
    seen = seen_controls(group)
    return GroupControls(
        read_canary(group.canary) if group.HasField("canary") else None,
        None if seen.balance is None else GroupBalance(*astuple(seen.balance)),
        seen.fences,
        tuple(GroupFence(*astuple(each)) for each in seen.newest_fences),
    )


def read_canary(canary: pb.Canary) -> Canary:
    return Canary(
        state=STATES[canary.state],
        assignor=canary.assignor,
        former=canary.former,
        operator=canary.operator,
        began_at_ms=canary.began_at_ms,
        until_ms=canary.until_ms,
        promotes=canary.promotes,
        guards=tuple(
            CanaryGuardStatus(
                each.guard,
                each.idle,
                each.baseline if each.HasField("baseline") else None,
                each.figure if each.HasField("figure") else None,
            )
            for each in canary.guards
        ),
        lag_floor=canary.lag_floor,
        rebalances=canary.rebalances,
        ended=canary.ended,
    )
