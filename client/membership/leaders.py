"""Which of the registered nodes a consumer of the ZooKeeper era reads from: the one that leads its topics.

A node on its own is a log of its own, so the wrong one knows nothing of a topic, and would answer with nothing for
ever. Of nodes that share a cluster each says who leads what; any of them is a beginning.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from muster.client.members.zookeeper_types import STATIC, ConsumerGroupView, GroupRegistration
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession

log = logging.getLogger("muster.client")

BETWEEN_NODES: Final = "REPLICATION"
"""The listener that nodes of a cluster register for each other."""


class TopicsLedApart(ZooKeeperError):
    """The topics of one consumer are led by several nodes."""


class TopicLeaderSearch:
    """`use` gets the nodes to speak to. What bootstrap.servers has `named` stays in use instead."""

    def __init__(self, session: ZooKeeperSession, use: Callable[[Sequence[str]], None], named: Sequence[str]) -> None:
        self._session = session
        self._use = use
        self._named = named
        self._leader: int | None = None
        self._said: set[str] = set()

    async def look(self, view: ConsumerGroupView, mine: GroupRegistration, topics: Mapping[str, int]) -> None:
        """Speak to whoever leads `topics` (topic -> broker id), and say what keeps this consumer from reading.

        Raises LedApart.
        """
        self._say_what_is_missing(view, mine)
        apart = find_split_leaders(topics)
        if apart and not (await read_registered_nodes(self._session)).shared:
            raise TopicsLedApart(f"{apart}; read them with a consumer, and in a group, for each node")
        if topics and self._leader != (leader := next(iter(topics.values()))):
            self._leader = leader
            await self.search()

    async def search(self) -> bool:
        """Speak to the leader, or, while no topic says who that is, to any node. Whether one is registered."""
        doors, shared = await read_registered_nodes(self._session)
        chosen = [door for broker_id, door in doors.items() if shared or self._leader in (None, broker_id)]
        if chosen and not self._named:
            self._use(chosen)
        elif chosen and not shared and self._leader is not None and not set(chosen) & set(self._named):
            self._say_once(
                f"the topics of this consumer are led by node {self._leader} at {chosen[0]}, which bootstrap.servers "
                f"({', '.join(self._named)}) does not name: unless it is the same node, there is nothing to read; "
                "leave bootstrap.servers out, and the node is found by its registration"
            )
        return bool(chosen)

    def _say_what_is_missing(self, view: ConsumerGroupView, mine: GroupRegistration) -> None:
        where = self._session.connect
        if not view.brokers:
            self._say_once(
                f"no broker is registered in {layout.BROKER_IDS} of {where}, so nothing is assigned anew until one is; "
                "is zookeeper.connect right, and its chroot?"
            )
        named = mine.subscription if mine.pattern == STATIC else ()
        for topic in sorted(set(named) - set(view.partitions)):
            self._say_once(f"there is no topic {topic!r} in {layout.BROKER_TOPICS} of {where}; waiting for it")

    def _say_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", what)


def find_split_leaders(topics: Mapping[str, int]) -> str:
    """Which topics are led by which nodes, when there is more than one; else nothing.

    >>> find_split_leaders({"a": 1, "b": 1}), find_split_leaders({"b": 2, "a": 1})
    ('', 'every node is a log of its own, and these topics are led by different ones: a by node 1, b by node 2')
    """
    first = {leader: topic for topic, leader in sorted(topics.items(), reverse=True)}
    if len(first) < 2:
        return ""
    named = ", ".join(f"{topic} by node {leader}" for leader, topic in sorted(first.items()))
    return f"every node is a log of its own, and these topics are led by different ones: {named}"


class RegisteredNodes(NamedTuple):
    """HOST:PORT of every registered node that answers gRPC, by broker id, and whether they share a cluster."""

    doors: dict[int, str]
    shared: bool


async def read_registered_nodes(session: ZooKeeperSession) -> RegisteredNodes:
    """Raises MalformedZnode."""
    ids = [int(each) for each in await session.children(layout.BROKER_IDS) or () if layout.is_decimal(each)]

    async def registered(broker_id: int) -> layout.BrokerZnode | None:
        path = layout.broker_path(broker_id)
        node = await session.get(path)
        return layout.read_broker(path, node.data) if node is not None else None

    wanted = sorted(ids)
    found = {
        broker_id: each
        for broker_id, each in zip(wanted, await gather_bounded(wanted, registered), strict=True)
        if each is not None
    }
    doors = {broker_id: host_and_port(*each.grpc) for broker_id, each in found.items() if each.grpc is not None}
    return RegisteredNodes(doors, any(each.door(BETWEEN_NODES) is not None for each in found.values()))
