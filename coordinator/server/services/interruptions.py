"""When nobody answered for a group: its node stood still, or another one became its coordinator."""

from muster.coordinator.core.model.types import Stall, Takeover
from muster.coordinator.rpc.v1 import ledger_pb2


def build_stall(stall: Stall) -> ledger_pb2.NodeStall:
    return ledger_pb2.NodeStall(ended_at_ms=stall.ended_at_ms, stalled_ms=stall.stalled_ms)


def build_coordinator_move(takeover: Takeover) -> ledger_pb2.CoordinatorMove:
    return ledger_pb2.CoordinatorMove(
        from_node=takeover.moved_from,
        to_node=takeover.moved_to,
        cause=takeover.cause,
        last_heard_ms=takeover.last_heard_ms,
        elected_ms=takeover.elected_ms,
        serving_ms=takeover.serving_ms,
        groups=takeover.groups,
        members=takeover.members,
        cut=takeover.cut,
    )
