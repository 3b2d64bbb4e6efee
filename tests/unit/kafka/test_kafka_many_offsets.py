"""Requests about very many committed positions: others have their turn meanwhile, and nothing is lost or added."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.edge.committed_offsets import LOOKUPS_IN_A_SLICE
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers import committed_offsets
from muster.coordinator.kafka.handlers.committed_offsets import (
    CommittedOffsetHandlers,
    JudgedPositions,
    judge_positions,
    make_commit_response,
)
from muster.coordinator.kafka.handlers.group_requests import GroupRequests, PendingGroupReply
from muster.coordinator.kafka.handlers.offset_commit_reader import CommitReader, OffsetCommitRequest
from muster.long_work import AT_ONCE
from muster.storage.errors import StorageError
from tests.support.kafka.door import OneShard
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0

MANY = 40 * AT_ONCE
GROUP, TOPIC = "g", "wide"
VERSION = 8
"""Of OffsetCommit."""


class Slices(OneShard):
    """Keeps what it was asked, and answers what is begun in the loop's next round."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[events.Request] = []

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        self.asked.append(event)
        return await super().ask_shard(shard, event, wanted)

    def begin_request(self, shard: int, event: events.Request, waiter: PendingGroupReply[Any]) -> None:
        self.asked.append(event)
        reply = self.step(event)
        asyncio.get_running_loop().call_soon(lambda: None if waiter.done() else waiter.set_result(reply))

    def forget(self, shard: int, event: events.Request) -> None:
        self.asked.remove(event)


def play(story: Callable[[Slices, CommittedOffsetHandlers, KafkaCall], Awaitable[None]], version: int) -> None:
    async def run() -> None:
        driver = Slices()
        positions = {(TOPIC, number): CommittedOffset(number, -1, "") for number in range(MANY)}
        driver.step(events.OffsetCommit(driver.next_id(), GROUP, "", None, -1, positions, None))
        handlers = CommittedOffsetHandlers(GroupRequests(driver, 1), lambda: {TOPIC: MANY}, lambda *_: (0, 0))
        peer = ClientPeer("127.0.0.1", asyncio.get_running_loop().create_future())
        await story(driver, handlers, KafkaCall(version, "tests", peer))

    asyncio.run(run())


def decoded(api: str, version: int, answer: Any) -> Any:
    assert isinstance(answer, EncodedAnswer)
    return decode_frame(f"{api}Response", version, b"".join(answer.body))


def test_a_look_at_very_many_positions_is_answered_beside_the_others() -> None:
    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        answers = []
        for topics in (struct("OffsetFetchRequest.topics")(name=TOPIC, partition_indexes=list(range(MANY)))), None:
            asked = struct("OffsetFetchRequest")(group_id=GROUP, topics=[topics] if topics else None)

            async def look(asked: Any = asked) -> None:
                answers.append(decoded("OffsetFetch", 5, await handlers.offset_fetch(asked, call)))

            assert await turns_of_others(look()) > 10
        steps = [each.partitions for each in driver.asked if isinstance(each, events.OffsetFetch)]
        assert [len(named) for named in steps if named is not None] == [LOOKUPS_IN_A_SLICE] * (
            MANY // LOOKUPS_IN_A_SLICE
        )
        assert steps.count(None) == 1
        for answer in answers:
            (topic,) = answer.topics
            assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [
                (number, number) for number in range(MANY)
            ]

    play(story, 5)


def test_very_many_positions_are_deleted_a_slice_at_a_time() -> None:
    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
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


def large_commit(
    version: int, offsets: Sequence[int], generation: int = -1
) -> tuple[OffsetCommitRequest, CommitReader]:
    """As the thread has it that reads large requests."""
    row = struct("OffsetCommitRequest.topics.partitions")
    rows = [row(partition_index=number, committed_offset=offset) for number, offset in enumerate(offsets)]
    topic = struct("OffsetCommitRequest.topics")(name=TOPIC, partitions=rows)
    request = struct("OffsetCommitRequest")(group_id=GROUP, generation_id_or_member_epoch=generation, topics=[topic])
    reader = CommitReader(version)
    return reader(b"".join(encode("OffsetCommitRequest", version, request)))[0], reader


async def answered(handlers: CommittedOffsetHandlers, commit: OffsetCommitRequest, call: KafkaCall) -> Any:
    """As a connection waits for it."""
    later = handlers.offset_commit_now(commit, call)
    if later is None:
        return decoded("OffsetCommit", VERSION, await handlers.offset_commit(commit, call))
    came = asyncio.get_running_loop().create_future()
    later.then(lambda: came.set_result(None))
    await came
    return decoded("OffsetCommit", VERSION, later.respond())


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where answers with many rows were made, and positions judged one by one."""
    names: list[str] = []

    def watched(*args: Any) -> EncodedAnswer:
        names.append(threading.current_thread().name)
        return make_commit_response(*args)

    def judging(*args: Any) -> JudgedPositions:
        names.append(threading.current_thread().name)
        return judge_positions(*args)

    monkeypatch.setattr(committed_offsets, "make_commit_response", watched)
    monkeypatch.setattr(committed_offsets, "judge_positions", judging)
    return names


def test_a_large_commit_is_one_decision_and_all_else_of_it_is_made_in_threads(threads: list[str]) -> None:
    commit, _ = large_commit(VERSION, range(MANY))
    assert commit.made is not None  # by the thread that reads it
    assert commit.shape.all_well is not None

    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        answer = await answered(handlers, commit, call)
        (event,) = driver.asked
        assert isinstance(event, events.OffsetCommit)
        assert event.offsets is commit.made
        codes = [(row.partition_index, row.error_code) for topic in answer.topics for row in topic.partitions]
        assert codes == [(number, ErrorCode.NONE) for number in range(MANY)]

    play(story, VERSION)
    assert len(threads) == 1
    assert threading.main_thread().name not in threads


@pytest.mark.parametrize(
    ("generation", "offset", "catalog", "code"),
    [
        (3, 0, MANY, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, 0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, -3, MANY, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_rows_that_are_refused_by_the_thousand_are_made_in_a_thread(
    threads: list[str], generation: int, offset: int, catalog: int, code: ErrorCode
) -> None:
    commit, _ = large_commit(VERSION, [0, *[offset] * (MANY - 1)], generation)

    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        handlers = CommittedOffsetHandlers(GroupRequests(driver, 1), lambda: {TOPIC: catalog}, lambda *_: (0, 0))
        answer = await answered(handlers, commit, call)
        assert [row.error_code for topic in answer.topics for row in topic.partitions][1:] == [code] * (MANY - 1)

    play(story, VERSION)
    assert len(threads) == (1 if generation >= 0 else 2)
    assert threading.main_thread().name not in threads


def test_some_bad_partitions_among_very_many_are_refused_and_the_rest_is_one_decision(threads: list[str]) -> None:
    """They were gone through in the loop, all of them."""
    commit, _ = large_commit(VERSION, [*range(MANY), 5, -3])

    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        answer = await answered(handlers, commit, call)
        codes = [row.error_code for topic in answer.topics for row in topic.partitions]
        assert codes == [*[0] * MANY, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
        (event,) = driver.asked
        assert isinstance(event, events.OffsetCommit)
        assert list(event.offsets) == [(TOPIC, number) for number in range(MANY)]

    play(story, VERSION)
    assert len(threads) == 2
    assert threading.main_thread().name not in threads


def test_very_many_ends_of_logs_are_looked_up_a_slice_at_a_time() -> None:
    commit, _ = large_commit(VERSION, [-1] * (MANY - 1) + [-2])

    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        looked: list[int] = []

        def span(topic: str, partition: int) -> tuple[int, int]:
            looked.append(partition)
            if partition == 3:
                raise StorageError("its directory is gone")
            return 4, 9

        handlers = CommittedOffsetHandlers(GroupRequests(driver, 1), lambda: {TOPIC: MANY}, span)
        asked, most = asyncio.create_task(answered(handlers, commit, call)), 0
        while not asked.done():
            before = len(looked)
            await asyncio.sleep(0)
            most = max(most, len(looked) - before)
        answer = await asked
        assert (len(looked), most) == (MANY, AT_ONCE)
        codes = [row.error_code for topic in answer.topics for row in topic.partitions]
        assert [number for number, code in enumerate(codes) if code] == [3]
        (event,) = driver.asked
        assert isinstance(event, events.OffsetCommit)
        assert [event.offsets[TOPIC, number][0] for number in (0, MANY - 2, MANY - 1)] == [9, 9, 4]

    play(story, VERSION)


def test_very_many_positions_of_the_first_version_go_to_zookeeper_as_few_do() -> None:
    """They went into the log, where a client of Kafka 0.8 does not look for them."""
    commit, _ = large_commit(0, range(MANY))

    class Elsewhere:
        def __init__(self) -> None:
            self.kept: dict[tuple[str, int], int] = {}

        async def commit_positions(self, group_id: str, positions: dict[tuple[str, int], int]) -> Any:
            self.kept |= positions
            return effects.OffsetCommitReply()

    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        elsewhere = Elsewhere()
        groups = GroupRequests(driver, 1)
        handlers = CommittedOffsetHandlers(groups, lambda: {TOPIC: MANY}, lambda *_: (0, 0), cast(Any, elsewhere))
        assert commit.made is not None
        assert handlers.offset_commit_now(commit, call) is None
        await handlers.offset_commit(commit, call)
        assert elsewhere.kept == {(TOPIC, number): number for number in range(MANY)}
        assert driver.asked == []

    play(story, 0)


def test_a_large_commit_whose_client_goes_is_forgotten() -> None:
    commit, _ = large_commit(VERSION, range(MANY))

    async def story(driver: Slices, handlers: CommittedOffsetHandlers, call: KafkaCall) -> None:
        later = handlers.offset_commit_now(commit, call)
        came: list[None] = []
        later.then(lambda: came.append(None))
        later.cancel()
        assert driver.asked == []
        for _ in range(3):
            await asyncio.sleep(0)
        assert came == []

    play(story, VERSION)
