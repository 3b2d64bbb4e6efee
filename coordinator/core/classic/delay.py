"""The delay of a delayed cooperative group (KIP-415) is the group's: it outlives its leader, and this node.

The leader hands in what it knows together with its plan; it is kept with the ledger and handed to whoever leads next.
What it says is opaque here, but for the delay: that is counted on the coordinator's clock, so that a leader on
another machine knows how much is left. A group that is left by everybody has nobody to wait for, and forgets it.
"""

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import StoodStill, SyncGroup
from muster.coordinator.core.model.core_records import DelayForgotten, DelayStored


def keep_delay(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    """Keep what the leader knows with the plan it belongs to; a plan without it ends what was kept before.

    What is too large to keep dies with its leader, as in Kafka.
    """
    state = request.leader_state
    if not state or len(state.encode()) > step.limits.ledger_max_snapshot_bytes:
        forget_delay(group.id, step)
        return
    delay_ms = request.scheduled_delay_ms
    if delay_ms > 0:
        step.keep(DelayStored(group.id, state, step.now_ms + delay_ms, delay_ms))
    else:
        step.keep(DelayStored(group.id, state, None))


def forget_delay(group_id: str, step: Step) -> None:
    if kept_delay(group_id, step) is not None:
        step.keep(DelayForgotten(group_id))


def kept_delay(group_id: str, step: Step) -> DelayStored | None:
    ledger = step.state.ledgers.get(group_id)
    return ledger.delay if ledger else None


def remaining_delay_ms(kept: DelayStored | None, step: Step) -> int | None:
    """How much of the delay is left, 0 when it is over, None when none runs."""
    if kept is None or kept.until_ms is None:
        return None
    delay_ms = kept.until_ms - step.now_ms if kept.delay_ms is None else kept.delay_ms
    began_ms = step.past(kept.until_ms - delay_ms)
    return max(0, began_ms + delay_ms - step.now_ms)


def extend_delay(group: ClassicGroup, event: StoodStill, step: Step) -> None:
    """A lost worker could not come back while the node stood still: a delay that ran then ends later by the stall."""
    kept = kept_delay(group.id, step)
    if not event.stalled_ms or kept is None or kept.until_ms is None:
        return
    if kept.until_ms > step.now_ms - event.stalled_ms:
        step.keep(DelayStored(group.id, kept.leader_state, kept.until_ms + event.stalled_ms, kept.delay_ms))
