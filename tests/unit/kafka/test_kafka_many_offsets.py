"""Requests about very many committed positions: others have their turn meanwhile, and nothing is lost or added."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muster.coordinator.core import effects, events
from muster.coordinator.core.types import CommittedOffset
from muster.coordinator.edge.positions import LOOKED_UP_AT_ONCE
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.dispatch import KafkaCall, Peer, Written
from muster.coordinator.kafka.groups.asking import Groups
from muster.coordinator.kafka.groups.offsets import OffsetHandlers
from muster.storage.broker.in_turns import AT_ONCE
from tests.support.kafka.door import OneShard
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0

MANY = 40 * AT_ONCE
GROUP, TOPIC = "g", "wide"


class Slices(OneShard):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[events.Request] = []

    async def ask(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        self.asked.append(event)
        return await super().ask(shard, event, wanted)


def play(story: Callable[[Slices, OffsetHandlers, KafkaCall], Awaitable[None]], version: int) -> None:
    async def run() -> None:
        driver = Slices()
        positions = {(TOPIC, number): CommittedOffset(number, -1, "") for number in range(MANY)}
        driver.shard.step(events.OffsetCommit(driver.next_id(), GROUP, "", None, -1, positions, None), T0)
        handlers = OffsetHandlers(Groups(driver, 1), lambda: {TOPIC: MANY}, lambda *_: (0, 0))
        peer = Peer("127.0.0.1", asyncio.get_running_loop().create_future())
        await story(driver, handlers, KafkaCall(version, "tests", peer))

    asyncio.run(run())


def decoded(api: str, version: int, answer: Any) -> Any:
    assert isinstance(answer, Written)
    return decode_frame(f"{api}Response", version, b"".join(answer.body))


def test_a_look_at_very_many_positions_is_answered_beside_the_others() -> None:
    async def story(driver: Slices, handlers: OffsetHandlers, call: KafkaCall) -> None:
        answers = []
        for topics in (struct("OffsetFetchRequest.topics")(name=TOPIC, partition_indexes=list(range(MANY)))), None:
            asked = struct("OffsetFetchRequest")(group_id=GROUP, topics=[topics] if topics else None)

            async def look(asked: Any = asked) -> None:
                answers.append(decoded("OffsetFetch", 5, await handlers.offset_fetch(asked, call)))

            assert await turns_of_others(look()) > 10
        steps = [each.partitions for each in driver.asked if isinstance(each, events.OffsetFetch)]
        assert [len(named) for named in steps if named is not None] == [LOOKED_UP_AT_ONCE] * (MANY // LOOKED_UP_AT_ONCE)
        assert steps.count(None) == 1
        for answer in answers:
            (topic,) = answer.topics
            assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [
                (number, number) for number in range(MANY)
            ]

    play(story, 5)


def test_very_many_positions_are_deleted_a_slice_at_a_time() -> None:
    async def story(driver: Slices, handlers: OffsetHandlers, call: KafkaCall) -> None:
        row = struct("OffsetDeleteRequest.topics.partitions")
        rows = [row(partition_index=number) for number in range(MANY + 1)]
        topics = [struct("OffsetDeleteRequest.topics")(name=TOPIC, partitions=rows)]
        answer = await handlers.offset_delete(struct("OffsetDeleteRequest")(group_id=GROUP, topics=topics), call)
        (topic,) = decoded("OffsetDelete", 0, answer).topics
        gone, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [one.error_code for one in topic.partitions] == [gone] * MANY + [unknown]
        slices = [event.partitions for event in driver.asked if isinstance(event, events.OffsetDelete)]
        assert {len(each) for each in slices} == {AT_ONCE}
        assert [place for each in slices for place in each] == [(TOPIC, number) for number in range(MANY)]
        (_, left), *_ = driver.shard.step(events.OffsetFetch(driver.next_id(), GROUP, None), T0).replies
        assert isinstance(left, effects.OffsetFetchReply)
        assert not left.offsets

    play(story, 0)
