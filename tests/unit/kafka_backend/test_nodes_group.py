"""Nodes whose shards are dealt by the upstream's group coordinator: who has what, and who may answer for how long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.client.members.member_types import MembershipState
from muster.coordinator.edge.cluster_view import GRPC, KAFKA, NodeAddress, coordinates_shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend import nodes_group
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import shard_assignment
from muster.coordinator.kafka_backend.shard_ownership.lease import lease_ms_of
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.driver.clock import NodeClock
from tests.fakes.group_desk import GroupDesk
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker
from tests.support.kafka_backend.of_many import OfMany

SHARDS = 4
SESSION_MS = 500
GROUPS = [f"g{number}" for number in range(12)]


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_group, "HURRY_MS", 10)
    monkeypatch.setattr(shard_assignment, "AGAIN_MS", 10)


class Kafka:
    def __init__(self, broker: UpstreamBroker, session_ms: int) -> None:
        self.broker = broker
        self.topic = StateTopic(broker, "muster.state", SHARDS)
        self.topic.configs["min.insync.replicas"] = "1"
        self.desk = GroupDesk(broker, session_ms)
        self.session_ms = session_ms

    def node(self, node: int, instance: str = "a", **given: Any) -> OfMany:
        address = f"127.0.0.1:{self.broker.address.port}"
        given = {"session_ms": self.session_ms} | given
        return OfMany(address, "muster", SHARDS, node=node, instance=f"{node}/{instance}", **given)


def run(story: Callable[[Kafka], Coroutine[Any, Any, None]], session_ms: int = SESSION_MS) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            kafka = Kafka(broker, session_ms)
            try:
                async with asyncio.timeout(30):
                    await story(kafka)
            finally:
                kafka.desk.close()

    asyncio.run(whole())


async def commit(nodes: list[OfMany], group: str, offset: int) -> None:
    """As a client does: to whoever has it, until it is taken."""
    while True:
        for node in nodes:
            if await node.commit(group, offset) is ErrorCode.NONE:
                return
        await asyncio.sleep(0)


async def all_committed(nodes: list[OfMany], offset: int) -> None:
    for group in GROUPS:
        for node in nodes:
            reply = await node.position(group)
            if reply.code is ErrorCode.NONE:
                assert reply.offsets["orders", 0].offset == offset
                break
        else:
            raise AssertionError(f"nobody answers for {group}")


def told(node: OfMany, shard: int) -> tuple[int, int, str] | None:
    """KB-F9: the newest takeover in the shard's diary: from, to, cause."""
    core: Any = node.engine.core(shard)
    if not core.state.takeovers:
        return None
    newest = core.state.takeovers[max(core.state.takeovers)]
    return newest.moved_from, newest.moved_to, newest.cause


def test_f1_nodes_share_and_a_shard_that_stays_never_pauses() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one:
            await one.nodes.entered()
            await one.all_served()
            for group in GROUPS:
                await commit([one], group, 1)
            async with kafka.node(2) as two:
                await two.serves(2)
                await one.serves(2)
                assert one.served.keys().isdisjoint(two.served)
                assert set(one.lost) == set(two.served), "nothing else was given up"
                assert {shard: one.nodes.assignment.owner_of(shard).node for shard in range(SHARDS)} == (
                    dict.fromkeys(one.served, 1) | dict.fromkeys(two.served, 2)
                )
                assert one.nodes.assignment == two.nodes.assignment, "every node knows the whole map"
                assert two.nodes.assignment.nodes[1].addresses == {"grpc": "host-1:9290"}
                await all_committed([one, two], 1)
                for group in GROUPS:
                    await commit([one, two], group, 2)
                async with kafka.node(3) as three:
                    await three.until(lambda: sum(len(node.served) for node in (one, two, three)) == SHARDS)
                    await all_committed([one, two, three], 2)

    run(story)


def test_a_node_that_is_drained_stays_without_a_shard_until_it_is_wanted_again() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one, kafka.node(2) as two:
            await one.serves(2)
            await two.serves(2)
            one.nodes.drain()
            assert await one.nodes.drained(20) == frozenset()
            await two.all_served()
            assert one.nodes.assignment.nodes[1].draining
            one.nodes.undrain()
            await one.serves(2)
            await two.serves(2)
            assert not one.nodes.assignment.nodes[1].draining

    run(story, session_ms=2_000)


def test_a_node_that_is_drained_has_the_shards_while_there_is_no_other() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one:
            async with kafka.node(2) as two:
                await one.serves(2)
                await two.serves(2)
                one.nodes.drain()
                await two.all_served()
                await two.commit("g1", 7)
                assert await two.nodes.leave(10), "the other one took them"
            await one.all_served()
            assert await one.committed("g1") == 7
            async with kafka.node(3) as three:
                await three.all_served()
                assert not one.served
            await one.all_served()
            assert await one.nodes.leave(10), "with nobody to take them, nobody is waited for"

    run(story, session_ms=2_000)


def test_f8_who_leaves_has_its_shards_taken_before_and_loses_nothing() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one, kafka.node(2) as two:
            await one.serves(2)
            await two.serves(2)
            writing = [asyncio.ensure_future(commit([one, two], group, 1)) for group in GROUPS]
            assert await one.nodes.leave(10)
            assert not one.served
            assert (one.troubles, one.stopped) == ([], "")
            await asyncio.gather(*writing)
            await two.serves(SHARDS)
            await all_committed([two], 1)
            assert {told(two, shard) for shard in range(SHARDS)} >= {(1, 2, "node draining")}
            assert set(kafka.desk.group.instances) == {"node-2"}

    run(story, session_ms=20_000)  # nobody waits for it


def test_f8_what_was_written_before_is_acknowledged_and_what_comes_later_refused() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one:
            await one.all_served()
            held = asyncio.Event()
            kafka.topic.before_produce = held.wait
            answer = asyncio.ensure_future(one.commit("g1", 7))
            await one.until(lambda: any(one.owning.shards.unacked(shard) for shard in range(SHARDS)))
            leaving = asyncio.ensure_future(one.nodes.leave(10))
            await one.until(lambda: all(one.engine.status(each) is ShardStatus.UNLOADED for each in range(SHARDS)))
            assert await one.commit("g1", 8) is ErrorCode.NOT_COORDINATOR
            assert not answer.done()
            assert not leaving.done()
            held.set()
            assert await answer is ErrorCode.NONE
            assert await leaving
        async with kafka.node(1, "b") as again:
            await again.all_served()
            assert await again.committed("g1") == 7

    run(story, session_ms=20_000)


def test_f1_who_comes_back_within_its_session_has_the_same_shards_and_nobody_else_moves() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(2) as two:
            async with kafka.node(1) as one:
                await one.serves(2)
                await two.serves(2)
                before = set(one.served)
                assert one.nodes.view.coordinator(min(before), GRPC) == NodeAddress(1, "host-1", 9290)
                assert one.nodes.view.coordinator(min(before), KAFKA) is None, "it has no such door"
                assert two.nodes.view.nodes(GRPC) == [NodeAddress(1, "host-1", 9290), NodeAddress(2, "host-2", 9290)]
                assert [coordinates_shard(one.nodes.view, shard) for shard in range(SHARDS)] == [
                    shard in before for shard in range(SHARDS)
                ]
                two.lost.clear()
                for group in GROUPS:
                    await commit([one, two], group, 1)
            # without a word
            async with kafka.node(1, "b") as one:
                await one.serves(2)
                assert set(one.served) == before
                await two.until(lambda: two.nodes.assignment.nodes[1].instance == "1/b")
                assert not two.lost
                assert {told(one, shard) for shard in before} == {(1, 1, "node restarted")}
                await all_committed([one, two], 1)

    run(story, session_ms=20_000)


def test_who_is_gone_has_its_shards_taken_after_its_session() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(2) as two:
            async with kafka.node(1) as one:
                await one.serves(2)
                await two.serves(2)
                for group in GROUPS:
                    await commit([one, two], group, 1)
            await two.serves(SHARDS)
            await all_committed([two], 1)
            assert {told(two, shard) for shard in range(SHARDS)} >= {(1, 2, "node lost")}

    run(story)


def test_f2_of_two_processes_of_one_id_the_first_ends_and_says_where_the_other_is() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as first:
            await first.all_served()
            async with kafka.node(1, "b") as second:
                await second.all_served()
                await first.until(lambda: first.stopped)
                assert first.stopped == (
                    "another process at host-1:9290 runs as node.id 1: give each node of a cluster an id of its own"
                )
                assert first.nodes.mine == frozenset()
                assert await first.commit("g1", 1) is ErrorCode.NOT_COORDINATOR
                assert await second.commit("g1", 1) is ErrorCode.NONE

    run(story, session_ms=20_000)


def test_f2_a_join_of_its_own_that_came_late_ends_nobody() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one:
            await one.all_served()
            (member,) = kafka.desk.group.members.values()
            kafka.desk.group.join("", "node-1", member.metadata, kafka.desk.now_ms, lambda word: None)
            await one.until(lambda: one.lost)
            await one.all_served()
            assert not one.stopped
            assert await one.commit("g1", 1) is ErrorCode.NONE

    run(story, session_ms=20_000)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (26, "engine.kafka.session.timeout.ms is 500, which the upstream does not take"),
        (30, "does not let this node into the group muster.nodes; allow its principal READ"),
        (23, "the upstream's group muster.nodes is not one of nodes of this version"),
    ],
)
def test_a_group_that_refuses_a_node_for_good_keeps_it_from_starting(code: int, told: str) -> None:
    async def story(kafka: Kafka) -> None:
        kafka.desk.refusal = code
        async with kafka.node(1) as one:
            with pytest.raises(UnusableUpstream, match=told):
                await one.nodes.entered()
            assert told in one.troubles[0]

    run(story)


def test_f7_without_answers_to_heartbeats_the_lease_ends_and_shards_come_back_with_it() -> None:
    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one:
            await one.all_served()
            assert await one.commit("g1", 1) is ErrorCode.NONE
            silent_ms = one.clock.now_ms()
            kafka.desk.silent = lambda request: True
            await one.until(lambda: not one.owning.shards.has_lease(one.clock.now_ms()))
            assert one.owning.shards.lease_ends_ms <= silent_ms + lease_ms_of(SESSION_MS)
            await one.until(lambda: one.lost)
            kafka.desk.silent = lambda request: False
            await one.all_served()
            assert await one.committed("g1") == 1
            lost = "no heartbeat was answered for 500 ms (session.timeout.ms)"
            assert {told(one, shard) for shard in range(SHARDS)} == {(1, 1, lost)}

    run(story)


def test_f7_a_heartbeat_renews_the_lease_in_some_states_of_the_member_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between join and sync a Kafka answers it well, and puts out who does not sync."""
    assert MembershipState.SYNCING not in nodes_group.LEASED
    assert MembershipState.JOINING not in nodes_group.LEASED

    async def story(kafka: Kafka) -> None:
        async with kafka.node(1) as one:
            await one.all_served()
            monkeypatch.setattr(nodes_group, "LEASED", frozenset())
            await one.until(lambda: not one.owning.shards.has_lease(one.clock.now_ms()))
            monkeypatch.undo()

    run(story)


class Shifted(NodeClock):
    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


def test_g6_after_a_short_gap_of_the_lease_what_was_held_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And deadlines of members come later by as much: nobody was heard in it."""
    moved: dict[int, int] = {}

    async def story(kafka: Kafka) -> None:
        one = kafka.node(1, heartbeat_ms=600_000)
        clock = one.clock = Shifted()
        async with one:
            await one.all_served()
            assert await one.commit("g1", 1) is ErrorCode.NONE
            clock.shift_ms = lease_ms_of(20_000) + 500
            reading = asyncio.ensure_future(one.position("g1"))
            await one.changes(0.01)
            assert not reading.done(), "another may have it by now"
            monkeypatch.setattr(one.engine, "moved", lambda shard, by_ms, now_ms: moved.update({shard: by_ms}))
            one.owning.step(ev.LeaseHeartbeatAnswered(clock.now_ms(), 0))
            assert (await reading).offsets["orders", 0].offset == 1
            assert not one.lost
            assert (moved.keys(), min(moved.values()) >= 500) == (set(range(SHARDS)), True), moved

    run(story, session_ms=20_000)
