"""What goes on in a group at an operator's word (balance, canary, fences), as part of its description. Pure."""

from muster.coordinator.core.model import effects
from muster.coordinator.core.model.controls import NO_CONTROLS, BalanceView, Controls
from muster.coordinator.core.model.fences_records import FenceStored
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.server.services import answers, trial


def build_controlled_group(group_id: str, reply: effects.DescribeReply) -> group_pb.DescribedGroup:
    """The group, and what goes on in it."""
    group = answers.build_described_group(group_id, reply)
    found = reply.controls
    if found is NO_CONTROLS:
        return group
    for name, part in (
        ("canary", None if found.canary is None else trial.build_canary(found.canary)),
        ("balance", build_balance(found.balance)),
        ("fences", build_fences(found)),
    ):
        if part is not None:
            getattr(group, name).CopyFrom(part)
    return group


def build_balance(found: BalanceView | None) -> pb.GroupBalance | None:
    if found is None:
        return None
    return pb.GroupBalance(
        mode=found.mode,
        idle=found.idle,
        heaviest=found.heaviest,
        ratio=found.ratio,
        paid=found.paid,
        rounds=found.rounds,
        resting=found.resting,
    )


def build_fences(found: Controls) -> pb.GroupFences | None:
    if not found.fences:
        return None
    return pb.GroupFences(count=found.fences, newest=[build_fence(each) for each in found.newest_fences])


def build_fence(found: FenceStored) -> pb.GroupFence:
    return pb.GroupFence(
        topic=found.topic,
        partition=found.partition,
        member_id=found.member_id,
        generation=found.generation,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        claimed_at_ms=found.claimed_at_ms,
    )
