"""What any node of three takes about topics, elections and reassignments, at a real ZooKeeper (CL-A1 to CL-A5, CL-A7,
CL-A8)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin.cluster_admin import ClusterAdmin, ImageWaits
from muster.coordinator.replication.io.admin.topic_admin import ClusterTopics, TopicPlanner
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    ClusterNodeStatus,
    PartitionView,
    TopicPartition,
)
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.storage.broker.requests import MorePartitions, NewTopic
from muster.storage.errors import StorageError
from muster.storage.types import Topic
from tests.integration.conftest import Run
from tests.integration.replication.test_joining import JoiningNode

pytestmark = pytest.mark.integration

T0 = TopicPartition("t", 0)
SOON = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "100"}


class Administered(JoiningNode):
    async def start(self) -> None:
        await super().start()
        joined, number = self.joined, iter(range(1, 1000))
        self.image = joined.side.image
        self.showing = ImageWaits(self.image, joined.side.on_learned)
        self.topics = ClusterTopics(
            joined.session,
            self.showing,
            TopicPlanner(self.image, self.settings, 3),
            lambda: bytes([self.id, 0, next(number)]) * 5 + b"!",
        )
        self.admin = ClusterAdmin(joined.session, self.showing)

    async def shows(self, what: Callable[[], bool]) -> None:
        assert await self.showing.until(what, asyncio.get_running_loop().time() + 30)

    def view(self, place: TopicPartition = T0) -> PartitionView:
        view = self.image.partition(place)
        assert view is not None
        return view


@asynccontextmanager
async def together(connect: str, directory: Path) -> AsyncIterator[list[Administered]]:
    async with AsyncExitStack() as stack:
        nodes = [Administered(node, connect, directory / str(node), **SOON) for node in (1, 2, 3)]
        for node in nodes:
            stack.push_async_callback(node.stop)
            await node.start()
        for node in nodes:
            stack.push_async_callback(node.topics.close)
            await node.shows(lambda node=node: len(node.image.live()) == 3)  # type: ignore[misc]
        yield nodes


def code_of(result: Topic | StorageError | None) -> int:
    return result.code if isinstance(result, StorageError) else 0


def test_topics_are_made_grown_set_and_removed_by_any_node(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with together(zookeeper, tmp_path) as (one, two, three):
            # A race has one winner; whoever is answered sees it.
            wanted = [NewTopic("t", 2, {"min.insync.replicas": "1"})]
            results = [(await each)[0] for each in [asyncio.ensure_future(n.topics.create(wanted)) for n in (one, two)]]
            assert sorted(map(code_of, results)) == [0, 36]
            (made,) = [each for each in results if isinstance(each, Topic)]
            assert (made.partitions, made.configs) == (2, {"min.insync.replicas": "1"})
            for node in (one, two, three):
                await node.shows(lambda node=node: "t" in node.image.topics)  # type: ignore[misc]
            assert set(two.view().replicas) == {1, 2, 3}
            refused = await three.topics.create(
                [NewTopic("t", 1), NewTopic("f", 1, {}, 4), NewTopic("c", 1, {"x": ""})]
            )
            assert list(map(code_of, refused)) == [36, 38, 40]

            grown = await three.topics.grow([MorePartitions("t", 4, [(3,), (1, 2, 3)]), MorePartitions("none", 2)])
            assert list(map(code_of, grown)) == [39, 3]
            (grown_t,) = await three.topics.grow([MorePartitions("t", 4, [(3, 1, 2), (2, 1, 3)])])
            assert isinstance(grown_t, Topic)
            assert (grown_t.partitions, three.view(TopicPartition("t", 3)).replicas) == (4, (2, 1, 3))
            assert isinstance((await one.topics.grow([("t", 5)]))[0], Topic)

            # Several at once: each from what the one before has left, none is lost.
            await three.shows(lambda: three.image.topics["t"].configs == made.configs)

            def longer(node: Administered, name: str) -> Callable[[], dict[str, str]]:
                return lambda: {name: str(len(node.image.topics["t"].configs))}

            names = ("flush.ms", "retention.ms", "segment.ms")
            changed = await asyncio.gather(
                *(
                    node.topics.change([("t", longer(node, name))])
                    for node, name in zip((one, two, three), names, strict=True)
                )
            )
            assert [code_of(each) for (each,) in changed] == [0, 0, 0]
            await one.shows(lambda: len(one.image.topics["t"].configs) == 4)
            assert sorted(one.image.topics["t"].configs.values()) == ["1", "1", "2", "3"]
            (unset,) = await one.topics.change([("t", {"flush.ms": None, "min.insync.replicas": None})])
            assert isinstance(unset, Topic)
            assert unset.configs.keys() == {"retention.ms", "segment.ms"}
            assert code_of((await one.topics.change([("t", {"no": "1"})]))[0]) == 40
            assert code_of((await one.topics.change([("none", {})]))[0]) == 3

            # Removed by its id, and none that came after it.
            stale = Topic("t", b"another" + bytes(9), 5, {})
            assert list(map(code_of, await two.topics.delete([stale]))) == [3]
            assert await two.topics.delete([made]) == [None]
            assert "t" not in two.image.topics
            (again,) = await two.topics.create([NewTopic("t", -1, {}, -1, {0: (2, 3)})])
            assert isinstance(again, Topic)
            assert again.id != made.id
            assert two.view().replicas == (2, 3)
            assert await one.joined.session.get(paths.topic_config_path("t")) is None

    run(story)


def test_leaders_are_elected_and_replicas_move_by_any_node(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with together(zookeeper, tmp_path) as (one, two, three):
            await one.topics.create([NewTopic("t", -1, {"min.insync.replicas": "1"}, -1, {0: (1, 2), 1: (2, 3)})])
            await two.shows(lambda: two.image.partition(T0) is not None)
            await three.shows(lambda: three.image.partition(T0) is not None)

            # Drained: it leads nothing, whoever is the controller, and is not preferred before that ends.
            await two.shows(lambda: two.view().leader == 1 and set(two.view().isr) == {1, 2})
            assert await three.admin.drain(9) is ErrorCode.RESOURCE_NOT_FOUND
            assert await three.admin.drain(1) is ErrorCode.NONE
            assert await two.admin.drained() == {1}
            for node in (two, three):
                await node.shows(lambda node=node: node.view().leader == 2)  # type: ignore[misc]
            t1 = TopicPartition("t", 1)
            places = [T0, t1, TopicPartition("t", 7)]
            assert await three.admin.elect(places) == {
                T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                t1: ErrorCode.ELECTION_NOT_NEEDED,
                TopicPartition("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert await two.admin.drain(1, on=False) is ErrorCode.NONE
            assert await three.admin.elect([T0]) == {T0: ErrorCode.NONE}
            assert three.view().leader == 1
            everywhere = await three.admin.elect(None)
            assert ErrorCode.ELECTION_NOT_NEEDED not in everywhere.values()
            assert set(everywhere.values()) <= {ErrorCode.NONE}

            # Replicas: others, a node that is not there, cancelled when nothing is under way.
            t2 = TopicPartition("none", 0)
            assert await two.admin.reassign({T0: (3, 1), t1: (2, 9), t2: (1,)}) == {
                T0: ErrorCode.NONE,
                t1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                t2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            await two.shows(lambda: two.view().replicas == (3, 1) and not two.admin.reassignments())
            assert await two.admin.reassign({T0: None}) == {T0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}

            # To a node that is away it stays under way, until it is cancelled.
            await three.stop()
            await one.shows(lambda: one.image.nodes[3].status is ClusterNodeStatus.GONE and one.view().leader == 1)
            assert await one.admin.reassign({t1: (3, 1)}) == {t1: ErrorCode.NONE}
            await two.shows(lambda: t1 in two.admin.reassignments([t1]))
            assert two.admin.reassignments()[t1].adding == (1,)
            await two.shows(lambda: two.view(t1).replicas == (3, 1) or set(two.view(t1).isr) == {1, 2})
            assert (await two.admin.reassign({t1: None}))[t1] in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)

            # Nobody in sync is left: led again whatever it costs, if one is named.
            (only,) = await two.topics.create([NewTopic("only", -1, {"min.insync.replicas": "1"}, -1, {0: (2, 1)})])
            assert isinstance(only, Topic)
            place = TopicPartition("only", 0)
            assert await one.admin.elect([place], unclean=True) == {place: ErrorCode.ELECTION_NOT_NEEDED}
            assert await one.admin.elect([place, T0], unclean=True) == {
                place: ErrorCode.INVALID_REQUEST,
                T0: ErrorCode.INVALID_REQUEST,
            }

    run(story)


def test_a_partition_that_nobody_leads_is_led_again_whatever_it_costs(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with together(zookeeper, tmp_path) as (one, two, three):
            await one.topics.create([NewTopic("t", -1, {"min.insync.replicas": "1"}, -1, {0: (3, 2)})])
            state = paths.partition_state_path(*T0)
            await one.shows(lambda: one.view().leader == 3 and 2 in one.view().isr)
            # The last one in sync is gone; the other may lack records.
            await two.stop()
            await one.shows(lambda: one.view().isr == (3,))
            assert await one.admin.elect([T0], unclean=True) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
            await three.stop()
            await one.shows(lambda: one.view().leader == NO_NODE_ID)
            assert await one.admin.elect([T0], unclean=True) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
            back = Administered(2, zookeeper, tmp_path / "2", **SOON)
            try:
                await back.start()
                await one.shows(lambda: one.image.nodes[2].status is ClusterNodeStatus.LIVE)
                assert await one.admin.elect([T0]) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
                assert one.view().leader == NO_NODE_ID
                assert await back.admin.elect([T0], unclean=True) == {T0: ErrorCode.NONE}
                await one.shows(lambda: one.view().leader == 2)
            finally:
                await back.stop()
            found = await one.joined.session.get(state)
            assert found is not None
            assert cluster_layout.read_state(state, found.data, found.version).unclean_epoch == 2

    run(story)
