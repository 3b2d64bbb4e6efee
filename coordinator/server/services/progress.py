"""How groups get on, by the node's own samples, as DescribeGroups, ListGroups and WatchGroup tell it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.driver.breath import LoopSlice

if TYPE_CHECKING:
    from muster.coordinator.observability.history.history import GroupHistory

ProgressTarget: TypeAlias = pb.DescribedGroup | pb.ListedGroup | pb.WatchGroupResponse


async def add_progress(groups: Iterable[ProgressTarget], history: "GroupHistory | None") -> None:
    """Fill in what has been seen of them; of what has not, nothing is said. Others have their turns in between."""
    if history is None:
        return
    breath = LoopSlice()
    for group in groups:
        if (found := build_progress(history, group.group_id)) is not None:
            group.progress.CopyFrom(found)
        await breath.take()


def build_progress(history: "GroupHistory", group_id: str) -> pb.GroupProgress | None:
    seen_ms = history.seen_ms(group_id)
    if seen_ms is None:
        return None
    health = history.last_health(group_id)
    return pb.GroupProgress(
        sampled_ms=seen_ms,
        lag=health.total_lag,
        trend=history.trend(group_id),
        eta_seconds=history.eta_s(group_id),
        health=health.status.name,
        reason=health.reason,
    )


def progress_changed(before: pb.GroupProgress, now: pb.GroupProgress | None) -> bool:
    """Whether anything but the time of the look is different."""
    if now is None:
        return before.sampled_ms != 0
    as_of_before = pb.GroupProgress()
    as_of_before.CopyFrom(now)
    as_of_before.sampled_ms = before.sampled_ms
    return as_of_before != before
