"""What a client knows of a cluster: its nodes, and who leads which partition (docs/clients.md).

Until an answer of Metadata tells of a cluster there is one node, which is asked for everything, and nothing here costs
a call. From then on records are produced and fetched where their partition is led. Who is refused or finds nobody
there doubts the leader: Metadata is asked for again, by one call for all who doubt, and a little later each time.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

from muster.client.calls.methods import METADATA, ClientMethod
from muster.client.errors import ClientError, Refused, Unreachable, refusal
from muster.client.members.coordinator_link import Backoff
from muster.client.twins import BackgroundTasks
from muster.client.types import TopicPartition
from muster.coordinator.observability.views.formatting import host_and_port
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.config import ClientConfig
    from muster.client.types import ConnectionConfig

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")

UNKNOWN_TOPIC: Final = 3
NO_LEADER: Final = 5
MOVED: Final = frozenset({5, 6, 74, 75})
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH: somebody else may lead."""
MAYBE_MOVED: Final = MOVED | {3, 56, 100}
"""In a cluster also where a topic is not known (a node may be behind), and where a log is out of order."""
NOT_YET: Final = MAYBE_MOVED | {78}
"""And where a leader is new: OFFSET_NOT_AVAILABLE."""

BACKOFF_MS: Final = 100
BACKOFF_MAX_MS: Final = 1_000
LOOK_MS: Final = 3_000
"""What a node has at hand it says at once: after so long without a word another one is asked."""
ANSWER_MS: Final = 6_000
"""A coordinator gives an answer up that could not be committed for 5 s (offsets.commit.timeout.ms)."""
SUSPECT_MS: Final = 1_000
"""A leader that is silent for so long beyond what it was given may be one no more."""
MAX_TOPICS: Final = 100_000

KAFKA: Final = "kafka"
"""What a node says that has no records itself."""

ONE_NODE: Final = ""
"""The place of every partition where there is one node, or none is known to be another's."""


class LeaderTransport(Protocol):
    """What is asked of `transport.Transport`."""

    @property
    def config(self) -> "ClientConfig | ConnectionConfig": ...

    def know(self, nodes: list[str]) -> None: ...

    def announce(self, error: Unreachable) -> None: ...

    async def call(
        self,
        method: ClientMethod[Request, Response],
        request: Request,
        *,
        doing: str,
        address: str | None = None,
        timeout_ms: int | None = None,
    ) -> Response: ...


class PartitionLeader(NamedTuple):
    node_id: int
    epoch: int


NO_KNOWN_LEADER: Final = PartitionLeader(-1, -1)


@dataclass(slots=True)
class _Topic:
    topic_id: bytes
    leaders: dict[int, PartitionLeader] = field(default_factory=dict)


class PartitionLeaders:
    """Lives on the transport's loop. `shared` is False for good where nodes share no cluster."""

    def __init__(self, transport: LeaderTransport) -> None:
        self.shared = False
        self.in_cluster = False
        """A node has said so; the others may not be known yet."""
        self.records = ""
        """Where the Kafka cluster is that has the records, HOST:PORT by comma; empty: the nodes have them."""
        self._transport = transport
        self._nodes: dict[int, str] = {}
        self._topics: dict[str, _Topic] = {}
        self._missing: set[str] = set()
        self._doubted: set[TopicPartition] = set()
        self._wanted: set[str] = set()
        self._curious = False
        self._leaderless = False
        self._listeners: list[Callable[[], None]] = []
        self._backoff = Backoff(BACKOFF_MS, BACKOFF_MAX_MS)
        self._looked_ms: int | None = None
        self._learned_ms = 0
        self._background = BackgroundTasks()
        self._task: asyncio.Task[None] | None = None
        self._news: asyncio.Future[None] | None = None

    # What is known

    @property
    def nodes(self) -> list[str]:
        """HOST:PORT of every node of the cluster; nothing while none is known."""
        return [self._nodes[number] for number in sorted(self._nodes)]

    def leader(self, tp: TopicPartition) -> PartitionLeader:
        topic = self._topics.get(tp[0])
        return NO_KNOWN_LEADER if topic is None else topic.leaders.get(tp[1], NO_KNOWN_LEADER)

    def epoch(self, tp: TopicPartition) -> int:
        """Of the leader that is asked; -1: not known."""
        return self.leader(tp).epoch if self.shared else -1

    def route(self, tp: TopicPartition) -> str | None:
        """HOST:PORT of its leader; ONE_NODE where one node has everything; None: not known at the moment."""
        if tp in self._doubted:
            return None
        return self._nodes.get(self.leader(tp).node_id) if self.shared else ONE_NODE

    def routed(self, places: Iterable[TopicPartition]) -> tuple[dict[str, list[TopicPartition]], list[TopicPartition]]:
        """These by where they are led, and those of which that is not known."""
        by_leader: dict[str, list[TopicPartition]] = {}
        unknown: list[TopicPartition] = []
        for tp in places:
            address = self.route(tp)
            if address is None:
                unknown.append(tp)
            else:
                by_leader.setdefault(address, []).append(tp)
        return by_leader, unknown

    def leading(self, topic: str) -> set[int]:
        """The ids of the nodes that lead its partitions; -1 among them where nobody leads one."""
        known = self._topics.get(topic)
        return set() if known is None else {leader.node_id for leader in known.leaders.values()}

    def address(self, node_id: int) -> str | None:
        """HOST:PORT of a node of the cluster."""
        return self._nodes.get(node_id)

    def is_missing(self, topic: str) -> bool:
        """Whether there is no such topic, by the last word on it."""
        return topic in self._missing

    def doubt_missing(self, topics: Iterable[str]) -> None:
        """They may have been made since it was said that there are none: the next look tells."""
        self._missing.difference_update(topics)

    def why_not(self, tp: TopicPartition) -> Refused:
        """What to say of a partition that has no route."""
        about = f"{tp[0]}-{tp[1]}"
        if tp[0] in self._missing:
            return refusal(UNKNOWN_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic", about)
        return refusal(NO_LEADER, "LEADER_NOT_AVAILABLE", "nobody is known to lead it right now", about)

    def learn(self, answer: pb.MetadataResponse) -> None:
        """Take in what a node says of its cluster; of a leader epoch that is over nothing is taken."""
        if not answer.HasField("controller_id"):
            return
        moved = not self.shared
        self._learned_ms = steady_ms()
        self.shared = self.in_cluster = True
        if answer.brokers:
            nodes = {node.node_id: host_and_port(node.host, node.port) for node in answer.brokers}
            records = next((node.records_bootstrap for node in answer.brokers if node.records == KAFKA), "")
            moved |= nodes != self._nodes or records != self.records
            self._nodes, self.records = nodes, records
            self._transport.know(self.nodes)
        for topic in answer.topics:
            if topic.error_code == UNKNOWN_TOPIC:
                self._missing.add(topic.name)
            if topic.error_code:
                continue
            self._missing.discard(topic.name)
            known = self._topics.get(topic.name)
            if known is None or known.topic_id != topic.topic_id:
                known = self._topics[topic.name] = _Topic(topic.topic_id)
            for partition in topic.partitions:
                before = known.leaders.get(partition.partition_index, NO_KNOWN_LEADER)
                after = PartitionLeader(partition.leader_id, partition.leader_epoch)
                if after.epoch >= before.epoch and after != before:
                    known.leaders[partition.partition_index] = after
                    moved = True
        while len(self._topics) > MAX_TOPICS:
            del self._topics[next(iter(self._topics))]
        while len(self._missing) > MAX_TOPICS:
            self._missing.pop()
        self._notify_listeners(moved=moved)

    # Doubt

    def doubt(self, places: Iterable[TopicPartition], instead: "pb.LeaderIdAndEpoch | None" = None) -> None:
        """Whoever is thought to lead these does not, or cannot be reached. `instead`: who leads, by the refusal."""
        for tp in places:
            if instead is not None and instead.leader_epoch > self.epoch(tp) and instead.leader_id in self._nodes:
                topic = self._topics.setdefault(tp[0], _Topic(b""))
                topic.leaders[tp[1]] = PartitionLeader(instead.leader_id, instead.leader_epoch)
                self._doubted.discard(tp)
                self._notify_listeners(moved=True)
            else:
                self._doubted.add(TopicPartition(*tp))
        self._start_refresh()

    def refresh_leaders(self, places: Iterable[TopicPartition]) -> None:
        """Ask anew who leads these, and go on with what is known meanwhile."""
        for tp in places:
            self._wanted.add(tp[0])
            self._leaderless |= self.route(tp) is None
        self._start_refresh()

    def hear(self, *, in_cluster: bool) -> None:
        """A node says whether it is one of a cluster: if so, find out who the others are, should this one go."""
        if in_cluster and not self.shared:
            self.in_cluster = self._curious = True
            self._start_refresh()

    async def all_nodes(self) -> list[str]:
        """HOST:PORT of every node of the cluster, as it is told now; nothing where nodes share none."""
        doing = "looking up the nodes"
        await self._transport.call(METADATA, pb.MetadataRequest(), doing=doing, timeout_ms=self.look_ms)
        return self.nodes

    async def news(self) -> None:
        """Wait until something was heard of leaders, and no longer than a look at them takes its turn."""
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._news}, timeout=BACKOFF_MAX_MS / 1000)

    async def settled(self, places: Iterable[TopicPartition]) -> None:
        """Wait, not for long, where it is being found out who leads these."""
        if self._task is not None and not self._task.done() and any(self.route(tp) is None for tp in places):
            await self.news()

    def listen(self, listener: Callable[[], None]) -> None:
        """Called whenever what is known of leaders has changed, and when it was looked for one that was not known."""
        self._listeners.append(listener)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _start_refresh(self) -> None:
        if (self._doubted or self._wanted or self._curious) and (self._task is None or self._task.done()):
            self._task = self._background.start(self._ask_around())

    async def _ask_around(self) -> None:
        while self._doubted or self._wanted or self._curious:
            await self._wait_for_turn()
            doubted, wanted = set(self._doubted), set(self._wanted)
            waiting, self._leaderless = bool(doubted) or self._leaderless, False
            request = pb.MetadataRequest(topics=sorted(wanted | {tp.topic for tp in doubted}))
            try:
                await self._transport.call(METADATA, request, doing="looking up leaders", timeout_ms=self.look_ms)
            except Unreachable as error:
                self._transport.announce(error)
                self._leaderless |= waiting
                continue
            except ClientError:
                pass  # Whoever asks for the records themselves hears the same.
            self._curious = False
            self._wanted -= wanted
            # Those that have no leader still are asked for again by whoever wants them.
            self._doubted -= doubted
            self._notify_listeners(moved=waiting)

    async def _wait_for_turn(self) -> None:
        """At once after a quiet time; otherwise 100 ms after the last look, doubled to a second."""
        now = steady_ms()
        if self._looked_ms is not None:
            if now - self._looked_ms > 2 * BACKOFF_MAX_MS:
                self._backoff.reset()
            else:
                await asyncio.sleep(max(0, self._looked_ms + self._backoff.next_ms() - now) / 1000)
        self._looked_ms = steady_ms()

    @property
    def answer_ms(self) -> int | None:
        """How long to wait for a group's coordinator, which answers within offsets.commit.timeout.ms there; or None."""
        return min(ANSWER_MS, self._transport.config.request_timeout_ms) if self.shared else None

    def heartbeat_ms(self, session_timeout_ms: int, interval_ms: int) -> int:
        """How long to wait for the answer to a heartbeat: in a cluster somebody else may be the coordinator by now."""
        most = min(self._transport.config.request_timeout_ms, session_timeout_ms)
        return min(most, max(interval_ms, SUSPECT_MS)) if self.shared else most

    @property
    def look_ms(self) -> int | None:
        """How long to wait for what any node can say; None, as long as for anything, where there is one node."""
        return min(LOOK_MS, self._transport.config.request_timeout_ms) if self.shared else None

    def _notify_listeners(self, *, moved: bool) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        for listener in self._listeners if moved else ():
            listener()

    # Calls

    async def ask_leader(
        self,
        method: ClientMethod[Request, Response],
        request: Request,
        *,
        doing: str,
        address: str,
        places: list[TopicPartition],
        timeout_ms: int | None = None,
        parked_ms: int = 0,
    ) -> Response:
        """One attempt at the leader of `places`, given up once another leads one of them. Raises as
        `LeaderTransport.call`.

        parked_ms: so long it may be silent by right.
        """
        transport = self._transport
        if address == ONE_NODE:
            return await transport.call(method, request, doing=doing, timeout_ms=timeout_ms)
        began_ms = steady_ms()
        if began_ms - self._learned_ms >= transport.config.metadata_max_age_ms:
            self.refresh_leaders(places)
        call = asyncio.ensure_future(
            transport.call(method, request, doing=doing, address=address, timeout_ms=timeout_ms)
        )
        try:
            patience_ms = parked_ms + SUSPECT_MS
            while True:
                await asyncio.wait({call}, timeout=patience_ms / 1000)
                if call.done():
                    return call.result()
                if any(self._nodes.get(self.leader(tp).node_id) != address for tp in places):
                    raise Unreachable(address, steady_ms() - began_ms, doing, "it does not lead any more")
                self.refresh_leaders(places)
                patience_ms = SUSPECT_MS
        finally:
            if not call.done():
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)


def steady_ms() -> int:
    return time.monotonic_ns() // 1_000_000
