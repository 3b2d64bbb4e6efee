"""What an operator reads of a node's failures: a line in its log, and a condition for as long as it lasts."""

import structlog

from muster.coordinator.core.model.core_events import Planned
from muster.coordinator.core.requests.stall import WORTH_A_NOTE_MS
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.loader import LoadReport
from muster.coordinator.runtime.slot import ShardStatus
from muster.coordinator.server.troubles import update_shard_condition

LATE_MS = 60_000
"""So long after it stood still the node counts as late."""

ASSIGNOR_TROUBLE_MS = 600_000
"""An assignor counts as failing until it makes a plan, or until nobody has asked it for one for so long."""

log = structlog.get_logger("muster.node")


def report_status(conditions: Conditions, shard: int, status: ShardStatus, why: str, report: LoadReport) -> None:
    """A shard that failed, or that serves although some of its records could not be read, is worth a warning."""
    damaged = status is ShardStatus.ACTIVE and report.malformed > 0
    worth_it = log.info if why and why == report.orphans else log.debug
    tell = log.warning if damaged or status is ShardStatus.FAILED else worth_it
    tell("shard", number=shard, status=status.value, why=why)
    update_shard_condition(conditions, shard, status, why)


def report_stall(conditions: Conditions, stalled_ms: int, computing_ms: int) -> None:
    """What an operator reads when the node was late. Nobody was expired for it, but nobody was answered either."""
    if stalled_ms < WORTH_A_NOTE_MS:
        log.debug("the node stood still", stalled_ms=stalled_ms, computing_ms=computing_ms)
        return
    busy = "it was computing" if computing_ms > stalled_ms // 2 else "it was stopped, or waited for disk or machine"
    told = f"the node stood still for {stalled_ms / 1000:.1f} s; nobody was expired for it"
    log.warning(told, why=busy, computing_ms=computing_ms)
    conditions.report("loop-late", f"{told}; {busy}", lasting_ms=LATE_MS)


def report_plan(conditions: Conditions, plan: Planned) -> None:
    """Whether the group's assignor does its work is told once when that changes, and by `muster health`."""
    name = f"assignor-failing:{plan.group_id}"
    if plan.error:
        conditions.report(name, f"group {plan.group_id!r}: {plan.error}", lasting_ms=ASSIGNOR_TROUBLE_MS)
    else:
        conditions.clear(name)


def report_contained(what: str, error: Exception) -> None:
    """Something unexpected that concerns one group only."""
    log.error("one group's work failed", what=what, exc_info=error)


def report_bug(event: str, error: Exception) -> None:
    """The event that broke a shard, as a line that a test can repeat."""
    log.error("a bug stopped a shard; it is reloaded from its log", script=event, exc_info=error)
