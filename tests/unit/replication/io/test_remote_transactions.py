"""What a node asks another one about transactions: together, one request at a time, and never twice by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.dispatch import ClientPeer, HangUp, KafkaCall
from muster.coordinator.kafka.handlers.transaction_batches import (
    NodeMarker,
    make_markers_request,
    read_markers_response,
)
from muster.coordinator.replication.io.inbound_requests import NodeDesk
from muster.coordinator.replication.io.remote_transactions import RemoteTransactions, split_addition
from muster.coordinator.replication.io.wire.node_api import client_id_of
from muster.coordinator.replication.io.wire.node_links import LinkBroken, LinkCaller, LinkSettings
from muster.coordinator.replication.io.wire.node_listener import MarkerOrder, NodeHandlers
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage
from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.node_requests import NETWORK_EXCEPTION
from muster.storage.logs.producer_state import MarkerToWrite
from tests.fakes.controller_desk import NoControllerDesk
from tests.support.pace import pace
from tests.support.replication import CLUSTER, PATIENCE_S, HeldDesk, linked, serving
from tests.unit.replication.io.test_node_link import closed_port

FENCED, ELSEWHERE = 47, 6
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
B = 3
"""The node that is asked."""


def addition(name: str, *places: tuple[str, int], epoch: int = 0, producer: int = 1) -> PartitionAddition:
    return PartitionAddition(name, producer, epoch, places or (T0,), verify_only=False)


def marker(producer: int, epoch: int = 1) -> MarkerToWrite:
    return MarkerToWrite(producer, epoch, commit=True, coordinator_epoch=4, level=2)


def addressed(content: MarkerToWrite, **topic_ids: bytes) -> NodeMarker:
    return NodeMarker(content, tuple(topic_ids.items()))


class OtherNode:
    """Node B, its desk, and this node's questions to it."""

    def __init__(self) -> None:
        self.desk = HeldDesk()
        self.address: Address | None = None
        self.remote = RemoteTransactions(
            LinkSettings(LinkCaller(CLUSTER, 2), timeout_s=PATIENCE_S * pace()), lambda node: self.address, raise_it
        )

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        async with serving(self.desk) as door:
            self.address = door.bound
            yield

    def hold(self) -> asyncio.Event:
        """What is asked from here on waits for this."""
        self.desk.held = asyncio.Event()
        return self.desk.held

    async def asked(self, count: int) -> list[Any]:
        await self.desk.until(lambda: len(self.desk.asked) >= count)
        return self.desk.asked

    def ask(self, *asked: PartitionAddition) -> "list[asyncio.Task[Any]]":
        return begun([self.remote.ask_additions(B, each) for each in asked])

    def send(self, *markers: tuple[MarkerToWrite, Sequence[tuple[str, int]]]) -> "list[asyncio.Task[Any]]":
        return begun([self.remote.write_markers(B, addressed(each), places) for each, places in markers])


def begun(work: Sequence[Coroutine[Any, Any, Any]]) -> "list[asyncio.Task[Any]]":
    return [asyncio.get_running_loop().create_task(each) for each in work]


def raise_it(error: BaseException) -> None:
    raise error


def play(story: Callable[[OtherNode], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        node = OtherNode()
        async with asyncio.timeout(PATIENCE_S * pace()):
            await story(node)
        await node.remote.close()
        assert not node.remote._waiters

    asyncio.run(run())


# Additions
# ---------


def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next() -> None:
    async def story(node: OtherNode) -> None:
        async with node.up():
            first_held = node.hold()
            tasks = node.ask(addition("a"))
            await node.asked(1)
            tasks += node.ask(addition("b"), addition("c", T1), addition("b", T2))
            await asyncio.sleep(0)
            second_held = node.hold()
            first_held.set()
            asked = await node.asked(3)
            assert [each for _, each in asked] == [addition("a"), addition("b", T0, T2), addition("c", T1)]
            second_held.set()
            assert await asyncio.gather(*tasks) == [{T0: 0}, {T0: 0}, {T1: 0}, {T2: 0}]

    play(story)


def test_an_addition_gives_way_to_its_repetition_and_a_fenced_one_to_a_later_epoch() -> None:
    async def story(node: OtherNode) -> None:
        async with node.up():
            held = node.hold()
            (first,) = node.ask(addition("a"))
            await node.asked(1)
            (older,) = node.ask(addition("b", epoch=1))
            (again,) = node.ask(addition("b", epoch=1))
            assert await older == {T0: NETWORK_EXCEPTION}
            (fenced,) = node.ask(addition("b", epoch=0))
            assert await fenced == {T0: FENCED}
            (newer,) = node.ask(addition("b", epoch=2))
            assert await again == {T0: FENCED}
            held.set()
            assert await asyncio.gather(first, newer) == [{T0: 0}, {T0: 0}]
            assert [each.epoch for _, each in node.desk.asked] == [0, 2]

    play(story)


def test_the_answer_of_the_coordinator_is_that_of_each_partition() -> None:
    async def story(node: OtherNode) -> None:
        node.desk.answers["add_partitions"] = {T1: 120}
        async with node.up():
            assert await node.remote.ask_additions(B, addition("a", T0, T1)) == {T0: 0, T1: 120}

    play(story)


def test_an_addition_of_thousands_of_partitions_is_asked_in_parts() -> None:
    places = tuple(("t", number) for number in range(1_200))

    async def story(node: OtherNode) -> None:
        async with node.up():
            assert await node.remote.ask_additions(B, addition("a", *places)) == dict.fromkeys(places, 0)
            parts = [each.partitions for _, each in node.desk.asked]
            assert [len(part) for part in parts] == [500, 500, 200]
            assert tuple(place for part in parts for place in part) == places

    play(story)


def test_whoever_asks_no_longer_is_not_asked_for() -> None:
    async def story(node: OtherNode) -> None:
        async with node.up():
            held = node.hold()
            tasks = node.ask(addition("a"))
            await node.asked(1)
            tasks += node.ask(addition("b"), addition("c"))
            await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[1].cancel()
            held.set()
            assert await tasks[2] == {T0: 0}
            assert [each.transactional_id for _, each in node.desk.asked] == ["a", "c"]

    play(story)


# Markers
# -------


def test_markers_go_together_and_a_large_transaction_holds_up_no_small_one() -> None:
    many = [("t", number) for number in range(1_200)]

    async def story(node: OtherNode) -> None:
        async with node.up():
            large, small = node.send((marker(1), many), (marker(2), [T0, T1]))
            assert await small == {T0: 0, T1: 0}
            assert not large.done()
            assert await large == dict.fromkeys(many, 0)
            written = [place for _, each, places in node.desk.asked if each == marker(1) for place in places]
            assert sorted(written) == many
            assert max(len(places) for _, _, places in node.desk.asked) <= 100

    play(story)


def test_a_marker_hears_what_became_of_it_in_each_partition_and_is_not_sent_again() -> None:
    async def story(node: OtherNode) -> None:
        node.desk.answers["write_marker"] = {T0: ELSEWHERE, T2: 52}
        async with node.up():
            assert await node.remote.write_markers(B, addressed(marker(1)), [T0, T1, T2]) == {
                T0: ELSEWHERE,
                T1: 0,
                T2: 52,
            }
            assert len(node.desk.asked) == 1

    play(story)


def test_a_marker_names_the_topics_that_it_means() -> None:
    """Another topic may have the name by the time at which it arrives (TX-C15)."""

    async def story(node: OtherNode) -> None:
        async with node.up():
            asked = [addressed(marker(1), t=bytes(range(16))), addressed(marker(2), t=b"2" * 16), addressed(marker(3))]
            told = await asyncio.gather(*(node.remote.write_markers(B, each, [T0, ("u", 0)]) for each in asked))
            assert told == [{T0: 0, ("u", 0): 0}] * 3
            assert node.desk.topic_ids == [{"t": bytes(range(16))}, {"t": b"2" * 16}, {}]

    play(story)


def test_two_markers_of_a_producer_go_one_after_the_other() -> None:
    """A shard that was loaded again has a marker with a later coordinator epoch; the answer names the producer only."""

    async def story(node: OtherNode) -> None:
        newer = marker(1)._replace(coordinator_epoch=5)
        async with node.up():
            held = node.hold()
            tasks = node.send((marker(1), [T0]), (newer, [T0]))
            assert [each for _, each, _ in await node.asked(1)] == [marker(1)]
            held.set()
            assert await asyncio.gather(*tasks) == [{T0: 0}, {T0: 0}]
            assert [each for _, each, _ in node.desk.asked] == [marker(1), newer]

    play(story)


# A node that does not answer
# ---------------------------


def test_a_node_that_is_away_is_told_of_at_once_to_everybody_who_waits_for_it() -> None:
    async def story(node: OtherNode) -> None:
        for node.address in (None, Address("127.0.0.1", closed_port())):
            asked = node.ask(addition("a"), addition("b", T0, T1))
            sent = node.send((marker(1), [T0]), (marker(2), [("t", number) for number in range(700)]))
            assert await asyncio.gather(*asked) == [
                {T0: NETWORK_EXCEPTION}, {T0: NETWORK_EXCEPTION, T1: NETWORK_EXCEPTION}
            ]  # fmt: skip
            assert {code for codes in await asyncio.gather(*sent) for code in codes.values()} == {ELSEWHERE}

    play(story)


def test_a_marker_whose_answer_was_lost_is_sent_again_once_the_node_is_back() -> None:
    """It was written: the repetition changes nothing (TX-L5)."""

    async def story(node: OtherNode) -> None:
        async with node.up():
            node.hold()
            sent = node.send((marker(1), [T0]))
            asked = node.ask(addition("a"))
            await node.asked(2)
        assert await sent[0] == {T0: ELSEWHERE}
        assert await asked[0] == {T0: NETWORK_EXCEPTION}
        node.desk.held = None
        async with node.up():
            assert await node.remote.write_markers(B, addressed(marker(1)), [T0]) == {T0: 0}
            assert await node.remote.ask_additions(B, addition("a")) == {T0: 0}
        assert sorted(name for name, *_ in node.desk.asked) == ["add_partitions"] * 2 + ["write_marker"] * 2

    play(story)


def test_nobody_waits_for_a_frozen_node_that_the_cluster_has_given_up() -> None:
    async def story(node: OtherNode) -> None:
        async with node.up():
            node.hold()
            sent, asked = node.send((marker(1), [T0])), node.ask(addition("a"))
            await node.asked(2)
            node.remote.nodes_changed()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not sent[0].done(), "it is where it was"
            node.address = None
            node.remote.nodes_changed()
            assert await sent[0] == {T0: ELSEWHERE}
            assert await asked[0] == {T0: NETWORK_EXCEPTION}

    play(story)


def test_one_node_that_stands_still_holds_up_no_other() -> None:
    async def run() -> None:
        frozen, other = HeldDesk(), HeldDesk()
        frozen.held = asyncio.Event()
        async with serving(frozen) as one, serving(other) as two, asyncio.timeout(PATIENCE_S * pace()):
            places = {3: one.bound, 4: two.bound}
            remote = RemoteTransactions(LinkSettings(LinkCaller(CLUSTER, 2)), places.get)
            waiting = begun([remote.write_markers(3, addressed(marker(1)), [T0])])
            await frozen.until(lambda: bool(frozen.asked))
            assert await remote.write_markers(4, addressed(marker(1)), [T1]) == {T1: 0}
            assert not waiting[0].done()
            await remote.close()
            assert await waiting[0] == {T0: ELSEWHERE}

    asyncio.run(run())


def test_whoever_comes_when_the_node_stops_hears_that_there_is_no_answer() -> None:
    async def story(node: OtherNode) -> None:
        async with node.up():
            waiting = node.ask(addition("a")) + node.send((marker(1), [T0]))
            await asyncio.sleep(0)
            await node.remote.close()
            assert await asyncio.gather(*waiting) == [{T0: NETWORK_EXCEPTION}, {T0: ELSEWHERE}]
            assert await node.remote.ask_additions(B, addition("a")) == {T0: NETWORK_EXCEPTION}
            assert await node.remote.write_markers(B, addressed(marker(1)), [T0]) == {T0: ELSEWHERE}
            assert not node.desk.asked

    play(story)


# The node that is asked
# ----------------------


def test_a_node_that_takes_no_part_in_transactions_yet_says_so() -> None:
    async def run() -> None:
        replicas: Any = None
        desk = NodeDesk(replicas, ClusterImage(), NoControllerDesk(), now_ms=lambda: 0, happened=lambda: None)
        assert await desk.add_partitions(addition("a", T0, T1)) == dict.fromkeys(
            (T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        assert await desk.write_marker(marker(1), [T0], {}) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        desk.transactions = HeldDesk()
        assert await desk.add_partitions(addition("a")) == await desk.write_marker(marker(1), [T0], {}) == {T0: 0}

    asyncio.run(run())


@pytest.mark.parametrize(("count", "parts"), [(0, [0]), (1, [1]), (5, [5]), (6, [5, 1]), (15, [5, 5, 5])])
def test_an_addition_is_divided_without_a_rest(count: int, parts: list[int]) -> None:
    places = tuple(("t", number) for number in range(count))
    whole = PartitionAddition("a", 1, 0, places, verify_only=True)
    found = split_addition(whole, 5)
    assert [len(part.partitions) for part in found] == parts
    assert tuple(place for part in found for place in part.partitions) == places


def test_markers_by_a_connection_that_was_given_up_are_not_written() -> None:
    """At level 0 a marker that comes after its repetition would end the next transaction (TX-N24)."""

    async def run() -> None:
        desk = HeldDesk()
        async with serving(desk) as door:
            old, new, other = await linked(door, 2), await linked(door, 2), await linked(door, 5)
            for link in (old, other, new, new):
                assert await link.write_markers([(addressed(marker(1)), (T0,))], deadline_s=PATIENCE_S) == {1: {T0: 0}}
            with pytest.raises(LinkBroken):
                await old.write_markers([(addressed(marker(1)), (T1,))], deadline_s=PATIENCE_S)
            assert await other.write_markers([(addressed(marker(2)), (T0,))], deadline_s=PATIENCE_S) == {2: {T0: 0}}
            assert await new.write_markers([(addressed(marker(3)), (T0,))], deadline_s=PATIENCE_S) == {3: {T0: 0}}
            assert ("write_marker", marker(1), (T1,)) not in desk.asked

    asyncio.run(run())


def test_the_rest_of_a_large_request_is_not_written_behind_its_repetition() -> None:
    many = tuple(("t", number) for number in range(1_000))

    async def run() -> None:
        desk = HeldDesk()
        handlers = NodeHandlers(desk, CLUSTER)
        markers = make_markers_request([(addressed(marker(1)), many)])
        eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        name = client_id_of(CLUSTER, 2)
        old, new = (KafkaCall(2, name, ClientPeer("127.0.0.1", eof)) for _ in range(2))
        overtaken = begun([handlers.write_txn_markers(markers, old)])[0]
        await desk.until(lambda: bool(desk.asked))
        await handlers.write_txn_markers(make_markers_request([(addressed(marker(1)), (T0,))]), new)
        codes = read_markers_response(await overtaken)[1]
        assert list(codes.values()).count(ELSEWHERE) >= 800
        with pytest.raises(HangUp, match="overtaken"):
            await handlers.write_txn_markers(markers, old)
        with pytest.raises(HangUp, match="names no node"):
            await handlers.write_txn_markers(markers, KafkaCall(2, f"{CLUSTER}/x", ClientPeer("127.0.0.1", eof)))

    asyncio.run(run())


def test_of_the_order_of_markers_no_more_nodes_are_remembered_than_connect() -> None:
    order = MarkerOrder(most=2)
    assert [order.take(node, connection) for node, connection in [(1, 1), (2, 2), (1, 3), (1, 1)]] == [
        True, True, True, False
    ]  # fmt: skip
    assert order.take(3, 4)
    assert order.take(1, 3)
    assert not order.take(1, 2)
    assert order.take(2, 1), "it was forgotten: its connection was the oldest"


def test_whoever_may_not_act_for_the_cluster_is_not_heard() -> None:
    async def run() -> None:
        desk = HeldDesk()
        async with serving(desk, may=lambda who: False) as door:
            remote = RemoteTransactions(LinkSettings(LinkCaller(CLUSTER, 2)), lambda node: door.bound, raise_it)
            assert await remote.ask_additions(B, addition("a")) == {T0: NETWORK_EXCEPTION}
            assert await remote.write_markers(B, addressed(marker(1)), [T0]) == {T0: ELSEWHERE}
            assert not desk.asked
            await remote.close()

    asyncio.run(run())
