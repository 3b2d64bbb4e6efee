"""What the task of a central group computes, in slices: a group of thousands must not hold up the node's other work.

Each function pauses after some members or partitions, and returns its result (`Slices`). Small groups go through the
same functions without a pause. Between two slices the group may change; `group_task` notices, and begins again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from muster.assignors.api import Member as AssignorMember
from muster.assignors.api import Snapshot, TopicPartition
from muster.assignors.data.snapshot_json import join_members_json, write_members_json
from muster.coordinator.core.central.group import (
    CentralGroup,
    CentralMember,
    DecidedOwnership,
    SettledRebalance,
    Slices,
    T,
    shares_of_owners,
)
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.ledger import (
    NEVER_HELD,
    OngoingRebalance,
    OwnershipGap,
    PlanDiff,
    RebalanceSettling,
    settle_entry,
    settle_members,
    settle_moves,
    since_when_free,
    since_when_let_go,
    why_moved,
    why_unowned,
    why_vanished,
)
from muster.coordinator.core.model.plan import (
    ENTRY_BYTES,
    FIXED_BYTES,
    Plan,
    loadable_name,
    move_bytes,
    share_bytes,
    shares_bytes,
    shorten_settlement,
    text_bytes,
)
from muster.coordinator.core.model.records import CentralOwner
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import MemberPlan, PartitionMove, Partitions, RebalanceEntry, Settlement
from muster.coordinator.core.settings.assignor_choice import chosen_assignor, chosen_options

# Slices
# ------

ENTRIES_IN_SLICE = 500
"""Members or partitions that one slice goes through."""


def finish_slices(slices: Slices[T]) -> T:
    """All that is left of the work, without a pause."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result


def in_slices(entries: Sequence[T]) -> Iterable[Sequence[T]]:
    """The entries, so many at a time as one slice goes through."""
    for begin in range(0, len(entries), ENTRIES_IN_SLICE):
        yield entries[begin : begin + ENTRIES_IN_SLICE]


# Plans
# -----


def make_snapshot(group: CentralGroup, state: ShardState) -> Slices[Snapshot]:
    """All that the plan depends on. What members own is what is stored for them.

    Most members subscribe to the same as others do.
    """
    read: dict[tuple[frozenset[str], str, Rights], tuple[str, ...]] = {}
    named, members = set[str](), list[AssignorMember]()
    for number, member_id in enumerate(sorted(group.members)):
        if number and number % ENTRIES_IN_SLICE == 0:
            yield
        member = group.members.get(member_id)
        if member is None:
            continue  # it left between two slices
        topics = read.get(subscribes := (member.topics, member.regex, member.rights))
        if topics is None:
            topics = read[subscribes] = tuple(sorted(group.topics_of(member)))
            named |= group.named_by(member)
        share = group.owned.get(member_id)
        members.append(
            AssignorMember(
                id=member_id,
                topics=topics,
                owned=None if share is None else existing_partitions(share, state.partitions),
                generation=-1 if share is None else group.generation,
                rack=member.rack_id,
            )
        )
    return Snapshot(
        topics={topic: state.partitions[topic] for topic in sorted(named & state.partitions.keys())},
        members=members,
        assignor=loadable_name(chosen_assignor(state, group.id) or group.assignor, state.limits),
        options=chosen_options(state, group.id),
    )


def existing_partitions(share: Mapping[str, Sequence[int]], counts: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
    if share.keys() <= counts.keys():
        return share
    return {topic: partitions for topic, partitions in share.items() if topic in counts}


def shares_by_member(group: CentralGroup, plan: Plan) -> Slices[Plan]:
    """What the plan gives to each member that is there, in a form that can be compared with the stored ownership."""
    wanted: Plan = {}
    for some in in_slices(list(group.members)):
        wanted.update((member_id, ordered_share(plan.get(member_id, {}))) for member_id in some)
        yield
    return wanted


def ordered_share(share: Mapping[str, Partitions]) -> dict[str, Partitions]:
    return {topic: tuple(sorted(share[topic])) for topic in sorted(share) if share[topic]}


def ownership_bytes(group: CentralGroup, plan: Plan) -> Slices[int]:
    """What the log would keep of the plan, never estimated too low."""
    size = 0
    for some in in_slices(list(group.members.values())):
        size += sum(text_bytes(m.id, m.client_id, m.client_host, m.regex, *m.topics) + ENTRY_BYTES for m in some)
        size += sum(FIXED_BYTES * len(m.topics) for m in some)
        yield
    for shares in in_slices(list(plan.values())):
        size += sum(map(share_bytes, shares))
        yield
    return size


def write_snapshot(snapshot: Snapshot) -> Slices[str]:
    """The snapshot as the ledger keeps it."""
    members = []
    for some in in_slices(snapshot.members):
        members.append(write_members_json(some))
        yield
    return join_members_json(snapshot, members)


def prepare_ownership(group: CentralGroup, plan: Plan, compared: PlanDiff) -> Slices[DecidedOwnership]:
    owners: list[CentralOwner] = []
    owned: Plan = {}
    for some in in_slices(sorted(plan)):
        # A plan that counts on a member which has left is made again: what is prepared here is dropped then.
        found = [stored_owner(group.members[name], plan[name]) for name in some if name in group.members]
        owners += found
        owned.update(shares_of_owners(found))
        yield
    members: list[MemberPlan] = []
    size = 0
    for part in in_slices(list(group.members.values())):
        told = [member_plan(member, plan) for member in part if member.id in plan]
        size += shares_bytes(told)
        members += told
        yield
    for moves in in_slices(compared.moves):
        size += sum(map(move_bytes, moves))
        yield
    return DecidedOwnership(tuple(owners), tuple(members), size, owned)


def stored_owner(member: CentralMember, share: Mapping[str, Partitions]) -> CentralOwner:
    return CentralOwner(
        member.id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        tuple(sorted(member.topics)),
        member.regex,
        tuple(sorted(share.items())),
    )


def member_plan(member: CentralMember, plan: Plan) -> MemberPlan:
    return MemberPlan(member.id, member.client_id, member.client_host, None, tuple(sorted(plan[member.id].items())))


# What a plan changes
# -------------------


def compare_plans(before: Plan, target: Plan, rebalance: OngoingRebalance) -> Slices[PlanDiff]:
    """What `diff_plans` says of a group whose members have let go of everything: nothing is withheld or still held."""
    moves: list[PartitionMove] = []
    kept: dict[tuple[str, int | None], int] = {}
    moved: dict[tuple[str, int | None], list[TopicPartition]] = {}
    for some in in_slices(list(before.items())):
        for member, share in some:
            if count := sum(len(partitions) for _, partitions in same_cells(share, target.get(member, {}))):
                kept[member, since_when_let_go(member, rebalance)] = count
        yield
    old_owner: dict[TopicPartition, str] = {}
    new_owner: dict[TopicPartition, str] = {}
    for places, plan, other in ((old_owner, before, target), (new_owner, target, before)):
        for some in in_slices(list(plan.items())):
            places.update(owners_of_changed_cells(some, other))
            yield
    changed = yield from sort_partitions(old_owner, new_owner)
    for part in in_slices(changed):
        for tp in part:
            source, owner = old_owner.get(tp, ""), new_owner.get(tp, "")
            free_since = since_when_free(tp, source, NEVER_HELD, rebalance)
            if not owner:
                why = why_unowned(rebalance.gone.get(source, ""), False, not target, False)
                moves.append(PartitionMove(*tp, source, "", -1, why_vanished(tp, rebalance.topic_changes) or why))
            elif source == owner:
                kept[owner, free_since] = kept.get((owner, free_since), 0) + 1
            else:
                why = why_moved(NEVER_HELD, source, owner in before, rebalance)
                moves.append(PartitionMove(*tp, source, owner, -1, why))
                moved.setdefault((owner, free_since), []).append(tp)
        yield
    gaps: list[OwnershipGap] = []
    free_since_of: dict[str, set[int | None]] = {}
    for keys in in_slices([*kept, *moved]):
        for owner, free_since in keys:
            free_since_of.setdefault(owner, set()).add(free_since)
        yield
    for owners in in_slices(sorted(free_since_of)):
        for owner in owners:
            for free_since in sorted(free_since_of[owner], key=lambda at_ms: at_ms or 0):
                partitions = tuple(moved.get((owner, free_since), ()))
                count = kept.get((owner, free_since), 0) + len(partitions)
                gaps.append(OwnershipGap(owner, free_since, count, partitions))
        yield
    return PlanDiff(tuple(moves), tuple(gaps), {})


def same_cells(share: Mapping[str, Partitions], other: Mapping[str, Partitions]) -> Iterable[tuple[str, Partitions]]:
    return (cell for cell in share.items() if other.get(cell[0]) == cell[1])


def owners_of_changed_cells(
    shares: Iterable[tuple[str, Mapping[str, Partitions]]], other: Plan
) -> dict[TopicPartition, str]:
    """The owners of what the other plan gives to these members differently. shares: those of some of a plan's."""
    return {
        (topic, partition): member
        for member, topics in shares
        for topic, partitions in topics.items()
        if other.get(member, {}).get(topic) != partitions
        for partition in partitions
    }


def sort_partitions(*places: Mapping[TopicPartition, object]) -> Slices[list[TopicPartition]]:
    """The partitions of all of them, in order. Numbers are sorted topic by topic: pairs take several times as long."""
    by_topic: dict[str, set[int]] = {}
    for some in in_slices([tp for each in places for tp in each]):
        for topic, partition in some:
            by_topic.setdefault(topic, set()).add(partition)
        yield
    found: list[TopicPartition] = []
    for topic in sorted(by_topic):
        for numbers in in_slices(sorted(by_topic[topic])):
            found += [(topic, partition) for partition in numbers]
            yield
    return found


# What becomes known after a plan
# -------------------------------


def settle_rebalance(
    group: CentralGroup, settling: RebalanceSettling, at_ms: int, state: ShardState
) -> Slices[SettledRebalance]:
    """What there is to be written down of it, and the entry that watchers hear of."""
    settlement = yield from make_settlement(settling, at_ms)
    ledger = state.ledgers.get(group.id)
    entry = ledger.entries.get(settlement.number) if ledger else None
    if entry is None:
        return SettledRebalance(settlement, None)
    kept = shorten_settlement(settlement, state.limits.max_group_bytes)
    yield
    return SettledRebalance(settlement, (entry, (yield from complete_entry(entry, kept))))


def make_settlement(settling: RebalanceSettling, at_ms: int) -> Slices[Settlement]:
    """As `RebalanceSettling.settlement`."""
    unowned: list[tuple[str, int, int]] = []
    total_ms = looked_at = 0
    for gap in settling.gaps:
        total_ms += settling.waited_ms(gap, at_ms)
        looked_at += 1
        for moved in in_slices(gap.moved):
            unowned += settling.unowned_times(gap, moved)
            looked_at += len(moved)
            if looked_at >= ENTRIES_IN_SLICE:
                looked_at = 0
                yield
        if looked_at >= ENTRIES_IN_SLICE:
            looked_at = 0
            yield
    yield
    settlement = replace(settling, gaps=()).settlement(at_ms)
    return replace(settlement, unowned=tuple(unowned), unowned_partition_ms=total_ms)


def complete_entry(entry: RebalanceEntry, settlement: Settlement) -> Slices[RebalanceEntry]:
    """As `settle_entry`."""
    unowned: dict[TopicPartition, int] = {}
    for times in in_slices(settlement.unowned):
        unowned.update(((topic, partition), ms) for topic, partition, ms in times)
        yield
    moves: list[PartitionMove] = []
    for some in in_slices(entry.moves):
        moves += settle_moves(some, unowned)
        yield
    members: list[MemberPlan] = []
    synced = dict(settlement.synced)
    for part in in_slices(entry.members):
        members += settle_members(part, synced)
        yield
    return settle_entry(entry, settlement, (tuple(moves), tuple(members)))
