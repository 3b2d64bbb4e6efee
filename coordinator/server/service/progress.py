"""How groups get on, by the node's own samples, as DescribeGroups tells it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.driver.breath import Breath

if TYPE_CHECKING:
    from muster.coordinator.observe.history import History


async def tell_progress(groups: Iterable[pb.DescribedGroup], history: "History") -> None:
    """Fill in what has been seen of them; of what has not, nothing is said. Others have their turns in between."""
    breath = Breath()
    for group in groups:
        if (found := progress(history, group.group_id)) is not None:
            group.progress.CopyFrom(found)
        await breath.take()


def progress(history: "History", group_id: str) -> pb.GroupProgress | None:
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
