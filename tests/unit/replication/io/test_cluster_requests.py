"""Records for a leader whose followers are played by hand: what is answered when, and with what."""

import asyncio

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.storage.errors import (
    InvalidRequiredAcks,
    InvalidTopicName,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
)
from muster.storage.types import AppendOrigin
from tests.support.led_requests import ALL, NO_ACKS, ONE, PAID, Part, begin, play, read, refusal, turn
from tests.support.led_side import HERE, ORDERS, THERE, YONDER, LedSide, partition, topic
from tests.unit.storage.logs import T0, batch

# -- a disk that refuses ----------------------------------------------------------------------------------


def test_a_leader_without_room_lets_another_lead() -> None:
    """It would refuse producers until somebody made room, while those in sync with it have some (CL-F9)."""

    async def story(side: LedSide) -> None:
        side.files.capacity = side.files.used()
        assert isinstance(await refusal(begin(side, b"a")), NotLeaderOrFollower)
        assert "No space left on device" in side.replicas.offline[ORDERS][1]
        assert PAID not in side.replicas.offline, "nothing was refused there yet"

    play(story)


def test_a_leader_without_room_goes_on_where_nobody_else_is_in_sync() -> None:
    """What it has can be read."""

    async def story(side: LedSide) -> None:
        begin(side, b"a")
        await turn()
        side.flushes()
        side.follows()
        side.hears(topic(partition(isr=(HERE,), version=1)))
        side.files.capacity = side.files.used()
        assert "No space left" in str(await refusal(begin(side, b"b", acks=ONE)))
        assert (await read(side), side.replicas.offline) == (([b"a"], 1), {})

    play(story)


# -- produce ----------------------------------------------------------------------------------------------


def test_acks_of_all_are_answered_once_it_is_committed() -> None:
    async def story(side: LedSide) -> None:
        first, second = begin(side, b"a"), begin(side, b"b", b"c")
        await turn()
        assert side.grew == [ORDERS], "followers hear at once, and once of what a turn has brought"
        side.flushes()
        side.follows(THERE)
        assert not first.done()
        side.follows(YONDER)
        assert [(await each).base_offset for each in (first, second)] == [0, 1]

    play(story)


def test_the_followers_may_have_it_before_the_disk_here_has() -> None:
    """CL-D2: the flush runs beside them, and counts as well."""

    async def story(side: LedSide) -> None:
        begun = begin(side, b"a")
        await turn()
        side.follows()
        assert not begun.done()
        side.flushes()
        assert (await begun).base_offset == 0

    play(story)


def test_acks_of_one_are_answered_once_it_is_kept_here() -> None:
    """CL-L2."""

    async def story(side: LedSide) -> None:
        begun = begin(side, b"a", acks=ONE)
        await turn()
        assert not begun.done()
        side.flushes()
        assert (await begun).base_offset == 0
        assert side.log().high_watermark == 0, "nobody else has it"

    play(story)


def test_acks_of_none_are_answered_once_it_is_written_and_followers_are_told() -> None:
    async def story(side: LedSide) -> None:
        begun = begin(side, b"a", acks=NO_ACKS)
        await turn()
        assert ((await begun).base_offset, side.grew) == (0, [ORDERS])

    play(story)


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(acks: int) -> None:
    async def story(side: LedSide) -> None:
        assert isinstance(await refusal(begin(side, b"a", acks=acks)), InvalidRequiredAcks)

    play(story)


def test_with_too_few_in_sync_nothing_is_written_for_who_wants_all() -> None:
    """CL-L2: 19. It is asked right before the append, whatever was true as the request came."""

    async def story(side: LedSide) -> None:
        late = begin(side, b"late")
        side.hears(topic(partition(isr=(HERE,), version=1)))
        others = [begin(side, b"%d" % acks, acks=acks) for acks in (ONE, NO_ACKS)]
        elsewhere = begin(side, b"p", place=PAID)
        refused = await refusal(late)
        assert isinstance(refused, NotEnoughReplicas)
        assert str(refused) == (
            "Of orders-0 the replicas (1,) are in sync, but acks=all asks for 2 (min.insync.replicas). Nothing was "
            "written; try again when nodes are back."
        )
        await turn()
        side.flushes()
        assert [(await each).base_offset for each in others] == [0, 1]
        side.flushes(PAID)
        side.follows(place=PAID)
        assert (await elsewhere).base_offset == 0

    play(story)


def test_what_is_committed_with_too_few_in_sync_by_then_says_so() -> None:
    """CL-L2: 20."""

    async def story(side: LedSide) -> None:
        begun = begin(side, b"a")
        await turn()
        side.flushes()
        side.follows(THERE)
        leader = side.replicas.led[ORDERS].leader
        leader.halves[0].high_watermark = 1
        leader.in_sync.committed = (HERE,)
        side.replicas.moved[ORDERS] = None
        side.settle()
        assert isinstance(await refusal(begun), NotEnoughReplicasAfterAppend)

    play(story)


def test_an_epoch_that_is_over_answers_all_who_wait() -> None:
    """CL-L2: 6, with who leads now."""

    async def story(side: LedSide) -> None:
        waiting, kept = begin(side, b"a"), begin(side, b"b", acks=ONE)
        await turn()
        side.hears(topic(partition(leader=THERE, epoch=4)))
        for each in (waiting, kept, begin(side, b"c"), begin(side, b"d", acks=ONE), begin(side, b"e", acks=NO_ACKS)):
            refused = await refusal(each)
            assert isinstance(refused, NotLeaderOrFollower)
            assert (refused.leader, refused.leader_epoch) == (THERE, 4)
        assert side.log().end_offset == 2

    play(story)


def test_the_same_node_in_a_later_epoch_is_another_leader() -> None:
    """CL-L2: what waited may have been cut in between."""

    async def story(side: LedSide) -> None:
        waiting = begin(side, b"a")
        await turn()
        side.hears(topic(partition(epoch=4)))
        side.flushes()
        side.follows()
        assert isinstance(await refusal(waiting), NotLeaderOrFollower)

    play(story)


def test_who_waits_too_long_is_told_so_and_what_was_written_may_come_to_be() -> None:
    """CL-L2: 7."""

    async def story(side: LedSide) -> None:
        begun = begin(side, b"a", timeout_ms=1)
        assert isinstance(await refusal(begun), RequestTimedOut)
        side.flushes()
        side.follows()
        assert await read(side) == ([b"a"], 1)

    play(story)


def test_a_batch_that_comes_again_is_answered_with_its_old_offsets_once_these_are_committed() -> None:
    """CL-F10: after a failover, the new leader has the batch and does not know yet whether it is committed."""

    async def story(side: LedSide) -> None:
        first = begin(side, b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
        await turn()
        side.flushes()
        side.hears(topic(partition(epoch=4)))
        assert isinstance(await refusal(first), NotLeaderOrFollower)
        again = begin(side, b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
        newer = begin(side, b"c", producer_id=7, producer_epoch=0, base_sequence=2)
        await turn()
        assert (again.done(), side.log().end_offset) == (False, 3)
        side.flushes()
        assert not again.done()
        side.follows()
        assert [(await each).base_offset for each in (again, newer)] == [0, 2]

    play(story)


def test_a_repeat_with_acks_of_one_is_answered_by_what_is_kept_here() -> None:
    async def story(side: LedSide) -> None:
        how = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        await turn()
        first = begin(side, b"a", acks=ONE, **how)
        await turn()
        side.flushes()
        again = begin(side, b"a", acks=ONE, **how)
        assert [(await each).base_offset for each in (first, again)] == [0, 0]

    play(story)


def test_very_many_of_a_turn_are_answered_as_they_are_committed() -> None:
    async def story(side: LedSide) -> None:
        begun = [begin(side, b"%d" % number) for number in range(100)]
        await turn()
        side.flushes()
        side.follows(end=40)
        await asyncio.sleep(0)
        assert [each.done() for each in begun] == [True] * 32 + [False] * 68
        side.follows()
        assert [(await each).base_offset for each in begun] == list(range(100))

    play(story)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (("nowhere", 0), UnknownTopicOrPartition),
        (("orders", 1), UnknownTopicOrPartition),
        (("__elections", 0), InvalidTopicName),
    ],
)
def test_a_partition_that_is_not_there_is_refused(place: tuple[str, int], error: type[StorageError]) -> None:
    async def story(side: LedSide) -> None:
        side.hears(topic(partition(), name="__elections", topic_id=b"x" * 16))
        assert isinstance(await refusal(begin(side, b"a", place=TopicPartition(*place))), error)

    play(story)


def test_a_topic_of_a_client_is_no_node_s_own_whatever_it_is_called() -> None:
    """Monitors and connectors begin their topics' names with two underscores; a node on its own takes their records."""

    async def story(side: LedSide) -> None:
        side.hears(topic(partition(), name="__canary", topic_id=b"x" * 16))
        canary = TopicPartition("__canary", 0)
        assert (side.led.topic("__canary").internal, side.broker.topic("__canary").internal) == (False, False)
        begun = begin(side, b"a", place=canary)
        await turn()
        side.flushes(canary)
        side.follows(place=canary)
        assert (await begun).base_offset == 0

    play(story)


def test_one_that_is_refused_hurts_no_other() -> None:
    async def story(side: LedSide) -> None:
        damaged = bytearray(batch(b"x"))
        damaged[-1] ^= 1
        parts: list[Part] = [(*ORDERS, batch(b"a")), (*ORDERS, bytes(damaged)), (*ORDERS, batch(b"b"))]
        begun = side.requests.begin_produce(parts, ALL, 0)
        assert (await refusal(begun[1])).code == 2
        side.flushes()
        side.follows()
        assert [(await begun[place]).base_offset for place in (0, 2)] == [0, 1]

    play(story)


def test_who_has_gone_holds_up_nobody() -> None:
    async def story(side: LedSide) -> None:
        gone, kept, other = begin(side, b"a"), begin(side, b"b", acks=ONE), begin(side, b"c")
        early = begin(side, b"d", acks=NO_ACKS)
        early.cancel()
        await turn()
        gone.cancel()
        kept.cancel()
        side.flushes()
        side.follows()
        assert (await other).base_offset == 2

    play(story)


def test_who_put_records_there_himself_waits_for_what_is_there() -> None:
    """Fences, and staged batches: `flushed` is what `append` promises."""

    async def story(side: LedSide) -> None:
        side.led.append(*ORDERS, batch(b"a"), T0, origin=AppendOrigin.COORDINATOR)
        done = side.requests.commit.flushed(ORDERS)
        await turn()
        side.flushes()
        assert (done.done(), side.grew) == (False, [ORDERS])
        side.follows()
        await done
        strange = side.requests.commit.flushed(("nowhere", 0))
        with pytest.raises(NotLeaderOrFollower):
            await strange

    play(story)
