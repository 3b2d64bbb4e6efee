"""Static members in the ledger: restarts that moved nothing, and group instance ids that two processes use.

A static member keeps its partitions while it restarts within its session, so no rebalance tells of it (KIP-345). Two
running processes with one instance id fence each other: the ledger names both, once in ten minutes.
"""

from dataclasses import replace

from muster.coordinator.core.groups.bookkeeping import amend_entry, audit_entry, keep_entry
from muster.coordinator.core.groups.member_causes import ExplainedGroup
from muster.coordinator.core.groups.member_history import MAX_CONTESTED, SeenMember, describe_ms
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import ConsumerHeartbeat, InstanceIdUser
from muster.coordinator.core.model.ledger import MAX_ALSO, describe_member
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.types import Cause, Certainty, Incarnation, MemberPlan, Outcome, RebalanceEntry

REPEATED_MS = 10 * 60_000
"""Within that time the ledger tells of one member's restarts, or of one contested instance id, in one entry."""


def record_calm_restart(
    group: ExplainedGroup, member: SeenMember, plan: MemberPlan, incarnation: Incarnation, step: Step
) -> None:
    """An entry for a restart that moved nothing. Restarts that follow each other soon share the newest entry."""
    kept = sum(len(partitions) for _, partitions in plan.assigned)
    last = last_restart(group, member, step)
    told = (*(last.incarnations if last is not None else ()), incarnation)[-MAX_ALSO:]
    again = f", {len(told)} times in a row," if len(told) > 1 else ""
    detail = (
        f"{describe_member(member)} restarted in {describe_ms(incarnation.away_ms)}{again} and kept its {kept} "
        f"{'partition' if kept == 1 else 'partitions'}"
    )
    entry = member_changed_entry(group, member, plan, Cause.STATIC_MEMBER_REPLACED, detail, step)
    entry = replace(entry, incarnations=told)
    if last is not None:
        amend_entry(group, replace(entry, number=last.number, started_at_ms=last.started_at_ms), step)
        return
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)


def last_restart(group: ExplainedGroup, member: SeenMember, step: Step) -> RebalanceEntry | None:
    """The group's newest entry, if it tells of a recent restart of the same member."""
    ledger = step.state.ledgers.get(group.id)
    last = ledger.last if ledger is not None else None
    if last is None or last.outcome is not Outcome.MEMBER_CHANGED or last.cause is not Cause.STATIC_MEMBER_REPLACED:
        return None
    same = member.instance_id in {each.group_instance_id for each in last.members}
    return last if same and step.now_ms - step.past(last.ended_at_ms) < REPEATED_MS else None


def record_contested_instance_id(
    group: ExplainedGroup, holder: SeenMember, plan: MemberPlan, other: str, step: Step
) -> None:
    """Two running processes have one group instance id. other: the one that does not hold it, in words."""
    if holder.connection in group.history.closed:
        return  # its process is gone, and the other one waits for its place
    instance_id = holder.instance_id
    since_ms = group.history.contested.get(instance_id)
    if not other or (since_ms is not None and step.now_ms - since_ms < REPEATED_MS):
        return
    group.history.contested[instance_id] = step.now_ms
    while len(group.history.contested) > MAX_CONTESTED:
        del group.history.contested[next(iter(group.history.contested))]
    detail = (
        f"two processes use group.instance.id {instance_id}: {describe_member(holder)} has it, and {other} is still "
        "running; give each process an instance id of its own"
    )
    entry = member_changed_entry(group, holder, plan, Cause.INSTANCE_ID_SHARED, detail, step)
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)


def member_changed_entry(
    group: ExplainedGroup, member: SeenMember, plan: MemberPlan, cause: Cause, detail: str, step: Step
) -> RebalanceEntry:
    """An entry about one member that moved nothing. plan: what the member keeps."""
    return replace(
        audit_entry(group.id, Outcome.MEMBER_CHANGED, member.id, detail, step),
        cause=cause,
        certainty=Certainty.RECORDED,
        culprit_client_id=member.client_id,
        culprit_client_host=member.client_host,
        protocol_type=CONSUMER,
        members=(plan,),
    )


def describe_refused(group: ExplainedGroup, event: InstanceIdUser) -> str:
    """The process that was refused: a member that was fenced, or one that asks to join; empty: nobody knows."""
    if described := describe_former(group, event.member_id):
        return described
    if isinstance(event, ConsumerHeartbeat):
        software = f", {event.client_software}" if event.client_software else ""
        return f"member {event.member_id} ({event.client_id or 'no client id'}{software} at {event.client_host})"
    return ""


def describe_former(group: ExplainedGroup, member_id: str) -> str:
    """A member that has gone; empty: nobody knows it any more."""
    former = group.history.former.get(member_id)
    if former is None:
        return ""
    software = f", {former.software}" if former.software else ""
    return f"member {former.id} ({former.client_id or 'no client id'}{software} at {former.client_host})"
