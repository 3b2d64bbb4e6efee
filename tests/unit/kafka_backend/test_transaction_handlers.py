"""AddOffsetsToTxn and TxnOffsetCommit for groups of ours: who is asked, and which codes their clients hear (KB-E1,
KB-E3)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.core.model.effects import TxnOffsetCommitReply, TxnWriteOverReply
from muster.coordinator.core.model.events import TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka_backend.transaction_log import ClientWriteResult
from muster.coordinator.kafka_backend.transaction_requests import TransactionCommits, TransactionHandlers
from muster.coordinator.kafka_backend.upstream.protocol import Unreached
from tests.support.kafka.memory_node import until

PATH = "TxnOffsetCommitRequest.topics"
BUG = -2


class Around:
    """What the handlers ask: groups, the upstream, and who writes. Everything is allowed, if nobody says otherwise."""

    def __init__(self) -> None:
        self.code = 0
        self.written = 0
        self.allowed: TxnOffsetCommitReply | None = None
        self.overs: list[ErrorCode] = []
        self.events: list[Any] = []
        self.asked: list[Any] = []
        self.wait: asyncio.Future[None] | None = None

    # Groups.

    def next_id(self) -> int:
        return len(self.events) + 1

    def shard_of(self, group_id: str) -> int:
        return 3

    async def ask_group(self, group_id: str, make: Any, wanted: Any) -> Any:
        event = make()
        self.events.append(event)
        if isinstance(event, TxnWriteOver):
            return TxnWriteOverReply(self.overs.pop(0) if self.overs else ErrorCode.NONE)
        kept = {place: StoredOffset(each[0], each[1], each[2], 0) for place, each in event.offsets.items()}
        return self.allowed or TxnOffsetCommitReply(kept=kept)

    # Upstream.

    async def ask_broker(self, broker: int, api: str, request: Any, **_: Any) -> Any:
        return self._upstream(broker, request)

    async def ask_coordinator(self, kind: int, key: str, api: str, request: Any) -> Any:
        return self._upstream(key, request)

    def _upstream(self, whom: Any, request: Any) -> Any:
        self.asked.append((whom, request.topics[0].name, request.topics[0].partitions))
        if self.code < 0:
            raise Unreached("nobody answers")
        by = struct("AddPartitionsToTxnResponse.results.results_by_partition")
        row = by(partition_index=3, partition_error_code=self.code)
        made = struct("AddPartitionsToTxnResponse.results")(name="muster.state", results_by_partition=[row])
        return struct("AddPartitionsToTxnResponse")(results=[made])

    def count(self, api: str, code: int) -> None: ...

    def coordinator_moved(self, kind: int, key: str) -> None: ...

    # Who writes.

    def append(self, shard: int, client: Any, group_id: str, kept: Any) -> "asyncio.Future[ClientWriteResult]":
        async def written() -> ClientWriteResult:
            if self.wait is not None:
                await self.wait
            if self.written == BUG:
                raise RuntimeError("a mistake of the program")
            return ClientWriteResult(self.written)

        return asyncio.ensure_future(written())


def play(story: Callable[[Around, TransactionHandlers], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        around: Any = Around()
        committing = TransactionCommits(around, around)
        await story(around, TransactionHandlers(around, committing, around, "muster.state", lambda: {"t": 2}))

    asyncio.run(run())


def call(broker: int | None = None) -> KafkaCall:
    eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return KafkaCall(3, "tests", ClientPeer("10.0.0.1", eof, stands_for=broker))


def commit(*places: tuple[str, int], offset: int = 5) -> Any:
    row = struct(f"{PATH}.partitions")
    topics = [
        struct(PATH)(
            name=topic, partitions=[row(partition_index=part, committed_offset=offset, committed_metadata=None)]
        )
        for topic, part in places
    ]
    return struct("TxnOffsetCommitRequest")(
        transactional_id="app", group_id="g", producer_id=50, producer_epoch=2, member_id="", topics=topics
    )


def codes(written: EncodedAnswer) -> list[int]:
    answer = decode_frame("TxnOffsetCommitResponse", 3, b"".join(written.body))
    return [each.error_code for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize(
    ("code", "told"), [(0, 0), (51, 51), (47, 47), (16, 16), (48, 48), (53, 30), (29, 30), (3, 15), (-1, 15)]
)
@pytest.mark.parametrize("broker", [None, 2])
def test_e1_the_shard_s_partition_is_added_where_the_client_asked(broker: int | None, code: int, told: int) -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.code = code
        request = struct("AddOffsetsToTxnRequest")(
            transactional_id="app", producer_id=50, producer_epoch=2, group_id="g"
        )
        answer = await handlers.add_offsets_to_txn(request, call(broker))
        assert answer.error_code == told
        assert around.asked == [("app" if broker is None else 2, "muster.state", [3])]

    play(story)


@pytest.mark.parametrize(
    ("code", "told"), [(0, 0), (47, 47), (90, 90), (48, 48), (10, 28), (16, 16), (45, 15), (53, 15), (7, 15)]
)
def test_e3_what_a_client_is_told_of_a_write_and_it_is_over_in_any_case(code: int, told: int) -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.written = code
        assert codes(await handlers.txn_offset_commit(commit(("t", 0), ("t", 1)), call())) == [told, told]
        asked, over = around.events
        assert isinstance(asked, TxnOffsetCommit)
        assert isinstance(over, TxnWriteOver)
        assert over.of == asked.request_id

    play(story)


def test_partitions_that_cannot_be_are_refused_for_themselves() -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        assert codes(await handlers.txn_offset_commit(commit(("t", 0), ("t", 7), ("u", 0)), call())) == [0, 3, 3]
        assert codes(await handlers.txn_offset_commit(commit(("t", 0), offset=-3), call())) == [28]
        assert len(around.events) == 2, "of nothing nobody is asked"

    play(story)


def test_what_the_group_refuses_is_not_written() -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.allowed = TxnOffsetCommitReply(ErrorCode.ILLEGAL_GENERATION)
        assert codes(await handlers.txn_offset_commit(commit(("t", 0)), call())) == [22]
        assert len(around.events) == 1

    play(story)


def test_one_that_took_too_long_is_over_too() -> None:
    """It may have been allowed, with nobody left to hear so: it would be unstable for ever."""

    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.allowed = TxnOffsetCommitReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert codes(await handlers.txn_offset_commit(commit(("t", 0)), call())) == [15]
        assert [type(each) for each in around.events] == [TxnOffsetCommit, TxnWriteOver]

    play(story)


def test_that_it_is_over_is_said_until_the_shard_has_heard_it() -> None:
    """Its inbox may be full, as that of any. Unheard, the positions would be unstable for as long as it is served."""

    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.overs = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert codes(await handlers.txn_offset_commit(commit(("t", 0)), call())) == [0]
        _, *overs = around.events
        assert [type(each) for each in overs] == [TxnWriteOver] * 3
        assert len({each.request_id for each in overs}) == 3

    play(story)


def test_that_it_is_over_is_said_of_one_that_ran_into_a_mistake_of_the_program() -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.written = BUG
        with pytest.raises(RuntimeError):
            await handlers.txn_offset_commit(commit(("t", 0)), call())
        assert [type(each) for each in around.events] == [TxnOffsetCommit, TxnWriteOver]

    play(story)


def test_a_client_hears_nothing_that_the_owner_may_not_say() -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.overs = [ErrorCode.NOT_COORDINATOR]
        assert codes(await handlers.txn_offset_commit(commit(("t", 0)), call())) == [16]

    play(story)


def test_a_client_that_is_gone_leaves_nothing_unfinished() -> None:
    async def story(around: Around, handlers: TransactionHandlers) -> None:
        around.wait = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(handlers.txn_offset_commit(commit(("t", 0)), call()))
        await until(lambda: around.events)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        around.wait.set_result(None)
        await until(lambda: len(around.events) == 2)
        assert isinstance(around.events[1], TxnWriteOver)

    play(story)
