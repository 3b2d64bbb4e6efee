"""Three nodes over loopback and real logs: what was acknowledged outlives the leader's node (CL-D2, CL-F5, CL-L3,
CL-C2)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io import copy_repair
from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    OFFSETS,
    ClusterTopic,
    ReplicaAssignment,
    TopicPartition,
)
from muster.storage.broker.broker import Broker
from muster.storage.errors import LogDamaged, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import decode_records
from tests.support.sides import Sides

pytestmark = pytest.mark.integration

PLACE = TopicPartition("orders", 0)
ORDERS = ClusterTopic("orders", b"o" * 16, (ReplicaAssignment((1, 2, 3)),), {"min.insync.replicas": "2"}, version=0)


def play(directory: Path, story: Callable[[Sides], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Sides(directory) as sides:
            sides.standing.make(ORDERS)
            await story(sides)

    asyncio.run(run())


def read(log: Log, offset: int | None = None) -> list[bytes | None]:
    """Whatever of it is committed, from there on; None: from its start."""
    offset = log.start_offset if offset is None else offset
    return [record.value for record in decode_records(log.fetch(offset, 1 << 24).records, offset)]


def in_sync(sides: Sides) -> set[int]:
    return set(sides.standing.states[PLACE].isr)


def flip_a_bit(directory: Path) -> None:
    """In the middle of the first segment."""
    path = directory / f"{PLACE}" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def values(name: str, count: int) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


def test_what_is_acknowledged_is_on_all_and_committed(tmp_path: Path) -> None:
    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        assert leader.id == 1
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        for value in values("a", 20):
            assert await leader.produce(PLACE, value) is ErrorCode.NONE
            kept = sorted(node.log(PLACE).durable_offset for node in sides)
            assert kept[0] == leader.log(PLACE).end_offset, "flushed on every replica in sync"
        await sides.until(lambda: all(node.log(PLACE).high_watermark == 20 for node in sides))
        assert [read(node.log(PLACE)) for node in sides] == [values("a", 20)] * 3

    play(tmp_path, story)


def test_nothing_acknowledged_is_lost_with_the_leader_which_comes_back_and_gives_up_what_it_had_alone(
    tmp_path: Path,
) -> None:
    async def story(sides: Sides) -> None:
        old = await sides.leader(PLACE)
        for value in values("a", 10):
            assert await old.produce(PLACE, value) is ErrorCode.NONE
        old.write(PLACE, *values("nobody", 5))
        await sides.kill(old)
        new = await sides.leader(PLACE)
        assert new.id != old.id
        await sides.until(lambda: old.id in new.refused)  # CL-C9: who did not answer may be looked at
        for value in values("b", 10):
            assert await new.produce(PLACE, value) is ErrorCode.NONE
        assert in_sync(sides) == {2, 3}
        assert read(new.log(PLACE)) == values("a", 10) + values("b", 10)

        await sides.start(old)
        assert old.log(PLACE).end_offset == 15
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        assert await new.produce(PLACE, b"last") is ErrorCode.NONE
        await sides.until(lambda: all(node.log(PLACE).high_watermark == 21 for node in sides))
        expected = values("a", 10) + values("b", 10) + [b"last"]
        assert [read(node.log(PLACE)) for node in sides] == [expected] * 3
        epochs = [node.log(PLACE).epochs.entries for node in sides]
        assert epochs == [[(0, 0), (1, 10)]] * 3

    play(tmp_path, story)


def test_a_damaged_copy_that_leads_hands_over_and_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-F9: consumers got CORRUPT_MESSAGE for ever beside two good copies."""
    monkeypatch.setattr(copy_repair, "AFTER_MS", 0)

    async def story(sides: Sides) -> None:
        first, second, _ = sides
        for value in values("a", 20):
            assert await (await sides.leader(PLACE)).produce(PLACE, value) is ErrorCode.NONE
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        await sides.stop(first)
        flip_a_bit(tmp_path / "1")
        await sides.start(first)
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        await sides.stop(second)
        await sides.until(lambda: first.leads(PLACE))
        await sides.start(second)
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        with pytest.raises(LogDamaged):
            read(first.log(PLACE), len(read(first.log(PLACE))))
        await sides.until(lambda: not first.leads(PLACE))
        good = await sides.leader(PLACE)
        assert read(good.log(PLACE)) == values("a", 20)
        assert await good.produce(PLACE, b"last") is ErrorCode.NONE
        await sides.until(lambda: in_sync(sides) == {1, 2, 3} and first.log(PLACE).high_watermark == 21)
        assert read(first.log(PLACE)) == [*values("a", 20), b"last"]
        assert first.broker.troubles.current() == ()

    play(tmp_path, story)


def test_with_fewer_than_the_least_in_sync_nothing_is_acknowledged_until_one_is_back(tmp_path: Path) -> None:
    """CL-L2, CL-D3."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        assert await leader.produce(PLACE, b"a") is ErrorCode.NONE
        others = [node for node in sides if node is not leader]
        for node in others:
            await sides.kill(node)
        await sides.until(lambda: leader.side.replicas.leaders[PLACE].isr == (leader.id,))
        assert await leader.produce(PLACE, b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
        await sides.start(others[0])
        await sides.until(lambda: len(leader.side.replicas.leaders[PLACE].isr) == 2)
        assert await leader.produce(PLACE, b"c") is ErrorCode.NONE
        assert read(leader.log(PLACE)) == [b"a", b"c"]

    play(tmp_path, story)


def fenced(log: Log, patches: pytest.MonkeyPatch) -> None:
    log.fence("errno 5")


def unflushable(log: Log, patches: pytest.MonkeyPatch) -> None:
    flush = Log.flush

    def fails(self: Log) -> None:
        if self is log:
            raise StorageError("errno 5")
        flush(self)

    patches.setattr(Log, "flush", fails)


@pytest.mark.parametrize("breaks", [fenced, unflushable])
def test_a_follower_whose_log_breaks_is_told_of_and_the_others_go_on(
    tmp_path: Path, breaks: Callable[[Log, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-F9: it leaves the in-sync replicas, and a partition beside it is copied on."""
    beside = ClusterTopic("beside", b"b" * 16, (ReplicaAssignment((1, 2, 3)),), {"min.insync.replicas": "2"}, version=0)
    other = TopicPartition("beside", 0)

    async def story(sides: Sides) -> None:
        sides.standing.make(ORDERS, beside)
        leader = await sides.leader(PLACE)
        assert await leader.produce(PLACE, b"a") is ErrorCode.NONE
        broken = next(node for node in sides if node is not leader)
        breaks(broken.log(PLACE), monkeypatch)
        for value in values("b", 3):
            assert await leader.produce(PLACE, value) is ErrorCode.NONE
        await sides.until(lambda: PLACE in broken.side.replicas.offline)
        await sides.until(lambda: broken.id not in in_sync(sides))
        await sides.leader(other)
        assert await leader.produce(other, b"c") is ErrorCode.NONE
        await sides.until(lambda: broken.log(other).high_watermark == 1)

    play(tmp_path, story)


def test_a_node_that_stops_in_order_begins_with_what_was_committed(tmp_path: Path) -> None:
    """CL-F4."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        for value in values("a", 5):
            assert await leader.produce(PLACE, value) is ErrorCode.NONE
        follower = next(node for node in sides if node is not leader)
        await sides.until(lambda: follower.log(PLACE).high_watermark == 5)
        await sides.stop(follower)
        assert await leader.produce(PLACE, b"meanwhile") is ErrorCode.NONE
        await sides.start(follower)
        assert (follower.log(PLACE).high_watermark, follower.log(PLACE).end_offset) == (5, 5)
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        await sides.until(lambda: follower.log(PLACE).high_watermark == 6)

    play(tmp_path, story)


def test_how_far_is_committed_is_written_down_every_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-F4: a follower that is killed begins with what it was told before."""
    write = Broker.checkpoint_high_watermarks

    async def story(sides: Sides) -> None:
        loop, written = asyncio.get_running_loop(), []

        def noted(broker: Broker) -> None:
            high_watermark = broker.log(*PLACE).high_watermark if "orders" in broker.topics() else 0
            write(broker)
            written.append((broker, high_watermark))
            loop.call_soon_threadsafe(sides.happened.set)

        monkeypatch.setattr(Broker, "checkpoint_high_watermarks", noted)
        leader = await sides.leader(PLACE)
        for value in values("a", 5):
            assert await leader.produce(PLACE, value) is ErrorCode.NONE
        follower = next(node for node in sides if node is not leader)
        await sides.until(lambda: (follower.broker, 5) in written)
        await sides.kill(follower)
        await sides.start(follower)
        assert follower.log(PLACE).high_watermark == 5

    play(tmp_path, story)


def test_both_halves_of_a_shard_are_led_and_copied_as_one(tmp_path: Path) -> None:
    offsets, ledger = TopicPartition(OFFSETS, 0), TopicPartition(LEDGER, 0)
    topics = [
        ClusterTopic(
            place.topic,
            place.topic.encode()[2:10] * 2,
            (ReplicaAssignment((2, 3, 1)),),
            {"min.insync.replicas": "2"},
            0,
        )
        for place in (offsets, ledger)
    ]

    async def story(sides: Sides) -> None:
        sides.standing.make(*topics)
        leader = await sides.leader(offsets)
        assert leader.leads(ledger)
        assert await leader.produce(offsets, b"a") is ErrorCode.NONE
        assert await leader.produce(ledger, b"b") is ErrorCode.NONE
        await sides.kill(leader)
        new = await sides.leader(offsets)
        await sides.until(lambda: all(new.log(half).high_watermark == 1 for half in (offsets, ledger)))
        assert (read(new.log(offsets)), read(new.log(ledger))) == ([b"a"], [b"b"])
        assert await new.produce(ledger, b"c") is ErrorCode.NONE

    play(tmp_path, story)


def test_a_topic_made_again_under_its_name_begins_empty_on_all(tmp_path: Path) -> None:
    """CL-A3: a copy of the former one is deleted, by its id, and never mixed with the new."""
    again = ClusterTopic("orders", b"n" * 16, ORDERS.partitions, ORDERS.configs, version=0)

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        assert await leader.produce(PLACE, b"former") is ErrorCode.NONE
        sides.standing.make(again)
        await sides.until(lambda: all(node.side.logs.topic_id(PLACE) == again.topic_id for node in sides))
        leader = await sides.leader(PLACE)
        assert await leader.produce(PLACE, b"new") is ErrorCode.NONE
        await sides.until(lambda: all(node.log(PLACE).high_watermark == 1 for node in sides))
        assert [read(node.log(PLACE)) for node in sides] == [[b"new"]] * 3

    play(tmp_path, story)
