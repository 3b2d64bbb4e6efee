"""The fairest loads that subscriptions allow.

Members with equal subscriptions form one group. Where subscriptions differ, perfect evenness may be
out of reach; the least sum of squared loads is then unique up to who within a level gets one more
(S. Fujishige's decomposition; A. Frank and K. Murota, "Discrete decreasing minimization"). A level is
a set of groups whose members carry `floor` or `floor + 1`, with exactly `extras` of the latter, in every
optimal assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.assignors.builtin.flow import UNLIMITED, Network


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Groups (by index) whose members carry `floor`, `extras` of them one more."""

    groups: tuple[int, ...]
    floor: int
    extras: int


@dataclass(frozen=True, slots=True)
class CarryingTask:
    """What is to be carried: units of each pool, the groups it is open to, the members of each group.

    `start` is where units lie now, {group: units} by pool; it only makes the search shorter.
    """

    supplies: Sequence[int]
    takers: Sequence[Sequence[int]]
    sizes: Sequence[int]
    start: Sequence[Mapping[int, int]]


def find_fairest_levels(task: CarryingTask) -> tuple[list[LoadLevel], list[dict[int, int]]]:
    """The levels, and for each pool one way of reaching them: {group: units}.

    Every pool needs a taker and every group a member; groups that no pool is open to carry 0.
    """
    levels: list[LoadLevel] = []
    flows: list[dict[int, int]] = [{} for _ in task.supplies]
    pools = [pool for pool, supply in enumerate(task.supplies) if supply]
    waiting = [(pools, list(range(len(task.sizes))))]
    while waiting:
        pools, groups = waiting.pop()
        if groups:
            waiting.extend(_settle(pools, groups, task, levels, flows))
    return levels, flows


_Part = tuple[list[int], list[int]]


def _settle(
    pools: list[int], groups: list[int], task: CarryingTask, levels: list[LoadLevel], flows: list[dict[int, int]]
) -> list[_Part]:
    """Settle this part as one level, or cut it into a part that carries more and one that carries less."""
    units = sum(task.supplies[pool] for pool in pools)
    floor, extras = divmod(units, sum(task.sizes[group] for group in groups))
    carrier = _Carrier(pools, groups, task)
    carrier.allow(floor)
    if not carrier.filled():
        # Someone cannot reach the average. They, and whoever shares pools with them, form the lower part.
        return _cut(pools, groups, *carrier.reaching_a_gap())
    if extras:
        carrier.allow(floor + 1)
        if heavy := carrier.crowded_pools():
            return _cut(pools, groups, heavy, {group for pool in heavy for group in task.takers[pool]})
    levels.append(LoadLevel(tuple(groups), floor, extras))
    for pool, flow in carrier.flows():
        flows[pool] = flow
    return []


def _cut(pools: list[int], groups: list[int], some_pools: set[int], some_groups: set[int]) -> list[_Part]:
    inside = ([p for p in pools if p in some_pools], [g for g in groups if g in some_groups])
    outside = ([p for p in pools if p not in some_pools], [g for g in groups if g not in some_groups])
    return [inside, outside]


class _Carrier:
    """The flow from pools to groups of one part."""

    def __init__(self, pools: list[int], groups: list[int], task: CarryingTask) -> None:
        self.pools, self.groups, self.sizes = pools, groups, task.sizes
        node = {group: len(pools) + place for place, group in enumerate(groups)}
        net = self.net = Network(len(pools) + len(groups))
        self.node = node
        self.into = [net.add(net.source, place, task.supplies[pool]) for place, pool in enumerate(pools)]
        self.across = [
            [(group, net.add(place, node[group], UNLIMITED)) for group in task.takers[pool] if group in node]
            for place, pool in enumerate(pools)
        ]
        self.onward = {group: net.add(node[group], net.sink, 0) for group in groups}
        self.start = [task.start[pool] for pool in pools]
        self.allowed = 0

    def allow(self, load: int) -> None:
        """Let every member carry `load`, and carry as much as can be."""
        for group in self.groups:
            self.net.room[self.onward[group]] += (load - self.allowed) * self.sizes[group]
        self.allowed = load
        self._stay()
        self._spread_evenly()
        self.net.saturate()

    def flows(self) -> Iterator[tuple[int, dict[int, int]]]:
        for pool, arcs in zip(self.pools, self.across, strict=True):
            yield pool, {group: self.net.flow(arc) for group, arc in arcs if self.net.flow(arc)}

    def filled(self) -> bool:
        return not any(self.net.room[arc] for arc in self.onward.values())

    def crowded_pools(self) -> set[int]:
        """Pools with units left, and those whose units stand in their way; empty when all is placed."""
        seen = self.net.reachable()
        return {pool for place, pool in enumerate(self.pools) if seen[place]}

    def reaching_a_gap(self) -> tuple[set[int], set[int]]:
        """Pools and groups from which a member with too little can still be reached."""
        net = self.net
        seen = {self.node[group] for group in self.groups if net.room[self.onward[group]]}
        stack = sorted(seen)
        while stack:
            node = stack.pop()
            for arc in net.out[node]:
                tail = net.head[arc]
                if net.room[arc ^ 1] and tail < net.source and tail not in seen:
                    seen.add(tail)
                    stack.append(tail)
        return (
            {pool for place, pool in enumerate(self.pools) if place in seen},
            {group for group in self.groups if self.node[group] in seen},
        )

    def _stay(self) -> None:
        """Leave units where they lie, as far as there is room."""
        room = self.net.room
        for place, where in enumerate(self.start):
            into = self.into[place]
            if not where or not room[into]:
                continue
            for group, arc in self.across[place]:
                stay = where.get(group, 0) - room[arc ^ 1]
                if stay > 0 and room[self.onward[group]]:
                    amount = min(stay, room[into], room[self.onward[group]])
                    self.net.send((into, arc, self.onward[group]), amount)

    def _spread_evenly(self) -> None:
        """A good start: pools with few takers first, each poured to the same height where there is room."""
        room = self.net.room
        for place in sorted(range(len(self.pools)), key=lambda place: len(self.across[place])):
            if not room[self.into[place]]:
                continue
            gaps = [
                (room[self.onward[group]] / self.sizes[group], number)
                for number, (group, _) in enumerate(self.across[place])
                if room[self.onward[group]]
            ]
            gaps.sort(reverse=True)
            self._pour(place, gaps)

    def _pour(self, place: int, gaps: list[tuple[float, int]]) -> None:
        room, into, across = self.net.room, self.into[place], self.across[place]
        height = _height(room[into], [(gap, self.sizes[across[number][0]]) for gap, number in gaps])
        for gap, number in gaps:
            group, arc = across[number]
            wanted = int((gap - height) * self.sizes[group] + 0.999)
            amount = min(room[into], room[self.onward[group]], wanted)
            if amount > 0:
                self.net.send((into, arc, self.onward[group]), amount)


def _height(units: int, gaps: list[tuple[float, int]]) -> float:
    """The gap that stays open everywhere once `units` are poured into the widest `gaps` (sorted, widest first)."""
    poured = 0.0
    width = 0
    for place, (gap, size) in enumerate(gaps):
        width += size
        poured += gap * size
        following = gaps[place + 1][0] if place + 1 < len(gaps) else 0.0
        if poured - following * width >= units:
            return (poured - units) / width
    return 0.0
