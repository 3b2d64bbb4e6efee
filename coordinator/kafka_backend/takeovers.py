"""From whom this node takes a shard over, and why: what the shard's diary says of it (KB-F9), as a cluster's does
(CL-G9)."""

from typing import Final

from muster.coordinator.core.model.core_events import TookOver
from muster.coordinator.kafka_backend.shard_ownership.effects import AcquisitionReport, TakeoverCause

NOT_KNOWN: Final = 0
"""A moment."""


def takeover_event(report: AcquisitionReport, shard: int, ahead_ms: int = 0) -> TookOver | None:
    """What to note now that it is served; nothing where nobody had it before. Its turn stands where a leader epoch does
    in a cluster. ahead_ms: of the clock by which leases count, the engine's."""
    before = report.before
    if before is None:
        return None
    assigned_ms = report.assigned_ms + ahead_ms
    return TookOver(
        shard, report.owner.turn, before.node, report.owner.node, takeover_cause(report), NOT_KNOWN, assigned_ms
    )


def takeover_cause(report: AcquisitionReport) -> str:
    """Where this very process had it before: why it gave it up."""
    return report.gave_up if report.cause is TakeoverCause.FENCED and report.gave_up else report.cause.value
