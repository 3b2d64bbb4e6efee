"""Exact sticky balance where subscriptions or racks differ.

Promise, in this order: the least sum of squared loads, then the fewest partitions read across racks, then the fewest
partitions taken from a rightful owner. It is a minimum-cost flow: units of a pool (a topic, or the partitions of one
with the same racks) flow to groups of members that are alike.

Members with equal subscriptions form one group. Where subscriptions differ, perfect evenness may be out of reach; the
least sum of squared loads is then unique up to which member within a level gets one more (S. Fujishige's
decomposition; A. Frank and others). The flow is primal-dual: send as much as possible along paths of no reduced cost
(Dinic), lift the potentials (Dijkstra), repeat. Arcs carry many units together, so the work follows the number of arcs
and of distinct costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from muster.assignors.data.values import NOBODY

# Minimum-cost flow
# -----------------

UNLIMITED = 1 << 60
_FAR = 1 << 60


class Network:
    """Nodes 0 .. n-1, then a source and a sink. Arc e and its reverse are e and e ^ 1."""

    def __init__(self, nodes: int) -> None:
        self.source = nodes
        self.sink = nodes + 1
        self.out: list[list[int]] = [[] for _ in range(nodes + 2)]
        self.head: list[int] = []
        self.room: list[int] = []
        self.cost: list[int] = []
        self.potential = [0] * (nodes + 2)

    def add(self, tail: int, head: int, room: int, cost: int = 0, flow: int = 0) -> int:
        """Add an arc with `room` left beside `flow` already on it; answers its number.

        Every arc with room must cost 0 or more, and every arc with flow 0 or less, so that the start
        is optimal for what it carries.
        """
        heads = self.head
        number = len(heads)
        heads += (head, tail)
        self.room += (room, flow)
        self.cost += (cost, -cost)
        self.out[tail].append(number)
        self.out[head].append(number + 1)
        return number

    def flow(self, arc: int) -> int:
        return self.room[arc ^ 1]

    def send(self, path: Sequence[int], amount: int) -> None:
        for arc in path:
            self.room[arc] -= amount
            self.room[arc ^ 1] += amount

    def run(self) -> None:
        """Send all that can be sent from source to sink, at the least total cost."""
        self.saturate()
        while self.lift_potentials():
            self.saturate()

    def saturate(self) -> None:
        """Send all that can go along arcs of no reduced cost."""
        while (depth := self._depths()) is not None:
            self._blocking_flow(depth)

    def reachable(self) -> list[bool]:
        """Which nodes the source still reaches; the arcs out of that set are a minimum cut."""
        room, head = self.room, self.head
        seen = [False] * len(self.out)
        seen[self.source] = True
        stack = [self.source]
        while stack:
            for arc in self.out[stack.pop()]:
                if room[arc] and not seen[head[arc]]:
                    seen[head[arc]] = True
                    stack.append(head[arc])
        return seen

    def lift_potentials(self) -> bool:
        """Make the cheapest remaining path free of reduced cost; False when no path remains."""
        room, head, cost, potential = self.room, self.head, self.cost, self.potential
        distance = [_FAR] * len(self.out)
        distance[self.source] = 0
        heap = [(0, self.source)]
        while heap:
            far, node = heappop(heap)
            if far > distance[node]:
                continue
            if node == self.sink:
                break  # What lies farther is lifted by the sink's distance, which keeps it valid.
            base = far + potential[node]
            for arc in self.out[node]:
                if room[arc]:
                    to = head[arc]
                    there = base + cost[arc] - potential[to]
                    if there < distance[to]:
                        distance[to] = there
                        heappush(heap, (there, to))
        limit = distance[self.sink]
        if limit == _FAR:
            return False
        for node, far in enumerate(distance):
            potential[node] += min(far, limit)
        return True

    def _depths(self) -> list[int] | None:
        room, head, cost, potential = self.room, self.head, self.cost, self.potential
        depth = [-1] * len(self.out)
        depth[self.source] = 0
        layer = [self.source]
        step = 0
        while layer and depth[self.sink] < 0:
            step += 1
            following: list[int] = []
            for node in layer:
                base = potential[node]
                for arc in self.out[node]:
                    to = head[arc]
                    if depth[to] < 0 and room[arc] and cost[arc] + base == potential[to]:
                        depth[to] = step
                        following.append(to)
            layer = following
        return depth if depth[self.sink] >= 0 else None

    def _blocking_flow(self, depth: list[int]) -> None:
        room, head, cost, potential, out = self.room, self.head, self.cost, self.potential, self.out
        turn = [0] * len(out)
        path: list[int] = []
        node = self.source
        while True:
            if node == self.sink:
                self.send(path, min(room[arc] for arc in path))
                # Go back to before the first arc that is now full.
                for place, arc in enumerate(path):
                    if not room[arc]:
                        node = head[arc ^ 1]
                        del path[place:]
                        break
                continue
            arcs, place, base, below = out[node], turn[node], potential[node], depth[node] + 1
            while place < len(arcs):
                arc = arcs[place]
                to = head[arc]
                if room[arc] and depth[to] == below and cost[arc] + base == potential[to]:
                    break
                place += 1
            turn[node] = place
            if place < len(arcs):
                path.append(arcs[place])
                node = to
            elif path:
                node = head[path.pop() ^ 1]
                turn[node] += 1
            else:
                return


# The fairest loads
# -----------------


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


# The balance
# -----------

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
