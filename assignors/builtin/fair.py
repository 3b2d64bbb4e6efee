"""Exact sticky balance where subscriptions or racks differ.

Promise, in this order: the least sum of squared loads, then the fewest partitions read across racks,
then the fewest partitions taken from a rightful owner. It is a minimum-cost flow: units of a pool
(a topic, or the partitions of a topic with the same replica racks) reach a member either as kept
partitions or through the hub of all members with the same subscription and rack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from muster.assignors.builtin.flow import UNLIMITED, Network
from muster.assignors.builtin.levels import CarryingTask, find_fairest_levels
from muster.assignors.data.claims import NOBODY

Share = dict[int, list[int]]


MemberLevel = tuple[list[int], int, int]  # members, floor, how many carry one more


@dataclass
class PartitionPool:
    """Partitions of one topic that are alike: same topic, same replica racks."""

    topic: int
    racks: frozenset[str] | None
    size: int = 0
    kept: dict[int, int] = field(default_factory=dict)  # rightful owner -> how many

    def far_from(self, rack: str | None) -> bool:
        return self.racks is not None and rack is not None and rack not in self.racks


@dataclass(frozen=True)
class AlikeMembers:
    """Members that are alike: same subscription (`kind`, counted from 0) and, where racks count, same rack."""

    kind: int
    topics: tuple[int, ...]
    rack: str | None
    members: list[int]


def balance(
    counts: Sequence[int],
    subscriptions: Sequence[tuple[int, ...]],
    held: Sequence[Sequence[int] | None],
    racks: Sequence[Sequence[frozenset[str]]] | None = None,
    member_racks: Sequence[str | None] = (),
) -> list[Share]:
    """A share for each member: {topic: partitions}, topics by number.

    `counts`: partitions of each topic; each has a subscriber. `subscriptions`: each member's topics,
    sorted. `held`: rightful owner by partition, or None. `racks` is None when racks do not count.
    """
    pools, members_of = make_pools(counts, held, racks)
    groups = make_groups(subscriptions, member_racks if racks is not None else ())
    levels, guide = member_levels(pools, groups, count_held_units(pools, groups))
    exchange = FlowExchange(pools, groups, len(subscriptions), levels, guide)
    exchange.net.run()
    return _hand_out(exchange, members_of, len(subscriptions))


def _hand_out(exchange: FlowExchange, members_of: Sequence[dict[int, list[int]]], members: int) -> list[Share]:
    shares: list[Share] = [{} for _ in range(members)]
    free = [owned.pop(NOBODY, []) for owned in members_of]
    for number, member, stay in exchange.staying():
        partitions = members_of[number][member]
        if stay:
            shares[member].setdefault(exchange.pools[number].topic, []).extend(partitions[:stay])
        free[number].extend(partitions[stay:])
    for partitions in free:
        partitions.sort(reverse=True)
    for number, member in exchange.gains():
        shares[member].setdefault(exchange.pools[number].topic, []).append(free[number].pop())
    return [{topic: sorted(share[topic]) for topic in sorted(share)} for share in shares]


def make_pools(
    counts: Sequence[int],
    held: Sequence[Sequence[int] | None],
    racks: Sequence[Sequence[frozenset[str]]] | None,
) -> tuple[list[PartitionPool], list[dict[int, list[int]]]]:
    """The pools, and for each of them its partitions by owner."""
    pools: list[PartitionPool] = []
    members_of: list[dict[int, list[int]]] = []
    for topic, (count, holders) in enumerate(zip(counts, held, strict=True)):
        owners = holders or (NOBODY,) * count
        alike: dict[frozenset[str] | None, dict[int, list[int]]] = {}
        for partition in range(count):
            near = racks[topic][partition] if racks is not None else None
            alike.setdefault(near, {}).setdefault(owners[partition], []).append(partition)
        for near, owned in alike.items():
            kept = {member: len(partitions) for member, partitions in owned.items() if member != NOBODY}
            pools.append(PartitionPool(topic, near, sum(map(len, owned.values())), kept))
            members_of.append(owned)
    return pools, members_of


def make_groups(subscriptions: Sequence[tuple[int, ...]], member_racks: Sequence[str | None]) -> list[AlikeMembers]:
    kinds: dict[tuple[int, ...], int] = {}
    groups: dict[tuple[int, str | None], AlikeMembers] = {}
    for index, topics in enumerate(subscriptions):
        rack = (member_racks[index] or None) if member_racks else None
        if topics:
            kind = kinds.setdefault(topics, len(kinds))
            groups.setdefault((kind, rack), AlikeMembers(kind, topics, rack, [])).members.append(index)
    return list(groups.values())


class FlowExchange:
    """The network: pools, hubs (one per group), members, and a node per level for its extras.

    It starts from "everybody keeps what is near"; what is too much flows to where there is too little.
    """

    def __init__(
        self,
        pools: Sequence[PartitionPool],
        groups: Sequence[AlikeMembers],
        members: int,
        levels: Sequence[MemberLevel],
        guide: list[dict[int, int]],
        givers: frozenset[int] | None = None,
    ) -> None:
        """`givers` limits who may lose what it owns; None means anybody."""
        self.pools, self.groups, self.guide = pools, groups, guide
        self.first_member = len(pools) + len(groups)
        self.net = Network(self.first_member + members + len(levels))
        self.far = sum(pool.size for pool in pools) + 1  # One mismatch outweighs all moves.
        self.loads = [0] * members
        self.into = [self.net.add(self.net.source, number, pool.size) for number, pool in enumerate(pools)]
        self.kept = self._add_kept(givers)
        self.by_topic: dict[int, list[int]] = {}
        for number, pool in enumerate(pools):
            self.by_topic.setdefault(pool.topic, []).append(number)
        self.pool_hub = [self._add_hub(place) for place in range(len(groups))]
        self.hub_member = [self._add_members(place) for place in range(len(groups))]
        self.ends: dict[int, list[list[int]]] = {}  # member -> ways on to the sink
        for number, level in enumerate(levels):
            self._add_level(self.first_member + members + number, *level)
        self._fill()

    def _hub(self, place: int) -> int:
        """The node of a group's hub; a group of one needs none of its own."""
        members = self.groups[place].members
        return self.first_member + members[0] if len(members) == 1 else len(self.pools) + place

    def _add_members(self, place: int) -> dict[int, int]:
        """{member: arc} out of the hub of a group; empty for a group of one."""
        members, hub = self.groups[place].members, self._hub(place)
        if len(members) == 1:
            return {}
        return {member: self.net.add(hub, self.first_member + member, UNLIMITED) for member in members}

    def _add_kept(self, givers: frozenset[int] | None) -> list[tuple[int, int, int]]:
        """(pool, member, arc): what members own stays theirs for a start, unless it lies far away."""
        rack_of = {member: group.rack for group in self.groups for member in group.members}
        arcs: list[tuple[int, int, int]] = []
        net = self.net
        for number, pool in enumerate(self.pools):
            for member, count in pool.kept.items():
                if pool.far_from(rack_of[member]):
                    arc = net.add(number, self.first_member + member, count, self.far - 1)
                    arcs.append((number, member, arc))
                    continue
                net.room[self.into[number]] -= count
                self.loads[member] += count
                if givers is None or member in givers:
                    arcs.append((number, member, net.add(number, self.first_member + member, 0, -1, count)))
        return arcs

    def _add_hub(self, place: int) -> dict[int, int]:
        """{pool: arc} into the hub of a group."""
        group, hub = self.groups[place], self._hub(place)
        return {
            number: self.net.add(number, hub, UNLIMITED, self.far if self.pools[number].far_from(group.rack) else 0)
            for topic in group.topics
            for number in self.by_topic[topic]
        }

    def _add_level(self, node: int, members: list[int], floor: int, extras: int) -> None:
        """Each member must end with the floor, and the level with its exact number of extras."""
        net = self.net
        used = sum(self.loads[member] > floor for member in members) if extras else 0
        end = net.add(node, net.sink, max(0, extras - used))
        net.add(net.source, node, max(0, used - extras))
        for member in members:
            me, load = self.first_member + member, self.loads[member]
            extra = int(load > floor and extras > 0)
            missing = floor - load + extra
            self.ends[member] = [[net.add(me, net.sink, missing)]] if missing > 0 else []
            if missing < 0:
                net.add(net.source, me, -missing)
            if extras:
                self.ends[member].append([net.add(me, node, 1 - extra, flow=extra), end])

    def _fill(self) -> None:
        """A good start: send free units the way the levels were reached, where that is free of cost."""
        net = self.net
        for place, group in enumerate(self.groups):
            inner = self.hub_member[place]
            ways = [[inner[member], *way] if inner else way for member in group.members for way in self.ends[member]]
            # Floors first, so that extras go to those who lack nothing else.
            ways.sort(key=len)
            ways.reverse()
            for number, arc in self.pool_hub[place].items():
                left = self.guide[number].get(group.kind, 0) if not net.cost[arc] else 0
                while left and ways and net.room[self.into[number]]:
                    path = [self.into[number], arc, *ways[-1]]
                    amount = min(left, min(net.room[step] for step in path))
                    net.send(path, amount)
                    left -= amount
                    self.guide[number][group.kind] -= amount
                    if not min(net.room[step] for step in ways[-1]):
                        ways.pop()

    def done(self) -> bool:
        """Whether everything found its place."""
        return not any(self.net.room[arc] for arc in self.net.out[self.net.source])

    def staying(self) -> Iterator[tuple[int, int, int]]:
        """(pool, member, how many it keeps) for every pool and owner that may lose some."""
        for number, member, arc in self.kept:
            yield number, member, self.net.flow(arc)

    def gains(self) -> Iterator[tuple[int, int]]:
        """(pool, member) for every unit from a hub, dealt to its members in turn so that topics spread."""
        for group, pool_arcs, member_arcs in zip(self.groups, self.pool_hub, self.hub_member, strict=True):
            if not member_arcs:
                for number, arc in pool_arcs.items():
                    yield from [(number, group.members[0])] * self.net.flow(arc)
                continue
            needs = {member: self.net.flow(arc) for member, arc in member_arcs.items()}
            turn = deque(member for member, need in needs.items() if need)
            for number, arc in pool_arcs.items():
                for _ in range(self.net.flow(arc)):
                    member = turn.popleft()
                    yield number, member
                    needs[member] -= 1
                    if needs[member]:
                        turn.append(member)


def count_held_units(pools: Sequence[PartitionPool], groups: Sequence[AlikeMembers]) -> list[dict[int, int]]:
    """Units that each kind of subscription holds of each pool."""
    kind_of = {member: group.kind for group in groups for member in group.members}
    out: list[dict[int, int]] = []
    for pool in pools:
        held: dict[int, int] = {}
        for member, count in pool.kept.items():
            held[kind_of[member]] = held.get(kind_of[member], 0) + count
        out.append(held)
    return out


def member_levels(
    pools: Sequence[PartitionPool], groups: Sequence[AlikeMembers], start: Sequence[Mapping[int, int]]
) -> tuple[list[MemberLevel], list[dict[int, int]]]:
    """Levels of members, and by pool how many units beyond those held go to each kind of subscription."""
    kinds: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    for group in groups:
        if group.kind not in kinds:
            for topic in group.topics:
                readers.setdefault(topic, []).append(group.kind)
        kinds.setdefault(group.kind, []).extend(group.members)
    levels, flows = find_fairest_levels(
        CarryingTask(
            supplies=[pool.size for pool in pools],
            takers=[readers[pool.topic] for pool in pools],
            sizes=[len(kinds[kind]) for kind in range(len(kinds))],
            start=start,
        )
    )
    guide = [
        {kind: units - held.get(kind, 0) for kind, units in flow.items() if units > held.get(kind, 0)}
        for flow, held in zip(flows, start, strict=True)
    ]
    members = [
        (sorted(member for kind in level.groups for member in kinds[kind]), level.floor, level.extras)
        for level in levels
    ]
    return members, guide
