"""A node as the HTTP listener asks it: it has conditions, shards, and answers that a test gives by method."""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.group_history import GroupHistory
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.web.http.node_port import (
    NOBODY,
    CoordinatingNode,
    Exposition,
    HttpCaller,
    HttpRefusal,
    NodeFacts,
    NodeHealth,
)


class AskedNode:
    """Implements `muster.coordinator.web.http.node_port.NodePort`. What it was asked is in `asked`, oldest first."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.history = GroupHistory(10_000)
        self.changes = GroupChanges("test")
        self.conditions = Conditions(lambda: self.now_ms)
        self.shards = dict.fromkeys(range(4), True)
        self.draining = False
        self.watched = ""
        """What coordinates its groups, if not it."""
        self.owners: dict[str, CoordinatingNode] = {}
        """Of the groups that other nodes coordinate."""
        self.led: frozenset[int] | None = None
        self.asked: list[tuple[str, Message, HttpCaller]] = []
        self.answers: dict[str, Callable[[Any], Message]] = {}
        self._started = True
        self.exposition = [b"# TYPE a gauge\n", b"a 1\n"]
        self.accepted: list[str] = []

    def load(self, shard: int, *, done: bool) -> None:
        """The shard is loaded, or is being loaded (again)."""
        self.shards[shard] = done
        self._started = self._started or all(self.shards.values())

    def starting(self) -> None:
        self.shards = dict.fromkeys(self.shards, False)
        self._started = False

    async def call(self, method: str, request: Message, by: HttpCaller = NOBODY) -> Message:
        self.asked.append((method, request, by))
        if self.draining:
            raise HttpRefusal(503, "DRAINING", "the node is being stopped")
        return self.answers[method](request)

    async def metrics(self, accept: str) -> Exposition:
        self.accepted.append(accept)
        return Exposition("text/plain; version=0.0.4; charset=utf-8", self.exposition)

    def sees_figures(self, group: str) -> bool:
        return True

    def sees_group(self, group: str) -> bool:
        return True

    def owner(self, group: str) -> CoordinatingNode | None:
        return self.owners.get(group)

    def leads(self) -> frozenset[int] | None:
        return self.led

    def sees_node(self) -> bool:
        return True

    def log_bytes(self, places: Sequence[tuple[str, int]]) -> Sequence[int]:
        return [0] * len(places)

    def health(self) -> NodeHealth:
        loading = tuple(shard for shard, loaded in self.shards.items() if not loaded)
        return NodeHealth(self._started, self.draining, loading, self.conditions.current())

    def node(self) -> NodeFacts:
        return NodeFacts(
            7, "0.1.0", "127.0.0.1:9290", "", "127.0.0.1:9291", self.now_ms, len(self.shards), self.watched
        )
