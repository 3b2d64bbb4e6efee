"""Tells the ledger of groups that rebalance by themselves: one entry for each time they were seen to do so."""

from collections.abc import Iterator

from muster.coordinator.core.groups.entries import keep_entry, next_number
from muster.coordinator.core.groups.observed_group import ZOOKEEPER, ObservedGroup, ObservedRebalance
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.ledger import last_few
from muster.coordinator.core.model.types import MemberPlan, Outcome, PartitionMove, RebalanceEntry, RebalancePhase


def write_entry(group: ObservedGroup, rebalance: ObservedRebalance, outcome: Outcome, step: Step) -> None:
    """Keep the entry, within the ledger's bound. It is whole at once: nothing is fetched afterwards."""
    trigger, generation = rebalance.trigger, generation_of(group.id, step)
    entry = RebalanceEntry(
        number=next_number(group.id, step),
        previous_generation=generation,
        generation=generation + 1,
        protocol_type=ZOOKEEPER,
        protocol_name="",
        cause=trigger.cause,
        culprit=trigger.culprit,
        culprit_client_id=trigger.client_id,
        culprit_client_host=trigger.client_host,
        detail=trigger.detail,
        client_reason="",
        outcome=outcome,
        started_at_ms=rebalance.started_at_ms,
        ended_at_ms=rebalance.changed_at_ms,
        phases=tuple(phases(rebalance)),
        members=tuple(plans(group)),
        moves=tuple(moves(group, rebalance)),
        also=tuple(rebalance.also),
        unowned_partition_ms=unowned_ms(rebalance, step.now_ms),
        herd=len(rebalance.herd),
        notifications=rebalance.notifications,
    )
    keep_entry(group.id, entry, step)
    group.generation = entry.generation
    step.out.notices.append(GroupChanged(group.id, group.state.value, group.generation, entry))


def announce_group(group: ObservedGroup, step: Step) -> None:
    """Tell the group's watchers how it stands."""
    step.out.notices.append(GroupChanged(group.id, group.state.value, group.generation))


def generation_of(group_id: str, step: Step) -> int:
    """The generation of the newest entry: groups of this kind have none of their own, so the ledger counts for them."""
    ledger = step.state.ledgers.get(group_id)
    return ledger.newest.generation if ledger and ledger.newest else 0


def phases(rebalance: ObservedRebalance) -> Iterator[RebalancePhase]:
    """Until the first claim went, and from there until the last one came."""
    claimed_from = rebalance.started_at_ms
    if rebalance.released_at_ms >= 0:
        yield RebalancePhase("release", rebalance.released_at_ms - rebalance.started_at_ms)
        claimed_from = rebalance.released_at_ms
    if rebalance.claimed:
        yield RebalancePhase("claim", rebalance.changed_at_ms - claimed_from, last_few(rebalance.claimed))


def plans(group: ObservedGroup) -> Iterator[MemberPlan]:
    for member_id, shares in group.owned.items():
        assigned = tuple((topic, tuple(partitions)) for topic, partitions in shares.items())
        yield MemberPlan(member_id, "", group.members[member_id].host, None, assigned)


def moves(group: ObservedGroup, rebalance: ObservedRebalance) -> Iterator[PartitionMove]:
    before, after = rebalance.before, group.seen.owners
    for tp in sorted(before.keys() | after.keys()):
        source, target = before.get(tp, ""), after.get(tp, "")
        if source != target:
            free_ms = rebalance.unowned.get(tp, 0) if target else -1
            yield PartitionMove(*tp, source, target, free_ms, why(source, target, group, rebalance))


def why(source: str, target: str, group: ObservedGroup, rebalance: ObservedRebalance) -> str:
    if source in rebalance.gone:
        return rebalance.gone[source]
    if not target:
        return "nobody claimed it"
    if not source:
        return "nobody owned it"
    return "balance" if target in rebalance.before.values() else "balance: its new owner joined"


def unowned_ms(rebalance: ObservedRebalance, now_ms: int) -> int:
    """The sum over all partitions, those that are still free included."""
    return sum(rebalance.unowned.values()) + sum(now_ms - since for since in rebalance.free_since.values())
