"""What nodes ask each other about transactions, lost on its way or too late: three nodes in one process."""

from pathlib import Path

import pytest

from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker
from muster.coordinator.replication.io.wire.node_links import LinkBroken, LinkCaller, NodeLink
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.storage.logs.producer_state import MarkerToWrite, read_marker
from muster.storage.records.batch import read_batches
from tests.support.sides import CLUSTER, PATIENCE_S, SideNode
from tests.support.transaction_sides import StoryProducer, TransactionSides, play

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PLACES = [TopicPartition("t", number) for number in range(3)]
LEVELS = pytest.mark.parametrize("level", [0, 2])
ENDS = pytest.mark.parametrize("commit", [True, False])


def markers_in(node: SideNode, place: TopicPartition) -> list[bool]:
    """Whether each marker in the node's log commits, in its order."""
    log = node.log(place)
    found = [read_marker(each) for each in read_batches(log.fetch(0, 1 << 24).records) if each.control]
    return [not each.aborted for each in found if each is not None]


async def led_elsewhere(sides: TransactionSides, name: str) -> TopicPartition:
    """A partition that another node leads than the one that coordinates this id."""
    coordinator = await sides.coordinator_of(name)
    return next(place for place in PLACES if not coordinator.leads(place))


async def committed_and_next(
    sides: TransactionSides, producer: StoryProducer, place: TopicPartition, before: list[bytes]
) -> None:
    """What is seen, and that the next transaction of the producer is as any other."""
    await sides.until_stable(*PLACES)
    assert await sides.committed(place) == before
    assert await producer.send(place, b"next") == 0
    assert await sides.committed(place) == before
    assert await producer.end(commit=True) == 0
    await sides.until_stable(*PLACES)
    assert await sides.committed(place) == [*before, b"next"]


@LEVELS
@ENDS
def test_tx_n22_a_marker_that_was_written_and_not_answered_is_written_again_without_harm(
    tmp_path: Path, level: int, commit: bool
) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        away = await led_elsewhere(sides, "A")
        assert await producer.send(away, b"a") == 0
        coordinator, leader = await sides.coordinator_of("A"), await sides.leader(away)
        unheard = [True, True, True]
        sides.lost = lambda sender, receiver: (
            (sender, receiver) == (leader.id, coordinator.id) and bool(unheard and unheard.pop())
        )
        assert await producer.end(commit=commit) == 0
        await sides.until(lambda: not unheard)
        assert len(markers_in(leader, away)) >= 3, "each of them was written"
        await committed_and_next(sides, producer, away, [b"a"] if commit else [])
        *repeated, last = markers_in(leader, away)
        assert (set(repeated), last) == ({commit}, True)

    play(tmp_path, story)


@LEVELS
def test_tx_n22_a_partition_that_was_added_and_not_answered_is_added_again_without_harm(
    tmp_path: Path, level: int
) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        away = await led_elsewhere(sides, "A")
        coordinator, leader = await sides.coordinator_of("A"), await sides.leader(away)
        unheard = [True, True, True]
        sides.lost = lambda sender, receiver: (
            (sender, receiver) == (coordinator.id, leader.id) and bool(unheard and unheard.pop())
        )
        assert await producer.send(away, b"a") == 0
        assert not unheard
        assert await producer.end(commit=True) == 0
        await committed_and_next(sides, producer, away, [b"a"])

    play(tmp_path, story)


@LEVELS
@ENDS
def test_tx_n22_markers_go_to_whoever_leads_by_then(tmp_path: Path, level: int, commit: bool) -> None:
    """The leader does not hear of the end, and dies; its successor does."""

    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
        away = await led_elsewhere(sides, "A")
        old = await sides.leader(away)
        sides.lost = lambda sender, receiver: receiver == old.id
        assert await producer.end(commit=commit) == 0
        await sides.kill(old)
        new = await sides.leader(away)
        assert new is not old
        for place in PLACES:
            await sides.until_stable(place)
            assert await sides.committed(place) == ([b"a"] if commit else [])
        assert markers_in(new, away) == [commit]
        await committed_and_next(sides, producer, away, [b"a"] if commit else [])

    play(tmp_path, story)


@LEVELS
def test_tx_n22_a_node_that_was_away_copies_the_markers_and_leads_transactions_again(
    tmp_path: Path, level: int
) -> None:
    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", level)
        assert await producer.init() == 0
        for place in PLACES:
            assert await producer.send(place, b"a") == 0
        away = await led_elsewhere(sides, "A")
        gone = await sides.leader(away)
        await sides.kill(gone)
        assert await producer.end(commit=True) == 0
        await sides.until_stable(*PLACES)
        await sides.start(gone)
        await sides.until(lambda: all(node.log(away).high_watermark == 2 for node in sides))
        assert [markers_in(node, away) for node in sides] == [[True]] * 3
        await sides.kill(await sides.leader(away))
        await committed_and_next(sides, producer, away, [b"a"])

    play(tmp_path, story)


def test_tx_n24_a_marker_that_comes_after_its_repetition_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    """At level 0 both have one epoch. It was sent by a connection that the coordinator has given up since."""

    async def story(sides: TransactionSides) -> None:
        producer = StoryProducer(sides, "A", 0)
        assert await producer.init() == 0
        away = await led_elsewhere(sides, "A")
        coordinator, leader = await sides.coordinator_of("A"), await sides.leader(away)
        caller = LinkCaller(CLUSTER, coordinator.id)
        given_up = await NodeLink.connect(leader.side._door.bound, caller, timeout_s=PATIENCE_S)
        assert await producer.send(away, b"a") == 0
        assert await producer.end(commit=True) == 0
        await sides.until_stable(away)
        assert await producer.send(away, b"b") == 0
        (batch,) = [each for each in read_batches(leader.log(away).fetch(0, 1 << 24).records) if each.control]
        sent = read_marker(batch)
        assert sent is not None
        late = MarkerToWrite(producer.producer_id, producer.epoch, True, sent.coordinator_epoch, 0)
        with pytest.raises(LinkBroken):
            await given_up.write_markers([(NodeMarker(late), (away,))], deadline_s=PATIENCE_S)
        assert await sides.committed(away) == [b"a"]
        assert await producer.end(commit=False) == 0
        await sides.until_stable(away)
        assert await sides.committed(away) == [b"a"]

    play(tmp_path, story)
