"""Produce and fetch at three nodes over loopback and real logs, as their doors ask for it."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import pytest

from muster.coordinator.edge.cluster_view import wall_ms
from muster.coordinator.replication.protocol.cluster_metadata import ClusterTopic, ReplicaAssignment, TopicPartition
from muster.storage.broker.fetches import FetchLimits
from muster.storage.errors import NotEnoughReplicas, NotLeaderOrFollower, RequestTimedOut, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import decode_records
from muster.storage.types import Appended
from tests.support.sides import SideNode, Sides
from tests.unit.storage.logs import batch

pytestmark = pytest.mark.integration

ALL, ONE, NONE = -1, 1, 0
PLACE, PAID = TopicPartition("orders", 0), TopicPartition("paid", 0)
TWO = {"min.insync.replicas": "2"}
TOPICS = (
    ClusterTopic("orders", b"o" * 16, (ReplicaAssignment((1, 2, 3)),), TWO, version=0),
    ClusterTopic("paid", b"p" * 16, (ReplicaAssignment((2, 3, 1)),), TWO, version=0),
)
UNFLUSHED = TopicPartition("unflushed", 0)
LOOSE = ClusterTopic(
    "unflushed", b"u" * 16, (ReplicaAssignment((1, 2, 3)),), {**TWO, "flush.messages": str(2**63 - 1)}, version=0
)
ANYTHING = FetchLimits(1, 1 << 20, False)
LONG_MS = 600_000


def play(directory: Path, story: Callable[[Sides], Awaitable[None]], *more: ClusterTopic) -> None:
    async def run() -> None:
        async with Sides(directory) as sides:
            sides.standing.make(*TOPICS, *more)
            for topic in (*TOPICS, *more):
                await sides.leader(TopicPartition(topic.name, 0))
            await story(sides)

    asyncio.run(run())


async def produced(
    node: SideNode, *values: bytes, acks: int = ALL, timeout_ms: int = 0, place: TopicPartition = PLACE, **how: int
) -> Appended | StorageError:
    (result,) = await node.requests.produce([(*place, batch(*values, at=wall_ms(), **how))], acks, timeout_ms)
    return result


async def written(node: SideNode, *values: bytes, **how: int) -> int:
    """Where it lies."""
    result = await produced(node, *values, **how)
    assert isinstance(result, Appended), result
    return result.base_offset


async def fetched(node: SideNode, offset: int, max_wait_ms: int = 0) -> list[bytes | None] | StorageError:
    (found,) = await node.requests.fetch([(*PLACE, offset, 0)], ANYTHING, max_wait_ms)
    if isinstance(found, StorageError):
        return found
    return [record.value for record in decode_records(found.records, offset)]


def others(sides: Sides, leader: SideNode) -> list[SideNode]:
    return [node for node in sides if node is not leader]


async def silence(sides: Sides, node: SideNode) -> None:
    """It ends, and its session goes on: nobody knows for `replica.lag.time.max.ms`."""
    sides.up.remove(node)
    await node.kill()


def in_sync(leader: SideNode) -> int:
    return len(leader.side.replicas.leaders[PLACE].isr)


@pytest.mark.parametrize("acks", [ALL, ONE, NONE])
def test_what_is_produced_is_read_at_its_leader(tmp_path: Path, acks: int) -> None:
    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        assert [await written(leader, b"%d" % number, acks=acks) for number in range(3)] == [0, 1, 2]
        await sides.until(lambda: leader.log(PLACE).high_watermark == 3)
        assert await fetched(leader, 0) == [b"0", b"1", b"2"]

    play(tmp_path, story)


def test_two_topics_are_led_by_two_nodes_and_each_tells_where_the_other_is(tmp_path: Path) -> None:
    """CL-K1."""

    async def story(sides: Sides) -> None:
        leaders = {place: await sides.leader(place) for place in (PLACE, PAID)}
        assert [leaders[PLACE].id, leaders[PAID].id] == [1, 2]
        for place, leader in leaders.items():
            assert await produced(leader, b"a", place=place) == Appended(0, 0, -1, 0)
            for node in others(sides, leader):
                refused = await produced(node, b"b", place=place)
                assert isinstance(refused, NotLeaderOrFollower)
                assert (refused.leader, refused.leader_epoch) == (leader.id, 0)
        for node in sides:
            assert sorted(node.led.topics()) == ["orders", "paid"]
            assert node.led.ends([PLACE, PAID]) == [log.high_watermark for log in map(node.log, (PLACE, PAID))]

    play(tmp_path, story)


def test_a_turn_is_one_flush_on_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-D2: that of the leader serves all produces of a turn, and there is no second round for them."""
    flushed: Counter[str] = Counter()
    flush = Log.flush

    def counted(log: Log) -> None:
        if log.partition == PLACE and log.unflushed:
            flushed[log.directory] += 1
        flush(log)

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        await written(leader, b"first")
        flushed.clear()
        parts = [(*PLACE, batch(b"%d" % number, at=wall_ms())) for number in range(200)]
        done = await leader.requests.produce(parts, ALL, 0)
        assert [each.base_offset for each in done if isinstance(each, Appended)] == list(range(1, 201))
        assert flushed == {node.log(PLACE).directory: 1 for node in sides}

    monkeypatch.setattr(Log, "flush", counted)
    play(tmp_path, story)


def test_a_settlement_that_finds_nothing_asks_little(tmp_path: Path) -> None:
    """A node settles for each answer, flush and fetch: eight times for a commit of three nodes."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        await written(leader, b"first")
        calls = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal calls
            calls += event == "call" and "asyncio" not in frame.f_code.co_filename

        for node in sides:
            calls = 0
            node.side.settle()
            sys.setprofile(count)
            try:
                node.side.settle()
            finally:
                sys.setprofile(None)
            assert calls <= 20, f"node {node.id}"

    play(tmp_path, story)


def test_a_topic_that_promises_no_flush_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-D2: `flush.messages` buys Kafka's trade, on the leader and on those that copy."""
    flushed = []
    flush = Log.flush

    def noted(log: Log) -> None:
        if log.partition == UNFLUSHED and log.unflushed:
            flushed.append(log.directory)
        flush(log)

    async def story(sides: Sides) -> None:
        leader = await sides.leader(UNFLUSHED)
        with monkeypatch.context() as patch:
            patch.setattr(Log, "flush", noted)
            for acks in (ALL, ONE, NONE, ALL):
                assert isinstance(await produced(leader, b"a", acks=acks, place=UNFLUSHED), Appended)
            await sides.until(lambda: all(node.log(UNFLUSHED).high_watermark == 4 for node in sides))
        assert flushed == []
        assert [node.log(UNFLUSHED).unflushed for node in sides] == [4, 4, 4]

    play(tmp_path, story, LOOSE)


def test_with_too_few_in_sync_only_who_wants_less_is_served(tmp_path: Path) -> None:
    """CL-L2: 7 while nobody knows yet, 19 from then on; what was read stays readable, and all goes on with one more."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        await written(leader, b"a")
        gone = others(sides, leader)
        for node in gone:
            await silence(sides, node)
        assert isinstance(await produced(leader, b"b", timeout_ms=50), RequestTimedOut)
        await sides.until(lambda: in_sync(leader) == 1)
        assert isinstance(await produced(leader, b"c"), NotEnoughReplicas)
        assert await written(leader, b"d", acks=ONE) == 2
        assert await fetched(leader, 0) == [b"a"]
        waiting = asyncio.create_task(fetched(leader, 1, LONG_MS))
        await sides.start(gone[0])
        assert await waiting == [b"b", b"d"]
        assert await written(leader, b"e") == 3

    play(tmp_path, story)


def test_a_repeat_over_a_failover_has_its_old_offsets(tmp_path: Path) -> None:
    """CL-F10, CL-K6: whatever of a producer's batches had come to the new leader, each is there once."""

    async def story(sides: Sides) -> None:
        old = await sides.leader(PLACE)
        first = batch(b"a", b"b", at=wall_ms(), producer_id=7, producer_epoch=0, base_sequence=0)
        second = batch(b"c", at=wall_ms(), producer_id=7, producer_epoch=0, base_sequence=2)
        assert await old.requests.produce([(*PLACE, first)], ALL, 0) == [Appended(0, 1, -1, 0)]
        old.log(PLACE).append(second, wall_ms())  # nobody is told, and may come by it all the same
        await sides.kill(old)
        new = await sides.leader(PLACE)
        for expected in (0, 2, 0, 2):
            again = first if expected == 0 else second
            (told,) = await new.requests.produce([(*PLACE, again)], ALL, 0)
            assert isinstance(told, Appended)
            assert told.base_offset == expected
        assert await fetched(new, 0) == [b"a", b"b", b"c"]
        await sides.start(old)
        await sides.until(lambda: in_sync(new) == 3)
        await sides.until(lambda: all(node.log(PLACE).high_watermark == 3 for node in sides))
        logs = [node.log(PLACE).fetch(0, 1 << 20).records for node in sides]
        assert logs[0] == logs[1] == logs[2]

    play(tmp_path, story)


def test_a_fetch_that_waits_is_woken_by_what_is_committed(tmp_path: Path) -> None:
    """CL-L8."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        waiting = asyncio.create_task(fetched(leader, 0, LONG_MS))
        await asyncio.sleep(0)
        assert await written(leader, b"a") == 0
        assert await waiting == [b"a"]

    play(tmp_path, story)


def test_who_waits_at_a_leader_that_is_none_any_more_is_told(tmp_path: Path) -> None:
    """CL-L2, CL-L9: 6 for records that are not committed and for readers, at once."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        for node in others(sides, leader):
            await sides.kill(node)
        reading = asyncio.create_task(fetched(leader, 0, LONG_MS))
        writing = asyncio.create_task(produced(leader, b"a"))
        await sides.until(lambda: leader.log(PLACE).end_offset == 1)
        leader.side.replicas.shown(PLACE, 9)
        leader.side.settle()
        told = await asyncio.gather(reading, writing)
        assert [getattr(each, "code", each) for each in told] == [6, 6]
        assert isinstance(await produced(leader, b"b", acks=ONE), NotLeaderOrFollower)

    play(tmp_path, story)


def test_records_are_given_up_on_all_that_are_in_sync(tmp_path: Path) -> None:
    """CL-A3b, CL-F8; 7 where one of them does not answer, 6 at who does not lead."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        for number in range(5):
            await written(leader, b"%d" % number)
        assert await leader.requests.delete_records([(*PLACE, 3)], LONG_MS) == [3]
        assert [node.log(PLACE).start_offset for node in sides] == [3, 3, 3]
        assert (await fetched(leader, 0)).code == 1  # type: ignore[union-attr]
        assert await fetched(leader, 3) == [b"3", b"4"]
        follower, late = others(sides, leader)
        (refused,) = await follower.requests.delete_records([(*PLACE, 4)], LONG_MS)
        assert isinstance(refused, NotLeaderOrFollower)
        await silence(sides, late)
        (slow,) = await leader.requests.delete_records([(*PLACE, 4)], 1)
        assert isinstance(slow, RequestTimedOut)
        assert await leader.requests.delete_records([(*PLACE, 4)], LONG_MS) == [4], "it has left by then"
        assert [node.log(PLACE).start_offset for node in (leader, follower)] == [4, 4]

    play(tmp_path, story)


def test_what_retention_takes_at_the_leader_goes_on_all(tmp_path: Path) -> None:
    """CL-F8: a leader that was not told of its own start told nobody where nothing was written any more."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        for number in range(4):
            await written(leader, b"%d" % number)
        leader.log(PLACE).start_offset = 2  # as upkeep does, in a thread of its own
        await sides.until(lambda: all(node.log(PLACE).start_offset == 2 for node in sides))

    play(tmp_path, story)


def test_a_new_leader_tells_the_latest_offset_as_soon_as_it_knows_it(tmp_path: Path) -> None:
    """CL-L8."""

    async def story(sides: Sides) -> None:
        old = await sides.leader(PLACE)
        for number in range(3):
            await written(old, b"%d" % number)
        await sides.kill(old)
        new = await sides.leader(PLACE)
        await sides.until(lambda: new.led.knows_latest(*PLACE))
        assert new.requests.list_offset(*PLACE, -1) == (3, -1, 1)
        assert new.requests.list_offset(*PLACE, -2) == (0, -1, 0)
        with pytest.raises(NotLeaderOrFollower):
            others(sides, new)[-1].requests.list_offset(*PLACE, -1)

    play(tmp_path, story)
