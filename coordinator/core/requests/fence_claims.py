"""Claims of fences: which member may write on behalf of a partition, under which producer id and epoch (KIP-98).

Each claim that is taken is a new ownership: the next epoch of the fence's producer id. The log refuses writes with an
epoch below one that it has seen, so a former owner has written its last once the new epoch is in the log. Times are
not compared, and generations only between claims of one member, or where the group's shares cannot be read: an epoch
of a producer id never falls, a generation may, when a group is created again.
"""

from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import ClaimFenceReply
from muster.coordinator.core.model.events import NO_PRODUCER, ClaimFence
from muster.coordinator.core.model.records import FenceStored
from muster.coordinator.errors import CoordinatorError, ErrorCode

LAST_EPOCH = 32_766
"""The last that an ownership may have; the one behind it says that a producer id is used up."""

MAX_FENCES = 100_000
"""Of one group: each is kept for as long as its group."""


def claim_fence(request: ClaimFence, step: Step) -> None:
    """The partition's owner gets an ownership above all before it; anybody else is refused."""
    group_id_given(request.group_id)
    if not request.topic or request.partition < 0:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, "a fence needs the name of a topic, and a partition of 0 or more"
        )
    group = step.state.groups.get(request.group_id)
    owns = KINDS[type(group)].owns(group, request, step)
    fences = step.state.fences.get(request.group_id, {})
    before = fences.get((request.topic, request.partition))
    if owns is False or (before is not None and is_claim_outdated(request, before, owns)):
        raise refuse_fenced(request)
    if before is None and len(fences) >= MAX_FENCES:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION, f"group {request.group_id!r} has {len(fences)} fences, as many as may be"
        )
    if before is not None and (request.producer_id, request.epoch) == (before.producer_id, before.epoch):
        granted = before  # it claims for another log
    elif request.producer_id != NO_PRODUCER:
        raise refuse_fenced(request)
    else:
        granted = next_ownership(request, before, step.now_ms)
        step.keep(granted)
    step.reply(
        request.request_id,
        ClaimFenceReply(producer_id=granted.producer_id, epoch=granted.epoch, former=granted.former),
    )


def is_claim_outdated(request: ClaimFence, before: FenceStored, owns: bool | None) -> bool:
    """The claim is of an ownership before the newest one. A member that owned the partition twice may come with its
    older token; where nobody can tell who owns it, the generations have to.
    """
    comparable = owns is None or request.member_id == before.member_id
    return comparable and request.generation < before.generation


def next_ownership(request: ClaimFence, before: FenceStored | None, now_ms: int) -> FenceStored:
    """The next ownership: an epoch more, or a fresh producer id where none is left."""
    former: tuple[int, ...]
    if before is None:
        producer_id, epoch, former = request.fresh_id, 0, ()
    elif before.epoch < LAST_EPOCH:
        producer_id, epoch, former = before.producer_id, before.epoch + 1, before.former
    else:
        producer_id, epoch, former = request.fresh_id, 0, (*before.former, before.producer_id)
    return FenceStored(
        request.group_id,
        request.topic,
        request.partition,
        producer_id,
        epoch,
        former,
        request.member_id,
        request.generation,
        now_ms,
    )


def refuse_fenced(request: ClaimFence) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"member {request.member_id!r} of group {request.group_id!r} does not own {request.topic}-{request.partition} "
        f"as of generation {request.generation} any more: another owner may write now. Stop writing for it.",
    )
