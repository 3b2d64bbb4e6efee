"""Lets go of what belongs to a group id, whatever its kind: positions, and all that the ledger tells of it."""

from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.groups import gone
from muster.coordinator.core.groups.entries import forget_entry
from muster.coordinator.core.groups.facts import forget_fences
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_records import DelayForgotten, OffsetDeleted
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.errors import CoordinatorError, ErrorCode


def check_nobody_in(group: GroupData) -> None:
    """Only a group that everybody has left may be deleted."""
    if group.members:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} is {group.state.value} with {len(group.members)} members; stop them first",
        )


def forget_belongings(group_id: str, step: Step) -> None:
    """Tombstones for all that belongs to the group; its own come after them. What waits for a transaction goes, too."""
    stored = step.state.offsets.get(group_id, {})
    for topic, partition in [*stored, *(step.state.pending.of_group(group_id) - stored.keys())]:
        step.keep(OffsetDeleted(group_id, topic, partition))
    forget_fences(group_id, step)
    standing.forget_overrides(group_id, step)
    gone.forget_canary(group_id, step)
    forget_ledger(group_id, step)


def forget_ledger(group_id: str, step: Step) -> None:
    """Let go of all that is told of a group."""
    ledger = step.state.ledgers.get(group_id)
    if ledger is None:
        return
    if ledger.delay is not None:
        step.keep(DelayForgotten(group_id))
    for number in sorted(ledger.entries.keys() | ledger.settlements.keys() | ledger.shadows.keys()):
        forget_entry(group_id, number, step)


def forget_unread(group_id: str, read: frozenset[str], step: Step) -> None:
    """Drop positions, of those looked at, that nobody reads and nobody has committed for the retention time."""
    for topic, partition in [
        tp for tp, value in step.positions(group_id) if tp[0] not in read and expired(value, step)
    ]:
        step.keep(OffsetDeleted(group_id, topic, partition))


def expired(value: StoredOffset, step: Step, since_ms: int | None = None) -> bool:
    """Whether its own time is over, or the retention time since it was committed, or since then."""
    if value.expire_timestamp_ms is not None:
        return step.now_ms >= value.expire_timestamp_ms
    past_ms = step.past(value.commit_timestamp_ms if since_ms is None else since_ms)
    return step.now_ms - past_ms >= step.limits.offsets_retention_ms
