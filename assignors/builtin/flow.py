"""Minimum-cost flow on small integer networks: the exact engine behind the sticky assignors.

Primal-dual: send as much as possible along paths of no reduced cost (Dinic), lift the potentials
(Dijkstra), repeat. Arcs carry many units at once, so the work follows the number of arcs and of
distinct path costs, not the number of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

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
