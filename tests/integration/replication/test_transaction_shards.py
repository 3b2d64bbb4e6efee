"""Transactions over three nodes in one process: who coordinates, and what becomes of them when nodes die."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.edge.cluster_view import wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.replicated_shards import WarmTransactionShard
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.runtime.leased import LeasedEngine, WarmShard
from muster.coordinator.transactions.events import PartitionAddition
from muster.storage.errors import StorageError
from muster.storage.records.batch import encode_written
from tests.support.transaction_sides import (
    NOT_YET,
    PAUSE_S,
    StoryProducer,
    TransactionNode,
    TransactionSides,
    group_shard,
    play,
    shard_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PLACES = [TopicPartition("t", number) for number in range(3)]
LEVELS = pytest.mark.parametrize("level", [0, 2])


@LEVELS
def test_tx_n5_a_transaction_over_all_leaders_is_seen_whole_or_not_at_all(tmp_path: Path, level: int) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
            assert await sides.committed(place) == [], "it is open"
        assert await producer.end(commit=True) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == [b"a"]
            assert await producer.send(place, b"b") == 0
        assert await producer.end(commit=False) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == [b"a"]

    play(tmp_path, story)


@LEVELS
@pytest.mark.parametrize("commit", [True, False])
def test_tx_n4_the_coordinator_is_killed_in_an_open_transaction_and_the_next_one_goes_on(
    tmp_path: Path, level: int, commit: bool
) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
        before = await sides.coordinator_of("A")
        await sides.kill(before)
        for place in PLACES:
            assert await producer.send(place, b"b") == 0
        assert await producer.end(commit=commit) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == ([b"a", b"b"] if commit else [])
        assert await sides.coordinator_of("A") is not before

    play(tmp_path, story)


@LEVELS
@pytest.mark.parametrize("commit", [True, False])
def test_tx_n5_markers_that_did_not_arrive_are_written_by_whoever_coordinates_next(
    tmp_path: Path, level: int, commit: bool
) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
        before = await sides.coordinator_of("A")
        sides.lost = lambda sender, receiver: True
        assert await producer.end(commit=commit) == 0
        elsewhere = [place for place in PLACES if not before.leads(place)]
        assert elsewhere
        for place in elsewhere:
            assert await sides.committed(place) == []
        await sides.kill(before)
        sides.lost = lambda sender, receiver: False
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == ([b"a"] if commit else [])
            assert await producer.send(place, b"b") == 0
        assert await producer.end(commit=True) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == ([b"a", b"b"] if commit else [b"b"])

    play(tmp_path, story)


@LEVELS
def test_tx_n6_a_leader_of_data_is_killed_in_an_open_transaction(tmp_path: Path, level: int) -> None:
    """What its followers have says that the transaction is open; the producer is verified again."""

    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
        coordinator = await sides.coordinator_of("A")
        away = next(place for place in PLACES if not coordinator.leads(place))
        struck = await sides.leader(away)
        await sides.kill(struck)
        await sides.leader(away)
        assert await sides.committed(away) == []
        for place in PLACES:
            assert await producer.send(place, b"b") == 0
        assert await producer.end(commit=True) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == [b"a", b"b"]

    play(tmp_path, story)


@LEVELS
def test_tx_c4_a_new_instance_fences_the_old_one_at_a_new_coordinator(tmp_path: Path, level: int) -> None:
    async def story(sides: TransactionSides) -> None:
        old, new = StoryProducer(sides, "A", level), StoryProducer(sides, "A", level)
        assert await old.init() == 0
        for place in PLACES:
            assert await old.send(place, b"old") == 0
        await sides.kill(await sides.coordinator_of("A"))
        assert await new.init() == 0
        assert await old.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await old.send(PLACES[0], b"old") != 0
        for place in PLACES:
            assert await new.send(place, b"new") == 0
        assert await new.end(commit=True) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == [b"new"]

    play(tmp_path, story)


@LEVELS
def test_tx_g4_positions_of_a_group_are_committed_with_the_transaction_by_whoever_leads_its_shard(
    tmp_path: Path, level: int
) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        assert await producer.send(PLACES[0], b"a") == 0
        assert await producer.send_offset("g", ("t", 1), 5) == 0
        assert await sides.position("g", ("t", 1), stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        await sides.kill(await sides.leader(group_shard("g")))
        assert await sides.position("g", ("t", 1)) == -1
        assert await producer.end(commit=True) == 0
        await sides.until_stable(PLACES[0], group_shard("g"))
        assert await sides.position("g", ("t", 1), stable=True) == 5
        assert await producer.send_offset("g", ("t", 1), 7) == 0
        assert await producer.end(commit=False) == 0
        await sides.until_stable(group_shard("g"))
        assert await sides.position("g", ("t", 1), stable=True) == 5

    play(tmp_path, story)


def test_tx_n3_a_node_that_does_not_know_the_topic_yet_adds_nothing(tmp_path: Path) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A")
        assert await producer.init() == 0
        node = await sides.coordinator_of("A")
        service = sides.ids[node.id].service
        addition = PartitionAddition("A", producer.producer_id, producer.epoch, (("unseen", 0),), verify_only=False)
        assert await service.add_partitions(addition) == {("unseen", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        other = next(each for each in sides if each is not node)
        asked = PartitionAddition("A", producer.producer_id, producer.epoch, (("t", 0),), verify_only=False)
        wrong = await sides.ids[other.id].service.add_partitions(asked)
        assert wrong == {("t", 0): ErrorCode.NOT_COORDINATOR}

    play(tmp_path, story)


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_several_batches_whose_answer_was_lost_are_acknowledged_when_they_come_again(
    tmp_path: Path, transactional: bool, killed: bool
) -> None:
    """By the leader that took them, and by the next one, which has them from its log."""

    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A")
        assert await producer.init() == 0
        coordinator = await sides.coordinator_of("A")
        place = next(place for place in PLACES if not coordinator.leads(place))
        data = b"".join(
            encode_written(
                [(b"", b"a", ()), (b"", b"b", ())],
                wall_ms(),
                producer=(producer.producer_id, producer.epoch, first),
                transactional=transactional,
            )
            for first in (0, 2, 4)
        )
        assert await produced(sides, producer, place, data) == 0
        if killed:
            await sides.kill(await sides.leader(place))
        assert await produced(sides, producer, place, data) == 0
        leader = await sides.leader(place)
        assert leader.log(place).end_offset == 6
        if transactional:
            assert await producer.end(commit=True) == 0
            await sides.until_stable(place)
        assert await sides.committed(place) == [b"a", b"b"] * 3

    async def produced(sides: TransactionSides, producer: StoryProducer, place: TopicPartition, data: bytes) -> int:
        """The base offset, once it is taken."""
        while True:
            node = await sides.leader(place)
            parts = [(*place, memoryview(data))]
            if transactional:

                def begin(let_in: Any, guards: Any, node: Any = node) -> Any:
                    return node.requests.begin_produce(let_in, -1, 3_000, guards)

                (outcome,) = await sides.ids[node.id].gate.append_first(producer.id, parts, 12, begin)
            else:
                (outcome,) = await node.requests.produce(parts, -1, 3_000)
            if not isinstance(outcome, StorageError):
                return int(outcome.base_offset)
            assert outcome.code in NOT_YET, outcome
            await asyncio.sleep(PAUSE_S)

    play(tmp_path, story)


def test_tx_n1_the_next_coordinator_takes_over_what_it_kept_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    take_over = LeasedEngine.take_over

    def noted(engine: LeasedEngine, shard: int, warm: WarmShard, now_ms: int) -> None:
        if isinstance(warm, WarmTransactionShard):
            taken.append((shard, warm.report.groups))
        take_over(engine, shard, warm, now_ms)

    monkeypatch.setattr(LeasedEngine, "take_over", noted)

    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A")
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
        before, shard = await sides.coordinator_of("A"), shard_of("A").partition
        standbys = [sides.ids[node.id] for node in sides.up if node is not before]
        await sides.until(lambda: all(kept_ready(each, shard) for each in standbys))
        taken.clear()
        await sides.kill(before)
        assert await producer.end(commit=True) == 0
        await sides.until_stable(*PLACES)
        for place in PLACES:
            assert await sides.committed(place) == [b"a"]
        assert [facts > 0 for number, facts in taken if number == shard] == [True]

    play(tmp_path, story)


def kept_ready(node: TransactionNode, shard: int) -> bool:
    """Whether the node has taken in all that is committed of the shard, which another one leads."""
    warming = node.coordinating._warming
    warm = None if warming is None else warming._warm.get(shard)
    return warm is not None and warm.report.groups > 0 and not warm.behind
