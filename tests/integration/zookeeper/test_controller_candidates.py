"""Seats at a real ZooKeeper: one is the controller, the next takes over, and what it wrote is there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.controller_candidate import CandidateContext, ControllerCandidate
from muster.coordinator.replication.io.wire.node_api import NodeName
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    NO_VERSION,
    ClusterImage,
    ClusterNode,
    ClusterState,
    NodeEndpoint,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.cluster.registration import ClusterRegistration
from muster.coordinator.zookeeper.errors import ConnectionLost
from muster.coordinator.zookeeper.session import ZooKeeperSession
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_session import expire, session

SETTINGS = ControllerSettings(min_isr=1, offsets_partitions=2, offsets_replicas=2, internal=())
SHARD = TopicPartition("__consumer_offsets", 0)


class Member:
    """A node without logs: registered, a candidate, and it polls."""

    def __init__(self, zk: ZooKeeperSession, node_id: int) -> None:
        self.zk, self.id = zk, node_id
        self.image = ClusterImage()
        loop = asyncio.get_running_loop()
        around = CandidateContext(
            image=lambda: self.image,
            now_ms=lambda: int(loop.time() * 1000),
            wall_ms=lambda: 5,
            draw_id=lambda: bytes([node_id]) * 16,
        )
        self.candidate = ControllerCandidate(zk, node_id, SETTINGS, around)
        door = NodeEndpoint("REPLICATION", "127.0.0.1", 9000 + node_id)
        me = ClusterNode(node_id, NO_EPOCH, str(node_id) * 22, endpoints=(door,))
        self.registration = ClusterRegistration(zk, lambda: me, wall_ms=lambda: 5)

    async def hears(self, controller: "Member") -> ClusterState:
        """What the controller answers, once it is one."""
        async with asyncio.timeout(30):
            while True:
                name = NodeName(self.id, self.registration.epoch)
                told = await controller.candidate.cluster_state(name, self.image.known, (), 200)
                if told.error is ErrorCode.NONE:
                    self.image.apply(told)
                    return told
                await asyncio.sleep(0.02)

    async def led_by(self, controller: "Member", wanted: set[int]) -> None:
        async with asyncio.timeout(30):
            while (view := self.image.partition(SHARD)) is None or view.leader not in wanted:
                await self.hears(controller)


@asynccontextmanager
async def member(connect: str, node_id: int) -> AsyncIterator[Member]:
    async with session(connect) as zk:
        made = Member(zk, node_id)
        await made.registration.register()
        made.registration.start()
        made.candidate.start()
        try:
            yield made
        finally:
            await made.candidate.close()
            await made.registration.stop()


def test_the_next_takes_over_from_one_that_stops_and_from_one_whose_session_ends(zookeeper: str, run: Run) -> None:
    async def story() -> None:
        async with member(zookeeper, 1) as one:
            async with member(zookeeper, 2) as two:
                await one.led_by(one, {1, 2})
                assert await two.zk.get(layout.CONTROLLER_EPOCH) is not None
                refused = await two.candidate.cluster_state(NodeName(2, two.registration.epoch), NO_VERSION, (), 0)
                assert refused.error is ErrorCode.NOT_CONTROLLER
                await two.led_by(one, {1, 2})
                waiting = asyncio.create_task(
                    one.candidate.cluster_state(NodeName(1, one.registration.epoch), one.image.known, (), 60_000)
                )
                await asyncio.sleep(0)
                await asyncio.to_thread(expire, one.zk)
                assert (await waiting).error in (ErrorCode.NOT_CONTROLLER, ErrorCode.NONE)
                epoch = two.image.known.epoch
                while two.image.known.epoch == epoch:
                    await two.hears(two)
                await two.candidate.close()
                await two.registration.stop()
            epoch = two.image.known.epoch
            while one.image.known.epoch <= epoch:
                await one.hears(one)
            # The last one in sync was node 2, and nobody leads without it (CL-C4).
            await one.led_by(one, {NO_NODE_ID})
            written = await one.zk.get(layout.partition_state_path(*SHARD))
            assert written is not None
            assert written.data == (
                b'{"controller_epoch":3,"leader":-1,"version":1,"leader_epoch":2,"isr":[2],"muster":{"elr":[],'
                b'"dirs":{"1":"1111111111111111111111","2":"2222222222222222222222"},"cause":"node 2 is gone"}}'
            )
            async with member(zookeeper, 2) as back:
                await back.led_by(one, {2})

    run(story)


def test_a_write_whose_answer_was_lost_is_found_done(zookeeper: str, run: Run) -> None:
    """CL-Z6: it is told of as written, and nothing is written twice."""

    async def story() -> None:
        async with member(zookeeper, 1) as one:
            await one.hears(one)
            commit, lost = one.zk.commit, []

            async def commit_unheard(build: Callable[[Any], object]) -> None:
                transaction = one.zk.client.transaction()
                build(transaction)
                await commit(build)
                if any(step.path.endswith("/state") for step in transaction.operations) and not lost:
                    lost.append(True)
                    raise ConnectionLost("the answer is lost")

            one.zk.commit = commit_unheard  # type: ignore[method-assign]
            async with member(zookeeper, 2):
                await one.led_by(one, {1, 2})
                assert lost
                found = await one.zk.get(layout.partition_state_path(*SHARD))
                assert found is not None
                assert (found.version, one.image.known.epoch) == (0, 1)

    run(story)


def test_who_is_cut_off_is_controller_no_more_before_the_next_one_is(zookeeper: str, run: Run) -> None:
    """CL-Z8. What is asked of it by then, and what waits, hears 41."""

    async def story() -> None:
        async with member(zookeeper, 1) as one, member(zookeeper, 2) as two:
            await one.hears(one)
            name = NodeName(1, one.registration.epoch)
            while one.image.known.sequence < 3:
                await one.hears(one)
            waiting = asyncio.create_task(one.candidate.cluster_state(name, one.image.known, (), 60_000))
            await asyncio.sleep(0)

            async def unheard(build: Callable[[Any], object]) -> None:
                raise ConnectionLost("cut")

            one.zk.commit = unheard  # type: ignore[method-assign]
            assert (await waiting).error is ErrorCode.NOT_CONTROLLER
            assert not one.candidate.is_controller
            assert not two.candidate.is_controller
            await one.zk.close()  # its session ends
            while two.image.known.epoch < 2:
                await two.hears(two)

    run(story)


def test_a_controller_whose_process_is_gone_is_deposed_by_who_is_refused(zookeeper: str, run: Run) -> None:
    """CL-C9: its session is still there; nobody listens at its door."""

    async def story() -> None:
        async with member(zookeeper, 1) as one, member(zookeeper, 2) as two:
            await one.hears(one)
            while two.candidate.seated != (1, ("127.0.0.1", 9001)):
                await two.hears(one)
            two.candidate.broke(1)
            while two.image.known.epoch < 2:
                await two.hears(two)
            assert not one.candidate.is_controller or one.image.known.epoch == 1

    run(story)
