"""Leader epochs by Kafka's door (KIP-320): where they end, and who leads instead. That another node leads is said by a
stand-in. What a node on its own says Kafka 4.1.1 says as well: `tests/interop/kafka_answers.py`."""

from typing import Any

import pytest

from muster.storage.errors import NotLeaderOrFollower, OffsetNotAvailable
from muster.storage.logs import replica
from muster.storage.logs.log import Log
from tests.support.kafka.door import Door, made, play
from tests.unit.kafka.test_kafka_log_records import list_offset
from tests.unit.storage.logs import T0, batch

EPOCHS = range(2, 5)
NOTHING = (-1, -1)


async def end_of(door: Door, version: int, epoch: int, topic: str = "t", partition: int = 0, **more: int) -> Any:
    row = made("OffsetForLeaderEpochRequest.topics.partitions", partition=partition, leader_epoch=epoch)
    row.current_leader_epoch = more.pop("current", -1)
    asked = made("OffsetForLeaderEpochRequest.topics", topic=topic, partitions=[row])
    answer = await door.ask("OffsetForLeaderEpoch", version, topics=[asked], **({"replica_id": -1} | more))
    ((told,),) = [each.partitions for each in answer.topics]
    assert (answer.topics[0].topic, told.partition) == (topic, partition)
    return told.error_code, (told.leader_epoch, told.end_offset)


async def fetched(door: Door, version: int, epoch: int) -> Any:
    row = made("FetchRequest.topics.partitions", partition=0, fetch_offset=0, current_leader_epoch=epoch)
    topic = made("FetchRequest.topics", topic="t", partitions=[row])
    answer = await door.ask("Fetch", version, max_bytes=1 << 20, topics=[topic])
    return answer.responses[0].partitions[0]


def lead(door: Door, *epochs: int, records: int = 2) -> None:
    for epoch in epochs:
        replica.start_leading(door.broker.log("t", 0), epoch)
        door.broker.append("t", 0, batch(*[b"%d" % epoch] * records), T0)


def led_by(door: Door, leader: int, epoch: int) -> None:
    """Another node does."""

    def log(topic: str, partition: int) -> Log:
        raise NotLeaderOrFollower("another one's", leader, epoch)

    door.broker.log = log  # type: ignore[method-assign]
    door.broker.leader_of = lambda topic, partition: (leader, epoch)  # type: ignore[method-assign]


@pytest.mark.parametrize("version", EPOCHS)
def test_where_an_epoch_ends_is_told(version: int) -> None:
    async def story(door: Door) -> None:
        assert await end_of(door, version, 0) == (0, (0, 0)), "nothing is written yet"
        lead(door, 0, 4)
        told = {epoch: await end_of(door, version, epoch) for epoch in (-1, 0, 3, 4, 5)}
        unknown = (0, NOTHING)
        assert told == {-1: unknown, 0: (0, (0, 2)), 3: (0, (0, 2)), 4: (0, (4, 4)), 5: unknown}
        assert await end_of(door, version, 0, topic="nowhere") == (3, NOTHING)
        assert await end_of(door, version, 0, partition=9) == (3, NOTHING)

    play(story)


@pytest.mark.parametrize("version", EPOCHS)
def test_who_knows_another_leader_epoch_is_told_so_first(version: int) -> None:
    async def story(door: Door) -> None:
        lead(door, 4)
        codes = [(await end_of(door, version, 0, current=epoch))[0] for epoch in (3, 4, 5)]
        assert codes == [74, 0, 75]
        led_by(door, 2, 6)
        codes = [(await end_of(door, version, 0, current=epoch))[0] for epoch in (-1, 5, 6, 7)]
        assert codes == [6, 74, 6, 75]

    play(story)


@pytest.mark.parametrize("version", [3, 4])
def test_where_an_epoch_ends_is_not_told_to_who_calls_itself_a_replica(version: int) -> None:
    async def story(door: Door) -> None:
        assert await end_of(door, version, 0, replica_id=2) == (31, NOTHING)
        assert await end_of(door, version, 0, replica_id=-2) == (0, (0, 0)), "who looks for mistakes"

    play(story)


def test_very_many_are_told_a_piece_at_a_time() -> None:
    async def story(door: Door) -> None:
        rows = [made("OffsetForLeaderEpochRequest.topics.partitions", partition=n, leader_epoch=0) for n in range(1200)]
        asked = made("OffsetForLeaderEpochRequest.topics", topic="t", partitions=rows)
        answer = await door.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=[asked])
        told = answer.topics[0].partitions
        assert [each.partition for each in told] == list(range(1200))
        assert [each.error_code for each in told] == [0] * 3 + [3] * 1197

    play(story)


def test_a_fetch_elsewhere_says_who_leads() -> None:
    """CL-K1, from Fetch 12 on."""

    async def story(door: Door) -> None:
        led_by(door, 2, 6)
        for epoch, code in ((-1, 6), (6, 6), (5, 74)):
            part = await fetched(door, 12, epoch)
            assert part.error_code == code
            assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 6)
        ahead = await fetched(door, 12, 7)
        assert (ahead.error_code, ahead.current_leader) == (75, None), "this node is behind: it cannot know"
        assert (await fetched(door, 11, -1)).error_code == 6

    play(story)


def test_a_node_on_its_own_names_nobody() -> None:
    """As Kafka in this version."""

    async def story(door: Door) -> None:
        lead(door, 4)
        part = await fetched(door, 12, 3)
        assert (part.error_code, part.current_leader) == (74, None)

    play(story)


def test_an_offset_by_time_comes_with_the_epoch_of_its_record() -> None:
    async def story(door: Door) -> None:
        lead(door, 0, 4)
        door.broker.flush()
        told = {when: await list_offset(door, 7, when) for when in (-1, -2, T0, T0 + 1)}
        found = {when: (each.offset, each.leader_epoch) for when, each in told.items()}
        assert found == {-1: (4, 4), -2: (0, 0), T0: (0, 0), T0 + 1: (-1, -1)}

    play(story)


@pytest.mark.parametrize("version", range(8))
def test_a_leader_that_is_new_does_not_know_the_end(version: int) -> None:
    """CL-L8, in a word that the version has."""

    async def story(door: Door) -> None:
        def refused(*asked: object, **how: object) -> Any:
            raise OffsetNotAvailable("new")

        door.requests.list_offset = refused  # type: ignore[method-assign]
        told = await list_offset(door, version, -1)
        assert told.error_code == (78 if version >= 5 else 5)
        assert not told.old_style_offsets if version == 0 else told.offset == -1

    play(story)
