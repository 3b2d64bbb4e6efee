"""A first image of thousands of partitions holds nobody up for long, and no other image is begun before it is done."""

import asyncio

from muster.coordinator.config import Address
from muster.coordinator.config.cluster import ClusterSettings
from muster.coordinator.replication.io import replica_manager as sides
from muster.coordinator.replication.io.inbound_requests import ControllerSide, CurrentController
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.wire.node_links import LinkCaller, LinkSettings
from muster.coordinator.replication.io.wire.node_listener import NodeListener
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterNodeStatus,
    ClusterState,
    ImageChanges,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.storage.broker.broker import Broker
from tests.fakes.controller_desk import NoControllerDesk
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import open_broker

UNITS = 3 * sides.AT_ONCE + 1


def side_on(broker: Broker) -> ReplicaManager:
    around = ControllerSide(lambda: None, lambda: 10, lambda: None, lambda node: None, NoControllerDesk())
    calling = LinkSettings(LinkCaller(broker.cluster_id, 1))
    return ReplicaManager.open(broker, NodeListener(Address("127.0.0.1", 0)), ClusterSettings(), calling, around)


def answer_of(sequence: int, epoch: int, leader: int) -> ClusterState:
    views = {number: PartitionView(leader, epoch, epoch, (1, 2), (), (1, 2)) for number in range(UNITS)}
    nodes = tuple(NodeView(each, each * 10, ClusterNodeStatus.LIVE) for each in (1, 2))
    topic = TopicView(b"i" * 16, "orders", {}, views)
    return ClusterState(epoch=1, sequence=sequence, full=sequence == 1, nodes=nodes, topics=(topic,))


def changes_of(side: ReplicaManager, sequence: int, epoch: int, leader: int) -> ImageChanges:
    changes = side.image.apply(answer_of(sequence, epoch, leader))
    assert changes is not None
    return changes


def test_many_units_are_taken_in_by_steps_and_others_have_their_turns() -> None:
    async def story() -> None:
        side = side_on(open_broker(MemoryFiles()))
        side.replicas.registered(10)
        seen: list[tuple[int, int]] = []

        async def others() -> None:
            while True:
                seen.append((len(side.replicas.leaders), len(side.replicas.copies)))
                await asyncio.sleep(0)

        watching = asyncio.create_task(others())
        await side._learned(changes_of(side, 1, 1, leader=1))
        led = [leading for leading, _ in dict.fromkeys(seen)]
        assert led[:3] == [0, sides.AT_ONCE, 2 * sides.AT_ONCE]
        assert len(side.replicas.leaders) == UNITS
        seen.clear()
        await side._learned(changes_of(side, 2, 2, leader=2))
        # What goes to others is not led a moment longer, and copied step by step.
        assert [steps for steps in dict.fromkeys(seen) if steps[0]] == []
        assert {copied for _, copied in seen} >= {0, sides.AT_ONCE, 2 * sides.AT_ONCE}
        assert len(side.replicas.copies) == UNITS
        watching.cancel()
        side._flushing.abandon()
        side._fetching.stop()
        side._altering.stop()

    asyncio.run(story())


def test_an_epoch_that_begins_by_the_way_is_written_down_before_it_is_led() -> None:
    """CL-L1, where the logs are written to in a thread."""

    async def story() -> None:
        broker = open_broker(MemoryFiles())
        side = side_on(broker)
        side.replicas.registered(10)
        await side._learned(changes_of(side, 1, 7, leader=1))
        assert all(broker.log("orders", number).epochs.at(0) == 7 for number in range(UNITS))
        assert side.replicas.leaders[TopicPartition("orders", UNITS - 1)].epoch == 7
        side._flushing.abandon()
        side._fetching.stop()
        side._altering.stop()

    asyncio.run(story())


def test_a_controller_that_goes_while_much_is_taken_in_takes_nothing_of_it_away() -> None:
    """The image has it already: no later answer would tell it again."""

    async def story() -> None:
        side = side_on(open_broker(MemoryFiles()))
        side.replicas.registered(10)
        heard: list[ImageChanges] = []
        side.on_learned(heard.append)
        controllers = [7, 8]
        asked = asyncio.Queue[int]()

        class Links:
            async def to(self, node: int) -> "Links":
                asked.put_nowait(node)
                return self

            async def cluster_state(self, *about: object, **how: object) -> ClusterState:
                if len(controllers) == 1:
                    await asyncio.Event().wait()
                return answer_of(1, 1, leader=1)

        def settled() -> None:
            if 0 < len(side.replicas.leaders) < UNITS and len(controllers) == 2:
                del controllers[0]
                side.controller_changed()

        side.on_settled(settled)
        side._polling._links = Links()  # type: ignore[assignment]
        side._polling._around = side._polling._around._replace(
            controller=lambda: CurrentController(controllers[0], Address("c", 1)), node_epoch=lambda: 10
        )
        running = asyncio.create_task(side._polling.run())
        async with asyncio.timeout(60):
            assert [await asked.get(), await asked.get()] == [7, 8]
        assert (len(side.replicas.leaders), len(heard)) == (UNITS, 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        side._flushing.abandon()
        side._fetching.stop()
        side._altering.stop()

    asyncio.run(story())
