"""Makes the facts of fences true, and says when they may go."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.fences_records import FenceForgotten, FenceStored


def keep_fence(state: ShardState, record: FenceStored) -> None:
    fences = state.fences.setdefault(record.group_id, {})
    fences.pop((record.topic, record.partition), None)  # in the order of their last claims
    fences[record.topic, record.partition] = record
    state.fence_ids.update((record.producer_id, *record.former))


def forget_fence(state: ShardState, record: FenceForgotten) -> None:
    fences = state.fences.get(record.group_id, {})
    gone = fences.pop((record.topic, record.partition), None)
    if gone is not None:
        state.fence_ids.difference_update((gone.producer_id, *gone.former))
    if not fences:
        state.fences.pop(record.group_id, None)


FENCE_FACTS: Mapping[type[Any], FactApplier] = {FenceStored: keep_fence, FenceForgotten: forget_fence}


def forget_fences(group_id: str, step: Step) -> None:
    """The group goes, and its fences with it."""
    for topic, partition in list(step.state.fences.get(group_id, ())):
        step.keep(FenceForgotten(group_id, topic, partition))


def fences_hold(group_id: str, step: Step) -> bool:
    """Whether a former owner may still be about: a group is kept as long after a claim as after a commit."""
    fences = step.state.fences.get(group_id, {})
    return any(
        step.now_ms - step.past(fence.claimed_at_ms) < step.limits.offsets_retention_ms for fence in fences.values()
    )
