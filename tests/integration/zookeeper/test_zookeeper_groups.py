"""Groups of the ZooKeeper era beside the others: listed, described, explained, reset and deleted through the node.

The members are plain kazoo sessions that write what such consumers write, so that each step is a test's own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from muster.client.aio.admin import AsyncAdmin
from muster.client.errors import GroupNotEmpty, GroupNotFound, Refused
from muster.client.types import TopicPartition
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from muster.coordinator.zookeeper.session import SessionState
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_registry import is_there, node_at, plain, until
from tests.integration.zookeeper.test_zookeeper_session import expire
from tests.support.grpc_node import connected, create_topic
from tests.support.kafka.node import join, kafka
from tests.support.zookeeper.servers import running

JOINED, EXPIRED, LEFT, BROKERS, GREW = 1, 4, 5, 43, 32


class Member:
    """One consumer of that era, step by step."""

    def __init__(self, connect: str, name: str, group: str = "old") -> None:
        self.client = KazooClient(hosts=connect, timeout=10)
        self.client.start(timeout=20)
        self.id = f"{group}_box-1700000000000-{name}"
        self.group = group

    def register(self, topic: str = "t") -> None:
        body = {"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1700000000000"}
        path = f"/consumers/{self.group}/ids/{self.id}"
        self.client.create(path, json.dumps(body).encode(), ephemeral=True, makepath=True)

    def register_patiently(self) -> None:
        """Its connection may just be finding another server."""
        self.client.retry(self.register)

    def claim(self, *partitions: int, topic: str = "t") -> None:
        for number in partitions:
            path = f"/consumers/{self.group}/owners/{topic}/{number}"
            self.client.create(path, f"{self.id}-0".encode(), ephemeral=True, makepath=True)

    def release(self, *partitions: int, topic: str = "t") -> None:
        for number in partitions:
            self.client.delete(f"/consumers/{self.group}/owners/{topic}/{number}")

    def leave(self) -> None:
        self.client.delete(f"/consumers/{self.group}/ids/{self.id}")

    def commit(self, partition: int, offset: int, topic: str = "t") -> None:
        path = f"/consumers/{self.group}/offsets/{topic}/{partition}"
        self.client.ensure_path(path)
        self.client.set(path, str(offset).encode())

    def end(self) -> None:
        """The session ends, with whatever is its own."""
        self.client.stop()
        self.client.close()


@contextmanager
def members(connect: str, *names: str) -> Iterator[list[Member]]:
    made = [Member(connect, name) for name in names]
    try:
        yield made
    finally:
        for member in made:
            member.end()


@asynccontextmanager
async def stage(
    data: Path, connect: str, partitions: int = 2, **more: str
) -> AsyncIterator[tuple[CoordinatorNode, AsyncAdmin]]:
    async with node_at(data, connect, **more) as node, connected(node) as channel:
        await create_topic(channel, "t", partitions)
        with plain(connect) as zk:  # members of that era come after the topics they read
            await until(is_there(zk, f"/brokers/topics/t/partitions/{partitions - 1}/state"))
        admin = AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{node.bound.port}"})
        try:
            yield node, admin
        finally:
            await admin.close()


async def state_is(admin: AsyncAdmin, state: str, count: int, group: str = "old") -> None:
    """Return once the node has seen that many members in that state."""
    async with asyncio.timeout(30):
        while True:
            try:
                found = await admin.describe_group(group)
            except GroupNotFound:
                continue
            if found.state == state and len(found.members) == count:
                return


async def explained(admin: AsyncAdmin, number: int, group: str = "old") -> Rebalance:
    """The group's entry of that number, once it is written."""
    async with asyncio.timeout(30):
        while True:
            try:
                entries = await admin.explain(group)
            except GroupNotFound:
                continue
            for entry in entries:
                if entry.number == number:
                    return entry


def in_thread(*steps: Callable[[], object]) -> "asyncio.Future[None]":
    def all_of_them() -> None:
        for step in steps:
            step()

    return asyncio.get_running_loop().run_in_executor(None, all_of_them)


def test_a_group_of_the_zookeeper_era_is_shown_beside_the_others(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with stage(tmp_path / "d", zookeeper) as (_, admin):
            await admin.alter_offsets("new", {("t", 0): 0})
            with members(zookeeper, "a", "b") as (a, b):
                await in_thread(a.register, b.register, lambda: a.claim(0), lambda: b.claim(1), lambda: a.commit(0, 7))
                await state_is(admin, "Stable", 2)
                listed = [(group.group_id, group.group_type, group.state) for group in await admin.list_groups()]
                assert listed == [("new", "classic", "Empty"), ("old", "zookeeper", "Stable")]
                assert [g.group_id for g in await admin.list_groups(types=["zookeeper"])] == ["old"]
                found = await admin.describe_group("old")
                assert (found.protocol_type, found.waiting_for) == ("zookeeper", ())
                assert {m.member_id: (m.client_host, m.topics, m.assignment) for m in found.members} == {
                    a.id: ("box", ("t",), (TopicPartition("t", 0),)),
                    b.id: ("box", ("t",), (TopicPartition("t", 1),)),
                }
                lags = await admin.group_lag("old")
                assert [(lag.partition.partition, lag.committed, lag.owner) for lag in lags] == [
                    (0, 7, a.id),
                    (1, None, b.id),
                ]
                # What an assignor would make of it is asked as for any other group.
                snapshot = await admin.live_snapshot("old", reset="earliest")
                assert snapshot.lags == {"t": [0, 0]}
                assert {member.id: member.owned for member in snapshot.members} == {
                    a.id: {"t": [0]},
                    b.id: {"t": [1]},
                }
            await state_is(admin, "Empty", 0)

    run(story)


def test_kafkas_tools_see_where_a_group_of_the_zookeeper_era_is(zookeeper: str, tmp_path: Path, run: Run) -> None:
    """Until it has members in the log: what those begin from is what was committed there, as ever."""

    async def story() -> None:
        more = {"kafka_listeners": "127.0.0.1:0"}
        async with stage(tmp_path / "d", zookeeper, **more) as (node, admin), kafka(node) as client:

            async def fetched(version: int, partitions: list[int] | None) -> dict[int, int]:
                path = "OffsetFetchRequest.groups.topics" if version >= 8 else "OffsetFetchRequest.topics"
                topics = None if partitions is None else [struct(path)(name="t", partition_indexes=partitions)]
                asked: dict[str, Any] = {"group_id": "old", "topics": topics}
                if version >= 8:
                    asked = {"groups": [struct("OffsetFetchRequest.groups")(**asked)]}
                answer = await client.ask("OffsetFetch", version, **asked)
                answer = answer.groups[0] if version >= 8 else answer
                assert answer.error_code == 0
                return {
                    row.partition_index: row.committed_offset for topic in answer.topics for row in topic.partitions
                }

            with members(zookeeper, "a") as (a,):
                await in_thread(a.register, lambda: a.claim(0, 1), lambda: a.commit(0, 7))
                await state_is(admin, "Stable", 1)
                for version in (5, 8):
                    assert await fetched(version, None) == {0: 7}
                    assert await fetched(version, [0, 1]) == {0: 7, 1: -1}
                joined = await join(client, group_id="old")
                assert await fetched(8, [0, 1]) == {0: -1, 1: -1}
                await client.ask("LeaveGroup", 1, group_id="old", member_id=joined.member_id)

    run(story)


def test_the_ledger_tells_how_the_herd_moved(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with stage(tmp_path / "d", zookeeper) as (_, admin):
            with members(zookeeper, "a", "b") as (a, b):
                await in_thread(a.register, lambda: a.claim(0, 1))
                first = await explained(admin, 1)
                assert (first.cause, first.culprit, first.herd, first.notifications) == (JOINED, a.id, 1, 1)
                await in_thread(b.register)
                await state_is(admin, "PreparingRebalance", 2)
                await in_thread(lambda: a.release(0, 1), lambda: a.claim(0), lambda: b.claim(1))
                second = await explained(admin, 2)
                assert (second.cause, second.culprit, second.herd, second.notifications) == (JOINED, b.id, 2, 2)
                assert (second.generation, second.previous_generation) == (2, 1)
                assert [(m.partition, m.source, m.target) for m in second.moves] == [(1, a.id, b.id)]
                assert second.ended_at_ms >= second.started_at_ms
                assert {m.member_id: [p for t in m.assigned for p in t.partitions] for m in second.members} == {
                    a.id: [0],
                    b.id: [1],
                }
                # b leaves in order: its claims first, then itself.
                await in_thread(lambda: b.release(1), b.leave, lambda: a.release(0), lambda: a.claim(0, 1))
                third = await explained(admin, 3)
                assert (third.cause, third.culprit) == (LEFT, b.id)
                # a dies: all that is its own goes at once.
                await in_thread(a.end)
                fourth = await explained(admin, 4)
                assert (fourth.cause, fourth.culprit) == (EXPIRED, a.id)
                assert [(m.partition, m.source, m.target) for m in fourth.moves] == [(0, a.id, ""), (1, a.id, "")]

    run(story)


def test_brokers_and_topics_wake_everybody(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with stage(tmp_path / "d", zookeeper, partitions=1) as (node, admin):
            with members(zookeeper, "a") as (a,):
                await in_thread(a.register, lambda: a.claim(0))
                await explained(admin, 1)
                node.broker.add_partitions("t", 2)
                await state_is(admin, "PreparingRebalance", 1)
                await in_thread(lambda: a.release(0), lambda: a.claim(0, 1))
                assert (await explained(admin, 2)).cause == GREW
                async with node_at(tmp_path / "other", zookeeper, number=2):
                    await state_is(admin, "PreparingRebalance", 1)
                    await in_thread(lambda: a.release(0, 1), lambda: a.claim(0, 1))
                    woken = await explained(admin, 3)
                    assert (woken.cause, woken.herd, len(woken.moves)) == (BROKERS, 1, 0)
                    assert woken.detail == "broker 2 came, which wakes every consumer"

    run(story)


def test_the_ledger_outlives_the_node(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        with members(zookeeper, "a") as (a,):
            async with stage(tmp_path / "d", zookeeper) as (_, admin):
                await in_thread(a.register, lambda: a.claim(0, 1))
                await explained(admin, 1)
            async with (
                node_at(tmp_path / "d", zookeeper) as node,
                AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{node.bound.port}"}) as admin,
            ):
                await state_is(admin, "Stable", 1)
                entries = await admin.explain("old")
                assert [(entry.number, entry.culprit) for entry in entries] == [(1, a.id)]

    run(story)


def test_positions_are_reset_where_the_group_looks_for_them(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with stage(tmp_path / "d", zookeeper) as (_, admin):
            with members(zookeeper, "a", "reader") as (a, reader):
                await in_thread(a.register, lambda: a.claim(0, 1), lambda: a.commit(0, 7), lambda: a.commit(1, 8))
                await state_is(admin, "Stable", 1)
                with pytest.raises(GroupNotEmpty, match="1 members in ZooKeeper"):
                    await admin.alter_offsets("old", {("t", 0): 3})
                with pytest.raises(GroupNotEmpty):
                    await admin.delete_groups(["old"])
                with pytest.raises(GroupNotEmpty):
                    await admin.delete_offsets("old", [("t", 0)])
                with pytest.raises(Refused, match="meet in ZooKeeper"):
                    await admin.remove_members("old")
                await in_thread(a.end)
                await state_is(admin, "Empty", 0)
                await admin.alter_offsets("old", {("t", 0): 3})
                at = await in_thread_value(lambda: reader.client.get("/consumers/old/offsets/t/0")[0])
                assert at == b"3"
                kept = await admin.group_offsets("old")
                assert {tp.partition: position.offset for tp, position in kept.items()} == {0: 3, 1: 8}
                await admin.delete_offsets("old", [("t", 1)])
                assert [tp.partition for tp in await admin.group_offsets("old")] == [0]
                await admin.delete_groups(["old"])
                assert await in_thread_value(lambda: reader.client.exists("/consumers/old")) is None
                async with asyncio.timeout(30):
                    while await admin.list_groups():
                        pass
                with pytest.raises(GroupNotFound):
                    await admin.delete_groups(["old"])

    run(story)


def test_the_node_goes_on_watching_after_its_session_expired(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with stage(tmp_path / "d", zookeeper) as (node, admin):
            with members(zookeeper, "a", "b") as (a, b):
                await in_thread(a.register, lambda: a.claim(0, 1))
                await explained(admin, 1)
                side = node._backend.zookeeper
                assert side is not None
                epoch = side.session.epoch
                await asyncio.to_thread(expire, side.session)
                await until(lambda: side.session.epoch != epoch)
                await in_thread(b.register, lambda: a.release(0, 1), lambda: a.claim(0), lambda: b.claim(1))
                await state_is(admin, "Stable", 2)
                owners = {m.member_id: m.assignment for m in (await admin.describe_group("old")).members}
                assert owners == {a.id: (TopicPartition("t", 0),), b.id: (TopicPartition("t", 1),)}
                assert b.id in {entry.culprit for entry in await admin.explain("old")}

    run(story)


def test_the_node_goes_on_watching_after_the_leader_died(
    zookeeper_ensemble: LocalEnsemble, tmp_path: Path, run: Run
) -> None:
    async def story() -> None:
        connect = f"{zookeeper_ensemble.connect}/groups"
        async with stage(tmp_path / "d", connect) as (_, admin):
            with members(connect, "a", "b") as (a, b):
                await in_thread(a.register, lambda: a.claim(0, 1))
                await explained(admin, 1)
                leader = await asyncio.to_thread(zookeeper_ensemble.leader)
                await asyncio.to_thread(zookeeper_ensemble.kill, leader)
                assert (await admin.describe_group("old")).members[0].member_id == a.id
                await asyncio.to_thread(zookeeper_ensemble.restart, leader)
                await in_thread(b.register_patiently)
                await state_is(admin, "PreparingRebalance", 2)

    run(story)


def test_a_node_stops_in_time_while_zookeeper_is_away(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        with running(1) as ensemble:
            async with stage(tmp_path / "d", ensemble.connect) as (node, admin):
                await asyncio.to_thread(ensemble.kill, 1)
                side = node._backend.zookeeper
                assert side is not None
                await until(lambda: side.session.state is not SessionState.CONNECTED)
                await admin.alter_offsets("new", {("t", 0): 0})
                kept = await admin.group_offsets("new")
                assert [tp.partition for tp in kept] == [0]

    run(story)


async def in_thread_value(step: Callable[[], object]) -> object:
    return await asyncio.get_running_loop().run_in_executor(None, step)
