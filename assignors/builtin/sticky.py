"""The sticky assignors: as even as subscriptions allow, then as near as racks allow, then as few moves as possible.

`sticky`, `cooperative-sticky` (the same plan, handed over in two rounds, KIP-429) and `uniform` (what KIP-848 runs on
the coordinator) share one plan. `uniform` with options is computed by the engine of `lag_sticky`, imported on use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.assignors.api import Assignment, Member, Plan, RebalanceProtocol, Snapshot
from muster.assignors.builtin import exact_balance
from muster.assignors.builtin.range import partition_racks
from muster.assignors.builtin.roundrobin import deal_alike
from muster.assignors.data.values import NOBODY

# Sticky
# ------

Share = dict[str, list[int]]


class StickyAssignor:
    """Balance exactly, keep what can be kept.

    In this order: the least sum of squared member loads, the fewest partitions read across racks, the
    fewest partitions taken from a rightful owner. All three are exact, not heuristics.

    >>> members = [Member("a", ("t",), {"t": [0, 1, 2]}, 1), Member("b", ("t",))]
    >>> StickyAssignor().assign(Snapshot({"t": 3}, members))
    {'a': {'t': [0, 1]}, 'b': {'t': [2]}}
    """

    name = "sticky"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        return sticky_plan(snapshot)


def sticky_plan(snapshot: Snapshot) -> Plan | Assignment:
    """The plan that every sticky kind shares."""
    if snapshot.large and not snapshot.racks:
        from muster.assignors.builtin import vectorized

        return Assignment(snapshot.columns.table(vectorized.sticky_owner(snapshot.columns)))
    members = snapshot.ordered_members()
    topics = snapshot.subscribed_topics()
    subscriptions = interned_subscriptions(members, topics)
    counts = {topic: snapshot.topics[topic] for topic in topics}
    held = snapshot.held
    racks = racks_that_count(snapshot, members, topics)
    readers = [index for index, subscription in enumerate(subscriptions) if subscription]
    plan: dict[str, Mapping[str, Sequence[int]]] = {member.id: {} for member in members}
    if racks is None and len({subscriptions[index] for index in readers}) == 1:
        if not held:
            return {**plan, **deal_alike(snapshot, [members[index].id for index in readers], topics)}
        for index, share in zip(readers, share_alike(counts, held, readers), strict=True):
            plan[members[index].id] = share
    elif readers:
        shares = exact_balance.balance(
            list(counts.values()),
            subscriptions,
            [held.get(topic) for topic in topics],
            racks,
            [member.rack or None for member in members],
        )
        for member, numbered in zip(members, shares, strict=True):
            plan[member.id] = {topics[number]: partitions for number, partitions in numbered.items()}
    return plan


def interned_subscriptions(members: Sequence[Member], topics: Sequence[str]) -> list[tuple[int, ...]]:
    """Each member's topics as sorted places in `topics`; equal ones are one object."""
    place = {topic: number for number, topic in enumerate(topics)}
    known: dict[tuple[str, ...], tuple[int, ...]] = {}
    out: list[tuple[int, ...]] = []
    for member in members:
        if member.topics not in known:
            known[member.topics] = tuple(sorted({place[topic] for topic in member.topics if topic in place}))
        out.append(known[member.topics])
    return out


def racks_that_count(
    snapshot: Snapshot, members: Sequence[Member], topics: Sequence[str]
) -> list[list[frozenset[str]]] | None:
    """Racks by topic and partition, or None when they cannot matter (KIP-881): no rack in common with a
    member, or every partition in every rack."""
    asked = {member.rack for member in members if member.rack}
    if not asked or not snapshot.racks:
        return None
    racks = [partition_racks(snapshot, topic) for topic in topics]
    offered = frozenset(rack for by in racks for near in by for rack in near)
    if not asked & offered or all(near == offered for by in racks for near in by):
        return None
    return racks


def share_alike(counts: Mapping[str, int], held: Mapping[str, Sequence[int]], readers: Sequence[int]) -> list[Share]:
    """Equal subscriptions: quotas alone give the optimum in balance and in moves."""
    topic_of, partition_of, rank_of = _units(counts)
    owned, free = _lay_out(counts, held, readers)
    quota, extras = divmod(len(topic_of), len(readers))
    needs: list[int] = []
    for mine in owned:
        cap = quota
        if len(mine) > quota and extras:
            cap += 1
            extras -= 1
        if len(mine) > cap:
            # Lowest partitions stay: dropping topic by topic would empty one topic first (KAFKA-16277).
            mine.sort(key=rank_of.__getitem__)
            free += mine[cap:]
            mine[cap:] = ()
        needs.append(quota - len(mine))
    free.sort()
    _deal(free, owned, needs, extras)
    shares: list[Share] = []
    for mine in owned:
        share: Share = {}
        mine.sort()
        for unit in mine:
            topic = topic_of[unit]
            if topic in share:
                share[topic].append(partition_of[unit])
            else:
                share[topic] = [partition_of[unit]]
        shares.append(share)
    return shares


def _units(counts: Mapping[str, int]) -> tuple[list[str], list[int], list[int]]:
    """Topic and partition of each unit: all partitions, counted through in the order of topics.

    The third is a rank by partition, then by topic.
    """
    topic_of: list[str] = []
    partition_of: list[int] = []
    rank_of: list[int] = []
    for number, (topic, count) in enumerate(counts.items()):
        topic_of += [topic] * count
        partition_of += range(count)
        rank_of += range(number, number + count * len(counts), len(counts))
    return topic_of, partition_of, rank_of


def _lay_out(
    counts: Mapping[str, int], held: Mapping[str, Sequence[int]], readers: Sequence[int]
) -> tuple[list[list[int]], list[int]]:
    """The units that each reader owns, and those that nobody does, both in order."""
    owned: list[list[int]] = [[] for _ in readers]
    holder = dict(zip(readers, owned, strict=True))
    free: list[int] = []
    holder[NOBODY] = free
    first = 0
    for topic, count in counts.items():
        if topic in held:
            for unit, owner in enumerate(held[topic], first):
                holder[owner].append(unit)
        else:
            free += range(first, first + count)
        first += count
    return owned, free


def _deal(free: list[int], owned: list[list[int]], needs: list[int], extras: int) -> None:
    """Deal the free partitions in turn to those below quota; the last ones are the remaining extras."""
    place = 0
    hungry = [index for index, need in enumerate(needs) if need > 0]
    while hungry:
        for index in hungry:
            owned[index].append(free[place])
            needs[index] -= 1
            place += 1
        hungry = [index for index in hungry if needs[index] > 0]
    # One each to members at quota (need 0); those above it (need -1) have theirs.
    for index in [index for index, need in enumerate(needs) if need == 0][:extras]:
        owned[index].append(free[place])
        place += 1


# Cooperative sticky (KIP-429)
# ----------------------------


class CooperativeStickyAssignor:
    """The same target as `sticky`, but members keep working while partitions move.

    A partition that changes owner is withheld in this round and given out in the next one, once its old
    owner has let go; `muster.assignors.run.run` sees to that. Two rounds always suffice.
    """

    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        return sticky_plan(snapshot)


# Uniform (KIP-848)
# -----------------


class UniformAssignor:
    """Spread partitions evenly over members and move as few as possible.

    Without options it is exact, as `sticky` is. With capacities, limits or priorities, no single move
    makes the heaviest member lighter, and what exceeds the limits is reported as unassigned.

    >>> from muster.assignors.api import Member
    >>> group = Snapshot({"t": 6}, [Member("a", ("t",)), Member("b", ("t",))],
    ...                  options={"member.capacity": {"a": 2.0}})
    >>> {member: len(share["t"]) for member, share in UniformAssignor().assign(group).members.items()}
    {'a': 4, 'b': 2}
    """

    name = "uniform"
    options = ("member.capacity", "max.partitions.per.member", "member.priority", "member.standby")
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        if not snapshot.options:
            return sticky_plan(snapshot)
        import numpy as np

        from muster.assignors.builtin.lag_sticky import MoveThresholds, Placement
        from muster.assignors.options import UniformOptions, read_options

        options = read_options(self.name, UniformOptions, snapshot.options)
        if options.plain:
            return sticky_plan(snapshot)
        columns = snapshot.columns
        outcome = Placement(columns, np.ones(columns.axis.size), options, MoveThresholds(prove=False)).decide()
        return Assignment(columns.table(outcome.owner), note=outcome.note)
