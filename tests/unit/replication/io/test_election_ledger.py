"""The ledger of elections: what the controller and followers tell gets to its leader, and is read again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.election_ledger import (
    MAX_WAITING,
    MOST_CAUSE,
    PLACE,
    DatedElection,
    ElectionLedger,
    ElectionRecord,
    election_cost,
    election_record,
    loss_record,
    parse_election_record,
    report_elections,
)
from muster.coordinator.replication.io.shards.takeover_records import LOOKS_AFTER, ShardLosses
from muster.coordinator.replication.io.wire.node_api import ElectionEntry
from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    OFFSETS,
    ClusterImage,
    ClusterTopic,
    PartitionView,
    ReplicaAssignment,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import ElectionKind, ElectionNote
from muster.coordinator.replication.protocol.follower import TruncatedRecords
from muster.storage.errors import OffsetOutsideLog
from tests.support.sides import Sides, unheard

ORDERS = TopicPartition("orders-eu", 3)


def note(
    epoch: int = 8, unit: TopicPartition = ORDERS, clean: ElectionKind = ElectionKind.ISR, cause: str = "node 1 died"
) -> ElectionNote:
    return ElectionNote(unit, epoch, 1, 2, clean, cause, (2, 3), (1,), decided_ms=1_000, took_ms=40)


def test_an_election_is_written_as_section_11_has_it() -> None:
    record = election_record(note(), 1_700_000_000_000)
    assert record.key == b"orders-eu-3"
    assert record.value == (
        b'{"unit":"orders-eu-3","epoch":8,"from":1,"to":2,"clean":"isr","cause":"node 1 died","isr":[2,3],"elr":[1],'
        b'"decided_ms":1700000000000,"took_ms":40}'
    )
    found = parse_election_record(record.value)
    assert isinstance(found, ElectionRecord)
    assert (found.before, found.after, found.isr, found.took_ms) == (1, 2, (2, 3), 40)


def test_what_was_lost_is_told_with_the_election_that_cost_it() -> None:
    undone = TruncatedRecords(ORDERS, 120, 133, (6, 7), 8)
    record = loss_record(1, undone)
    assert record.value == (
        b'{"unit":"orders-eu-3","epoch":8,"lost":{"node":1,"from":120,"to":133,"records":13,"epochs":[6,7]}}'
    )
    values = [election_record(note(epoch, clean=ElectionKind.UNCLEAN), epoch).value for epoch in (8, 9)] + [
        record.value
    ] * 2
    younger, older = report_elections(values)
    assert (younger.election.epoch, younger.lost) == (9, ())
    assert [(each.node, each.start, each.end, each.records, each.epochs) for each in older.lost] == [
        (1, 120, 133, 13, (6, 7))
    ]


def test_what_the_second_half_of_a_shard_lost_is_told_with_the_shard_s_election() -> None:
    shard, ledger = TopicPartition(OFFSETS, 3), TopicPartition(LEDGER, 3)
    cut = [loss_record(1, TruncatedRecords(half, 40, 42, (6,), 8)) for half in (shard, ledger)]
    (found,) = report_elections(
        [election_record(note(8, shard, ElectionKind.UNCLEAN), 5).value, *(each.value for each in cut)], OFFSETS
    )
    assert [each.unit for each in found.lost] == [f"{OFFSETS}-3", f"{LEDGER}-3"]


def test_what_a_shard_lost_is_that_of_both_halves_and_once_whoever_cut_it() -> None:
    shard, ledger, other = (TopicPartition(*place) for place in ((OFFSETS, 3), (LEDGER, 3), (OFFSETS, 4)))
    cut = [
        *(
            loss_record(node, TruncatedRecords(shard, 120, end, (6,), 8))
            for node, end in ((1, 133), (3, 130), (1, 133))
        ),
        loss_record(1, TruncatedRecords(ledger, 40, 42, (6,), 8)),
        loss_record(1, TruncatedRecords(shard, 140, 150, (8,), 9)),
        loss_record(1, TruncatedRecords(other, 0, 100, (6,), 8)),
    ]
    values = [election_record(note(8, shard, ElectionKind.UNCLEAN), 5).value, None, *(each.value for each in cut)]
    assert [election_cost(values, shard, epoch) for epoch in (7, 8, 9)] == [0, 13 + 2, 10]


@pytest.mark.parametrize(
    "value", [None, b"", b"null", b"[]", b"{", b"\xff", b'{"unit":"a-1"}', b'{"unit":"a-1","epoch":"1","lost":{}}']
)
def test_what_is_no_record_of_ours_is_passed_over(value: bytes | None) -> None:
    assert parse_election_record(value) is None
    assert report_elections([value]) == []


def test_one_topic_s_elections_and_each_once_where_it_was_sent_again() -> None:
    other = note(unit=TopicPartition("orders", 3))
    values = [election_record(each, 5).value for each in (note(7), other, note(8), note(8))]
    assert [each.election.epoch for each in report_elections(values, "orders-eu")] == [8, 7]
    assert len(report_elections(values)) == 3


def test_a_cause_that_is_too_long_is_cut() -> None:
    found = parse_election_record(election_record(note(cause="x" * 10 * MOST_CAUSE), 5).value)
    assert isinstance(found, ElectionRecord)
    assert len(found.cause) == MOST_CAUSE


def alone(appended: Callable[[TopicPartition, int], object] | None = None) -> ElectionLedger:
    """A ledger that nobody leads."""
    parts = dict.fromkeys(("broker", "replicas", "links"), None)
    return ElectionLedger(
        **parts,  # type: ignore[arg-type]
        image=ClusterImage(),
        appended=appended,  # type: ignore[arg-type]
        now_ms=lambda: 1_500,
        wall_ms=lambda: 10_000,
        failed=unheard,
    )


def test_the_oldest_of_too_many_that_wait_are_dropped_and_counted() -> None:
    async def story() -> None:
        ledger = alone()
        for epoch in range(MAX_WAITING + 7):
            ledger.note(note(epoch, clean=ElectionKind.UNCLEAN if epoch % 2 else ElectionKind.ELR))
        assert (ledger.waiting, ledger.counted.dropped) == (MAX_WAITING, 7)
        assert ledger.counted.elections == MAX_WAITING + 7
        assert ledger.counted.unclean == (MAX_WAITING + 7) // 2
        first = ledger._waiting[0]
        assert isinstance(first, DatedElection)
        assert (first.note.epoch, first.decided_ms) == (7, 9_500), "500 ms ago, on the wall's clock"

    asyncio.run(story())


def test_each_node_s_word_gets_to_the_leader_and_is_read_where_a_copy_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with Sides(tmp_path) as sides:
            sides.standing.make(ClusterTopic(PLACE.topic, b"e" * 16, (ReplicaAssignment((1, 2, 3)),)))
            leader = await sides.leader(PLACE)
            for node in sides:
                node.side.elections.note(note(node.id))
                node.side.elections.undone(TruncatedRecords(ORDERS, 5, 5 + node.id, (0,), node.id))
            await sides.until(lambda: leader.log(PLACE).high_watermark == 6)
            others = [node for node in sides if node is not leader]
            await sides.until(lambda: all(node.log(PLACE).high_watermark == 6 for node in others))
            for node in sides:
                assert node.side.elections.waiting == 0
                found = await node.side.elections.explain(10)
                assert {each.election.epoch: [lost.records for lost in each.lost] for each in found} == {
                    1: [1],
                    2: [2],
                    3: [3],
                }
                assert await node.side.elections.cost(ORDERS, 3) == 3
                [last] = await node.side.elections.explain(1)
                assert last == found[0], "the youngest"
            assert await others[0].side.elections.append((ElectionEntry(b"", b""),)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await leader.side.elections.append(()) is ErrorCode.INVALID_REQUEST

    asyncio.run(story())


def test_who_stops_has_told_what_it_decided(tmp_path: Path) -> None:
    """A controller that goes down in order has just decided who leads what it led."""

    async def story() -> None:
        async with Sides(tmp_path) as sides:
            sides.standing.make(ClusterTopic(PLACE.topic, b"e" * 16, (ReplicaAssignment((1, 2, 3)),)))
            leader = await sides.leader(PLACE)
            other = next(node for node in sides if node is not leader)
            other.side.elections.note(note())
            await sides.stop(other)
            assert leader.log(PLACE).end_offset == 1

    asyncio.run(story())


def test_what_was_told_while_nobody_led_the_ledger_is_sent_once_somebody_does(tmp_path: Path) -> None:
    async def story() -> None:
        async with Sides(tmp_path) as sides:
            [first, *_] = sides
            first.side.elections.note(note())
            assert await first.side.elections.explain(5) == []
            sides.standing.make(ClusterTopic(PLACE.topic, b"e" * 16, (ReplicaAssignment((2, 1)),)))
            await sides.until(lambda: first.side.elections.waiting == 0)
            assert [each.election.epoch for each in await first.side.elections.explain(5)] in ([], [8])
            leader = await sides.leader(PLACE)
            assert [each.election.epoch for each in await leader.side.elections.explain(5)] == [8]

    asyncio.run(story())


def test_a_copy_that_cannot_be_read_costs_its_node_nothing_but_the_figure() -> None:
    """It is best effort: whoever looks for what elections cost does so for as long as the node lives."""

    class Broker:
        reads = 0

        def start_offset(self, topic: str, partition: int) -> int:
            return 0

        def high_watermark(self, topic: str, partition: int) -> int:
            return 5

        def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> object:
            self.reads += 1
            raise OffsetOutsideLog("retention took it between two looks")

    class Replicas:
        led = (PLACE,)

    async def story() -> None:
        ledger, broker = alone(), Broker()
        ledger._broker, ledger._replicas = broker, Replicas()  # type: ignore[assignment]
        image = ClusterImage()
        view = PartitionView(2, 8, 0, (1, 2), (), (1, 2), unclean_epoch=8)
        image.topics[OFFSETS] = TopicView(b"o" * 16, OFFSETS, partitions={3: view})
        cuts = ShardLosses(image, ledger.cost, lambda *found: True)
        cuts.gained(3)
        with capture_logs() as lines:
            for _ in range(LOOKS_AFTER):
                await cuts.check_losses()
        assert (broker.reads, cuts._due) == (LOOKS_AFTER, {})
        assert [line["event"] for line in lines] == ["losses of unclean elections cannot be read here"]
        with pytest.raises(OffsetOutsideLog):
            await ledger.explain(10)

    asyncio.run(story())
