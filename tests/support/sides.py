"""Nodes of a cluster in one process, for all that they say to each other: doors on loopback, real logs, and a
controller whose writes are done by hand at once instead of by ZooKeeper."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from muster.coordinator.config import Address
from muster.coordinator.config.cluster import ClusterSettings
from muster.coordinator.edge.cluster_view import monotonic_ms, wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.inbound_requests import ControllerSide, CurrentController
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.io.replicated_requests import ReplicatedRequests
from muster.coordinator.replication.io.wire.node_api import NodeName
from muster.coordinator.replication.io.wire.node_links import REPLICATION, LinkCaller, LinkSettings
from muster.coordinator.replication.io.wire.node_listener import NodeListener
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterNode,
    ClusterTopic,
    ImageVersion,
    NodeEndpoint,
    PartitionState,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.controller import Controller
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.replication.protocol.controller.events_and_effects import IsrItem, OfflineReplica
from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.logs.log import Log
from tests.fakes.controller_desk import NoControllerDesk
from tests.support.led_side import UnchangedTopics
from tests.support.pace import pace
from tests.unit.storage.logs import batch

CLUSTER = "c9vPX0gkTYG0pVvlwLZ_sQ"
CONTROLLER = 9
PATIENCE_S = 60.0
SETTINGS = ClusterSettings.model_validate(
    {
        "replica.fetch.wait.max.ms": 100,
        "replica.fetch.backoff.ms": 20,
        "replica.lag.time.max.ms": 2_000,
        "replica.high.watermark.checkpoint.interval.ms": 50,
    }
)


class Standing:
    """The controller's machine behind a door of its own, which outlives all nodes."""

    def __init__(self) -> None:
        self.machine = Controller(
            ControllerSettings(offsets_replicas=99, internal=(), eviction=False, auto_rebalance=False)
        )
        self.states: dict[TopicPartition, PartitionState] = {}
        self.nodes: dict[int, ClusterNode] = {}
        self.topics: tuple[ClusterTopic, ...] = ()
        self.door = NodeListener(Address("127.0.0.1", 0))
        self._requests = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._epochs = count(100)
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        self.door.bind()
        await self.door.start(self, CLUSTER)  # type: ignore[arg-type]
        self._step(events_and_effects.ControllerElected(CONTROLLER, 1, 0, events_and_effects.ClusterVersion()))
        self._step(events_and_effects.NodesRead({}))

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.door.close(0)

    def register(self, node: int, directory: str, address: Address) -> int:
        epoch = next(self._epochs)
        self.nodes[node] = ClusterNode(node, epoch, directory, False, (NodeEndpoint(REPLICATION, *address),))
        self._step(events_and_effects.NodesRead(dict(self.nodes)))
        return epoch

    def lost(self, node: int) -> None:
        """Its session is over."""
        del self.nodes[node]
        self._step(events_and_effects.NodesRead(dict(self.nodes)))

    def make(self, *topics: ClusterTopic) -> None:
        self.topics = topics
        self._step(events_and_effects.TopicsRead(topics, complete=True))

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> Any:
        return await self._asked(
            lambda request: events_and_effects.AlterPartitionRequested(request, node.id, node.epoch, items)
        )

    async def cluster_state(
        self, node: NodeName, known: ImageVersion, offline: tuple[OfflineReplica, ...], max_wait_ms: int
    ) -> Any:
        return await self._asked(
            lambda request: events_and_effects.ImagePolled(request, node.id, node.epoch, known, offline, max_wait_ms)
        )

    async def _asked(self, make: Callable[[int], events_and_effects.ControllerEvent]) -> Any:
        request = next(self._requests)
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        self._step(make(request))
        return await answer

    def _step(self, event: events_and_effects.ControllerEvent) -> None:
        for effect in self.machine.step(event, monotonic_ms()):
            self._do(effect)

    def _do(self, effect: events_and_effects.ControllerEffect) -> None:
        loop = asyncio.get_running_loop()
        match effect:
            case events_and_effects.WriteMulti():
                for each in effect.operations:
                    assert isinstance(each, events_and_effects.PutPartitionState)
                    self.states[each.place] = each.state
                loop.call_soon(self._step, events_and_effects.MultiWritten(effect.sequence))
            case events_and_effects.ReadPartitionStates():
                loop.call_soon(self._step, events_and_effects.TopicsRead(self.topics, complete=True))
                loop.call_soon(self._step, events_and_effects.StatesRead({}, events_and_effects.ClusterVersion()))
            case events_and_effects.Respond(request, body):
                answer = self._answers.pop(request, None)
                if answer is not None and not answer.done():
                    answer.set_result(body)
            case events_and_effects.WakeControllerAt(at_ms):
                if self._timer is not None:
                    self._timer.cancel()
                wait_s = max(0, at_ms - monotonic_ms()) / 1000
                self._timer = loop.call_later(wait_s, self._step, events_and_effects.ControllerTick())


class Watched(ReplicaManager):
    """Says when anything has happened."""

    happened: asyncio.Event

    def settle(self) -> None:
        super().settle()
        if hasattr(self, "happened"):
            self.happened.set()


class SideNode:
    """One node: a life of it from `start` to `stop` or `kill`."""

    def __init__(self, node: int, directory: Path, standing: Standing, happened: asyncio.Event) -> None:
        self.id = node
        self._directory = directory
        self._standing = standing
        self._happened = happened
        self.epoch = NO_EPOCH
        self.refused: list[int] = []
        self.ahead_ms = 0
        """By how much its clock is ahead: made more, it has stood still for so long."""
        self.broker: Broker
        self.side: Watched
        self.led: ReplicatedLog
        self.requests: ReplicatedRequests

    async def start(self) -> None:
        self.broker = Broker(self._directory, LogSettings(), node_id=self.id, cluster_id=CLUSTER)
        door = NodeListener(Address("127.0.0.1", 0))
        door.bind()
        around = ControllerSide(
            lambda: CurrentController(CONTROLLER, self._standing.door.bound),
            lambda: self.epoch,
            lambda: None,
            self.refused.append,
            NoControllerDesk(),
        )
        self.side = Watched(
            self.broker, door, SETTINGS, LinkSettings(LinkCaller(CLUSTER, self.id)), around, self.now_ms
        )
        self.side.happened = self._happened
        self.led = ReplicatedLog(self.broker, self.side)
        self.requests = ReplicatedRequests(self.led, self.side, UnchangedTopics())
        await self.side.start()
        self.epoch = self._standing.register(self.id, self.broker.identity.directory_id, door.bound)
        self.side.registered(self.epoch)

    def now_ms(self) -> int:
        return monotonic_ms() + self.ahead_ms

    async def stop(self) -> None:
        await self.requests.close()
        await self.side.stop(0)
        self.broker.close()

    async def kill(self) -> None:
        """Nothing is flushed, nothing written down; what was written is the operating system's."""
        await self.side.abandon()
        self.broker._lock.release()

    def log(self, place: TopicPartition) -> Log:
        return self.broker.log(*place)

    def leads(self, place: TopicPartition) -> bool:
        return place in self.side.replicas.led

    def write(self, place: TopicPartition, *values: bytes) -> int:
        """As the leader, without a word to anybody; where the log ends then."""
        self.log(place).append(batch(*values), wall_ms())
        return self.log(place).end_offset

    async def produce(self, place: TopicPartition, *values: bytes) -> ErrorCode:
        """acks=all."""
        code = self.side.replicas.led[place].leader.may_append(-1)
        if code is not ErrorCode.NONE:
            return code
        return await self.side.appended(place, self.write(place, *values))


class Sides:
    """Three nodes and their controller."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        self.happened = asyncio.Event()
        self.standing = Standing()
        self.nodes = [
            SideNode(node, directory / str(node), self.standing, self.happened) for node in range(1, nodes + 1)
        ]
        self.up: list[SideNode] = []

    def __iter__(self) -> Iterator[SideNode]:
        return iter(self.nodes)

    async def __aenter__(self) -> Self:
        await self.standing.start()
        for node in self.nodes:
            await self.start(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.up:
            with suppress(Exception):
                await node.stop()
        await self.standing.stop()

    async def start(self, node: SideNode) -> None:
        await node.start()
        self.up.append(node)

    async def stop(self, node: SideNode) -> None:
        self.up.remove(node)
        await node.stop()
        self.standing.lost(node.id)

    async def kill(self, node: SideNode) -> None:
        self.up.remove(node)
        await node.kill()
        self.standing.lost(node.id)

    async def leader(self, place: TopicPartition) -> SideNode:
        await self.until(lambda: any(node.leads(place) for node in self.up))
        return next(node for node in self.up if node.leads(place))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Looked at whenever anything happens on a node."""
        async with asyncio.timeout(PATIENCE_S * pace()):
            while not condition():
                self.happened.clear()
                await self.happened.wait()


def unheard(why: BaseException) -> None:
    """Of tasks under test none fails."""
    raise AssertionError("a task failed") from why
