"""Exact sticky balance where subscriptions or racks differ.

Promise, in this order: the least sum of squared loads, then the fewest partitions read across racks,
then the fewest partitions taken from a rightful owner. It is a minimum-cost flow: units of a pool
(a topic, or the partitions of a topic with the same replica racks) reach a member either as kept
partitions or through the hub of all members with the same subscription and rack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assignors.claims import NOBODY
from assignors.flow import UNLIMITED, Network
from assignors.levels import Carrying, fairest

Share = dict[str, list[int]]


@dataclass
class Pool:
    """Partitions of one topic that are alike: same topic, same replica racks."""

    topic: str
    racks: frozenset[str] | None
    free: list[int] = field(default_factory=list)
    kept: dict[int, list[int]] = field(default_factory=dict)  # owner -> partitions
    size: int = 0

    def far_from(self, rack: str | None) -> bool:
        return self.racks is not None and rack is not None and rack not in self.racks


@dataclass(frozen=True)
class Group:
    """Members that are alike: same subscription and, where racks count, same rack."""

    topics: tuple[str, ...]
    rack: str | None
    members: list[int]


def balance(
    counts: Mapping[str, int],
    subscriptions: Sequence[tuple[str, ...]],
    held: Mapping[str, Sequence[int]],
    racks: Mapping[str, Sequence[frozenset[str]]] | None = None,
    member_racks: Sequence[str | None] = (),
) -> list[Share]:
    """A share for each member.

    `counts`: partitions of each topic with a subscriber. `subscriptions`: each member's topics, sorted,
    all in `counts`. `held`: rightful owner by partition. `racks` is None when racks do not count.
    """
    pools = make_pools(counts, held, racks)
    groups = make_groups(subscriptions, member_racks if racks is not None else ())
    exchange = Exchange(pools, groups, len(subscriptions))
    exchange.net.run()
    shares: list[Share] = [{} for _ in subscriptions]
    exchange.keep(shares)
    exchange.gain(shares)
    for share in shares:
        for partitions in share.values():
            partitions.sort()
    return shares


def make_pools(
    counts: Mapping[str, int],
    held: Mapping[str, Sequence[int]],
    racks: Mapping[str, Sequence[frozenset[str]]] | None,
) -> list[Pool]:
    pools: list[Pool] = []
    for topic, count in counts.items():
        owners = held.get(topic) or (NOBODY,) * count
        alike: dict[frozenset[str] | None, Pool] = {}
        for partition in range(count):
            near = racks[topic][partition] if racks is not None else None
            if near not in alike:
                alike[near] = Pool(topic, near)
            pool = alike[near]
            pool.size += 1
            owner = owners[partition]
            if owner == NOBODY:
                pool.free.append(partition)
            else:
                pool.kept.setdefault(owner, []).append(partition)
        pools.extend(alike.values())
    return pools


def make_groups(subscriptions: Sequence[tuple[str, ...]], member_racks: Sequence[str | None]) -> list[Group]:
    groups: dict[tuple[tuple[str, ...], str | None], Group] = {}
    for index, topics in enumerate(subscriptions):
        rack = (member_racks[index] or None) if member_racks else None
        if topics:
            groups.setdefault((topics, rack), Group(topics, rack, [])).members.append(index)
    return list(groups.values())


class Exchange:
    """The network: pools, hubs (one per group), members, and a node per level for its extras.

    It starts from "everybody keeps what is near"; what is too much flows to where there is too little.
    """

    def __init__(self, pools: list[Pool], groups: list[Group], members: int) -> None:
        self.pools, self.groups = pools, groups
        self.first_member = len(pools) + len(groups)
        levels, self.guide = _levels(pools, groups)
        self.net = Network(self.first_member + members + len(levels))
        self.far = sum(pool.size for pool in pools) + 1  # One mismatch outweighs all moves.
        self.loads = [0] * members
        self.into = [self.net.add(self.net.source, number, pool.size) for number, pool in enumerate(pools)]
        self.kept = self._add_kept()
        self.pool_hub = [self._add_hub(place) for place in range(len(groups))]
        self.hub_member = [
            {member: self._add(len(pools) + place, member) for member in group.members}
            for place, group in enumerate(groups)
        ]
        self.ends: dict[int, list[list[int]]] = {}  # member -> ways on to the sink
        for number, level in enumerate(levels):
            self._add_level(self.first_member + members + number, *level)
        self._fill()

    def _add(self, hub: int, member: int) -> int:
        return self.net.add(hub, self.first_member + member, UNLIMITED)

    def _add_kept(self) -> list[tuple[int, int, int]]:
        """(pool, member, arc): what members own stays theirs for a start, unless it lies far away."""
        rack_of = {member: group.rack for group in self.groups for member in group.members}
        arcs: list[tuple[int, int, int]] = []
        for number, pool in enumerate(self.pools):
            for member, partitions in pool.kept.items():
                count, node = len(partitions), self.first_member + member
                if pool.far_from(rack_of[member]):
                    arc = self.net.add(number, node, count, self.far - 1)
                else:
                    arc = self.net.add(number, node, 0, -1, flow=count)
                    self.net.room[self.into[number]] -= count
                    self.loads[member] += count
                arcs.append((number, member, arc))
        return arcs

    def _add_hub(self, place: int) -> dict[int, int]:
        """{pool: arc} into the hub of a group."""
        group = self.groups[place]
        wanted = set(group.topics)
        return {
            number: self.net.add(
                number, len(self.pools) + place, UNLIMITED, self.far if pool.far_from(group.rack) else 0
            )
            for number, pool in enumerate(self.pools)
            if pool.topic in wanted
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
            ways = [[self.hub_member[place][member], *way] for member in group.members for way in self.ends[member]]
            # Floors first, so that extras go to those who lack nothing else.
            ways.sort(key=len)
            ways.reverse()
            for number, arc in self.pool_hub[place].items():
                left = self.guide[number].get(group.topics, 0) if not net.cost[arc] else 0
                while left and ways and net.room[self.into[number]]:
                    path = [self.into[number], arc, *ways[-1]]
                    amount = min(left, min(net.room[step] for step in path))
                    net.send(path, amount)
                    left -= amount
                    self.guide[number][group.topics] -= amount
                    if not min(net.room[step] for step in ways[-1]):
                        ways.pop()

    def keep(self, shares: list[Share]) -> None:
        """Hand over what is kept; what is not goes back to its pool."""
        for number, member, arc in self.kept:
            pool = self.pools[number]
            partitions, stay = pool.kept[member], self.net.flow(arc)
            if stay:
                shares[member].setdefault(pool.topic, []).extend(partitions[:stay])
            pool.free.extend(partitions[stay:])

    def gain(self, shares: list[Share]) -> None:
        """Deal what flows through each hub to its members in turn, so that topics spread."""
        for pool in self.pools:
            pool.free.sort(reverse=True)
        for pool_arcs, member_arcs in zip(self.pool_hub, self.hub_member, strict=True):
            needs = {member: self.net.flow(arc) for member, arc in member_arcs.items()}
            turn = deque(member for member, need in needs.items() if need)
            for number, arc in pool_arcs.items():
                pool = self.pools[number]
                for _ in range(self.net.flow(arc)):
                    member = turn.popleft()
                    shares[member].setdefault(pool.topic, []).append(pool.free.pop())
                    needs[member] -= 1
                    if needs[member]:
                        turn.append(member)


_MemberLevel = tuple[list[int], int, int]


def _levels(pools: list[Pool], groups: list[Group]) -> tuple[list[_MemberLevel], list[dict[tuple[str, ...], int]]]:
    """Levels of members, and by pool how many units beyond those kept go to each subscription."""
    kinds: dict[tuple[str, ...], list[int]] = {}
    for group in groups:
        kinds.setdefault(group.topics, []).extend(group.members)
    words = list(kinds)
    kind_of = {member: kind for kind, word in enumerate(words) for member in kinds[word]}
    readers: dict[str, list[int]] = {}
    for kind, word in enumerate(words):
        for topic in word:
            readers.setdefault(topic, []).append(kind)
    start: list[dict[int, int]] = []
    for pool in pools:
        lying: dict[int, int] = {}
        for member, partitions in pool.kept.items():
            lying[kind_of[member]] = lying.get(kind_of[member], 0) + len(partitions)
        start.append(lying)
    levels, flows = fairest(
        Carrying(
            supplies=[pool.size for pool in pools],
            takers=[readers[pool.topic] for pool in pools],
            sizes=[len(kinds[word]) for word in words],
            start=start,
        )
    )
    guide = [
        {words[kind]: units - lying.get(kind, 0) for kind, units in flow.items() if units > lying.get(kind, 0)}
        for flow, lying in zip(flows, start, strict=True)
    ]
    members = [
        (sorted(m for kind in level.groups for m in kinds[words[kind]]), level.floor, level.extras) for level in levels
    ]
    return members, guide
