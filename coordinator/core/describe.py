"""Read-only views of groups, and what the ledger knows of them."""

from collections.abc import Sequence

from coordinator.core.central import views as central_views
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.consumer import views
from coordinator.core.effects import DescribedMember, DescribeReply, ExplainReply, ListedGroup, ListReply
from coordinator.core.events import DescribeGroup, ExplainGroup, ListGroups
from coordinator.core.ledger import settled
from coordinator.core.observed import views as observed_views
from coordinator.core.plan import CONSUMER
from coordinator.core.state import Step
from coordinator.core.types import GroupState, RebalanceEntry, Stall
from coordinator.errors import CoordinatorError, ErrorCode

CLASSIC = "classic"


def describe_group(request: DescribeGroup, step: Step) -> None:
    """The group as it is; subscriptions only while it is stable, for they are in flux otherwise.

    Assignments are those of the last generation while a rebalance runs: its members still own by them, as in Kafka.
    """
    if observed := observed_views.prevailing(request.group_id, step.state):
        step.reply(request.request_id, observed_views.as_any_group(observed))
        return
    if central_group := step.state.central_groups.get(request.group_id):
        step.reply(request.request_id, central_views.as_any_group(central_group, step))
        return
    if consumer_group := step.state.consumer_groups.get(request.group_id):
        step.reply(request.request_id, views.as_any_group(consumer_group, step))
        return
    group = step.state.groups.get(request.group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
    stable = group.state is GroupState.STABLE
    waiting_for, until_ms = waiting(group, step)
    step.reply(
        request.request_id,
        DescribeReply(
            group_id=group.id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            generation=group.generation,
            leader=group.acting_leader,
            members=tuple(
                DescribedMember(
                    member.id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(group.protocol_name) if stable else b"",
                    member.assignment,
                )
                for member in group.members.values()
            ),
            waiting_for=waiting_for,
            waiting_until_ms=until_ms,
        ),
    )


def waiting(group: ClassicGroup, step: Step) -> tuple[tuple[str, ...], int]:
    """Whom a running rebalance waits for, and until when at most (0: for nobody)."""
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            late = [member.id for member in group.members.values() if not member.joining]
            late += sorted(group.pending_joins)
            return tuple(late), step.state.deadlines.get(group.join_timer, 0)
        case GroupState.COMPLETING_REBALANCE:
            return tuple(sorted(group.pending_syncs)), step.state.deadlines.get(group.sync_timer, 0)
        case GroupState.EMPTY | GroupState.STABLE | GroupState.DEAD:
            return (), 0


def list_groups(request: ListGroups, step: Step) -> None:
    """The groups of this shard that pass both filters."""
    states = {state.lower() for state in request.states}
    types = {group_type.lower() for group_type in request.types}
    observed = observed_views.listed(step.state)
    elsewhere = {group_id for group_id in step.state.observed if observed_views.prevailing(group_id, step.state)}
    logged = [
        *(ListedGroup(g.id, g.protocol_type or "", g.state.value, CLASSIC) for g in step.state.groups.values()),
        *(ListedGroup(g.id, CONSUMER, g.state.value, CONSUMER) for g in step.state.consumer_groups.values()),
        *(
            ListedGroup(g.id, CONSUMER, g.state.value, central_views.CENTRAL)
            for g in step.state.central_groups.values()
        ),
    ]
    listed = [*observed, *(group for group in logged if group.group_id not in elsewhere)]
    passed = [
        group
        for group in sorted(listed, key=lambda group: group.group_id)
        if (not states or group.state.lower() in states) and (not types or group.group_type in types)
    ]
    step.reply(request.request_id, ListReply(groups=tuple(passed)))


def explain_group(request: ExplainGroup, step: Step) -> None:
    """The group's rebalances, newest first. The ledger outlives the group's members, not the group."""
    ledger = step.state.ledgers.get(request.group_id)
    if ledger is None:
        kinds = (step.state.groups, step.state.consumer_groups, step.state.central_groups, step.state.observed)
        if not any(request.group_id in groups for groups in kinds):
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
        step.reply(request.request_id, ExplainReply())
        return
    entries = [
        settled(entry, ledger.settlements.get(number))
        for number, entry in sorted(ledger.entries.items(), reverse=True)
        if request.generation in (0, entry.generation)
    ]
    shown = tuple(entries[: request.limit or None])
    step.reply(request.request_id, ExplainReply(entries=shown, stalls=stalls_since(shown, step)))


def stalls_since(entries: Sequence[RebalanceEntry], step: Step) -> tuple[Stall, ...]:
    """When the node stood still after the oldest of these rebalances had begun, newest first."""
    since_ms = entries[-1].started_at_ms if entries else step.now_ms
    return tuple(stall for stall in reversed(step.state.stalls.values()) if stall.ended_at_ms >= since_ms)
