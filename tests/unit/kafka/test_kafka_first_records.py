"""The first records of a transaction, and the record that adds their partition to it: one flush each, at the same time,
and an answer that waits for both (TX-L12). What a loss of power leaves of the two is taken in (TX-C14)."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.handlers.transactions import PendingAddition, TransactionGate
from muster.coordinator.transactions.effects import AddPartitionsReply
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import Batches, Guards, LogRequests
from muster.storage.config import LogSettings
from muster.storage.errors import InvalidProducerEpoch, InvalidTxnState, NotEnoughReplicas, NotLeaderOrFollower
from muster.storage.logs.transactions import PendingGuards
from muster.storage.types import Appended
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import Door, made, play
from tests.unit.kafka.test_kafka_transactions import (
    ADDED,
    NODE,
    begin,
    committed,
    end_raising,
    send_raising,
    state_of,
)
from tests.unit.storage.logs import T0, batch

PATIENCE_S = 30


class HeldDisk(MemoryFiles):
    """Its transaction log is flushed only while nobody holds it; then the flush fails, or goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()
        self.fails = False
        self.fault = self.hold

    def hold(self, operation: str, path: str) -> None:
        if operation == "sync" and "__transaction_state" in path:
            assert self.free.wait(PATIENCE_S), f"{path} is held for ever"
            if self.fails:
                self.fails = False
                raise OSError(f"{path} cannot be flushed")

    def after_a_power_cut(self) -> MemoryFiles:
        """Another disk, with what is flushed on this one."""
        other = MemoryFiles()
        other.root = deepcopy(self.root)
        other.crash()
        return other


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0)


def is_flushed(door: Door) -> bool:
    log = door.broker.log(*ADDED[0])
    return log.end_offset > 0 and log.high_watermark == log.end_offset


def test_they_are_flushed_while_the_addition_is_and_answered_after_it() -> None:
    disk = HeldDisk()

    async def story(door: Door) -> None:
        who = await begin(door)
        disk.free.clear()
        sent = asyncio.ensure_future(send_raising(door, who, b"a"))
        await until(lambda: is_flushed(door))
        assert not sent.done()
        assert await committed(door) == []
        disk.free.set()
        assert await sent == 0
        assert (await end_raising(door, who))[0] == 0
        assert await state_of(door) == "CompleteCommit"
        assert await committed(door) == [b"a"]

    play(story, disk, transactions=NODE)


@pytest.mark.parametrize("commit", [True, False])
def test_a_power_cut_before_the_addition_is_durable_loses_no_data_of_the_transaction(commit: bool) -> None:
    disk, left = HeldDisk(), list[MemoryFiles]()
    given = list[tuple[int, int]]()

    async def before(door: Door) -> None:
        given.append(await begin(door))
        disk.free.clear()
        sent = asyncio.ensure_future(send_raising(door, given[0], b"a"))
        await until(lambda: is_flushed(door))
        left.append(disk.after_a_power_cut())
        disk.free.set()
        assert await sent == 0

    async def after(door: Door) -> None:
        # The producer was not answered, so it sends again; the search has added the partition meanwhile.
        while (code := await send_raising(door, given[0], b"a")) == 19:
            pass
        assert code == 0
        assert door.broker.end_offset(*ADDED[0]) == 1
        while (code := (await end_raising(door, given[0], commit=commit))[0]) == 14:
            pass
        assert code == 0
        assert await state_of(door) == ("CompleteCommit" if commit else "CompleteAbort")
        assert await committed(door) == ([b"a"] if commit else [])
        assert door.broker.log(*ADDED[0]).open_transactions() == []

    play(before, disk, transactions=NODE)
    play(after, left[0], transactions=NODE)


def test_a_shard_that_is_lost_before_the_addition_is_durable_refuses_and_takes_the_data_in() -> None:
    disk, given = HeldDisk(), list[tuple[int, int]]()

    async def before(door: Door) -> None:
        given.append(await begin(door))
        disk.free.clear()
        sent = asyncio.ensure_future(send_raising(door, given[0], b"a"))
        await until(lambda: is_flushed(door))
        disk.fails = True
        disk.free.set()
        assert await sent == 19
        assert await committed(door) == []

    async def after(door: Door) -> None:
        while (code := await send_raising(door, given[0], b"a")) == 19:
            pass
        assert code == 0
        while (code := (await end_raising(door, given[0]))[0]) == 14:
            pass
        assert code == 0
        assert await state_of(door) == "CompleteCommit"
        assert await committed(door) == [b"a"]

    play(before, disk, transactions=NODE)
    disk.kill()
    play(after, disk, transactions=NODE)


def test_positions_of_a_group_are_written_while_the_addition_is() -> None:
    disk = HeldDisk()

    async def story(door: Door) -> None:
        who = await begin(door)
        disk.free.clear()
        partitions = [made("TxnOffsetCommitRequest.topics.partitions", partition_index=0, committed_offset=5)]
        topics = [made("TxnOffsetCommitRequest.topics", name="t", partitions=partitions)]
        asked = {"transactional_id": "app", "group_id": "g", "producer_id": who[0], "producer_epoch": who[1]}
        sent = asyncio.ensure_future(door.ask("TxnOffsetCommit", 5, topics=topics, member_id="", **asked))
        await until(lambda: bool(door.driver.shard.state.pending))
        assert not sent.done()
        disk.free.set()
        assert (await sent).topics[0].partitions[0].error_code == 0

    play(story, disk, transactions=NODE)


# The gate by itself
# ------------------


class ScriptedCoordinator:
    """Decides, and records, when it is told to."""

    def __init__(self) -> None:
        self.additions: list[PendingAddition] = []

    async def begin_adding(self, transactional_id: str, make: Callable[[int], Any]) -> PendingAddition:
        loop = asyncio.get_running_loop()
        self.additions.append(PendingAddition(loop.create_future(), loop.create_future()))
        return self.additions[-1]

    async def ask(self, transactional_id: str, make: Callable[[int], Any], wanted: type[Any]) -> Any:
        raise AssertionError("records of level 2 wait for no record")

    async def ask_every_shard(self, make: Callable[[int], Any], wanted: type[Any]) -> dict[int, Any]:
        raise NotImplementedError

    async def prepare(self) -> None:
        raise NotImplementedError

    def check_room(self, transactional_id: str) -> None:
        raise NotImplementedError

    async def draw_producer_id(self) -> int:
        raise NotImplementedError


def play_gate(story: Callable[[TransactionGate, ScriptedCoordinator, LogRequests], Any]) -> None:
    broker = Broker("/data", LogSettings.from_properties({}), MemoryFiles(), clock_ms=lambda: T0)
    broker.create_topic("t", 1)

    async def run() -> None:
        requests, coordinator = LogRequests.standalone(broker, clock_ms=lambda: T0), ScriptedCoordinator()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await story(TransactionGate(broker, coordinator, verifies=True), coordinator, requests)
        finally:
            await requests.close()

    asyncio.run(run())
    broker.close()


async def send_first(
    gate: TransactionGate, coordinator: ScriptedCoordinator, requests: LogRequests
) -> "tuple[asyncio.Future[list[Any]], PendingAddition]":
    """The first records of a transaction are on their way, and wait for the coordinator."""

    def begin(parts: Sequence[Batches], guards: Guards) -> list[asyncio.Future[Appended]]:
        return requests.begin_produce(parts, -1, 0, guards)

    sent: asyncio.Future[list[Any]] = asyncio.ensure_future(gate.append_first("app", [PART], 12, begin))
    await until(lambda: bool(coordinator.additions))
    (addition,) = coordinator.additions
    return sent, addition


PART: Batches = ("t", 0, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
UNAVAILABLE = AddPartitionsReply(ErrorCode.NOT_COORDINATOR)


def test_a_shard_that_is_lost_takes_the_right_to_append_along() -> None:
    """A thread looks into the batch meanwhile, say: the search of the shard that is loaded again may be over."""

    async def story(gate: TransactionGate, coordinator: ScriptedCoordinator, requests: LogRequests) -> None:
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def append_later(parts: Sequence[Batches], guards: Guards) -> Appended:
            await late
            return await requests.begin_produce(parts, -1, 0, guards)[0]

        def begin(parts: Sequence[Batches], guards: Guards) -> list[asyncio.Future[Appended]]:
            return [asyncio.ensure_future(append_later(parts, guards))]

        sent = asyncio.ensure_future(gate.append_first("app", [PART], 12, begin))
        await until(lambda: bool(coordinator.additions))
        (addition,) = coordinator.additions
        addition.decided.set_result(None)
        await asyncio.sleep(0)
        addition.recorded.set_result(UNAVAILABLE)
        await asyncio.sleep(0)
        late.set_result(None)
        (result,) = await sent
        assert isinstance(result, NotEnoughReplicas)
        assert requests.broker.log("t", 0).end_offset == 0

    play_gate(story)


@pytest.mark.parametrize(
    ("code", "refused"),
    [(ErrorCode.NOT_COORDINATOR, NotEnoughReplicas), (ErrorCode.PRODUCER_FENCED, InvalidProducerEpoch)],
)
def test_what_is_refused_is_not_appended(code: ErrorCode, refused: type[Exception]) -> None:
    async def story(gate: TransactionGate, coordinator: ScriptedCoordinator, requests: LogRequests) -> None:
        sent, addition = await send_first(gate, coordinator, requests)
        addition.recorded.set_result(AddPartitionsReply(code))
        addition.decided.set_result(None)
        (result,) = await sent
        assert isinstance(result, refused)
        assert requests.broker.log("t", 0).end_offset == 0

    play_gate(story)


def begin_a_leader_epoch(log: Any) -> None:
    log.producers.guards = PendingGuards()


def end_the_transaction(log: Any) -> None:
    log.producers.guards.end(7)


def end_it_and_begin_a_leader_epoch(log: Any) -> None:
    end_the_transaction(log)
    begin_a_leader_epoch(log)


@pytest.mark.parametrize(
    ("meanwhile", "refused"),
    [
        (begin_a_leader_epoch, NotLeaderOrFollower),
        (end_the_transaction, InvalidTxnState),
        (end_it_and_begin_a_leader_epoch, InvalidTxnState),
    ],
)
def test_records_that_wait_through_a_change_of_leader_epoch_are_sent_again(
    meanwhile: Callable[[Any], None], refused: type[Exception]
) -> None:
    """They were refused with INVALID_TXN_STATE, of which a producer dies, though its transaction was open."""

    async def story(gate: TransactionGate, coordinator: ScriptedCoordinator, requests: LogRequests) -> None:
        sent, addition = await send_first(gate, coordinator, requests)
        meanwhile(requests.broker.log("t", 0))
        addition.decided.set_result(None)
        addition.recorded.set_result(AddPartitionsReply(ErrorCode.NONE))
        (result,) = await sent
        assert isinstance(result, refused)
        assert requests.broker.log("t", 0).end_offset == 0

    play_gate(story)


def test_a_request_whose_client_went_leaves_no_guard() -> None:
    async def story(gate: TransactionGate, coordinator: ScriptedCoordinator, requests: LogRequests) -> None:
        sent = asyncio.ensure_future(gate.append_first("app", [PART], 12, lambda parts, guards: []))
        await until(lambda: bool(coordinator.additions))
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent
        log: Any = requests.broker.log("t", 0)
        assert log.producers.guards.count == 0

    play_gate(story)


def test_records_of_the_node_that_are_refused_say_why() -> None:
    async def story(gate: TransactionGate, coordinator: ScriptedCoordinator, requests: LogRequests) -> None:
        asked = asyncio.ensure_future(gate.ask_for("app", 7, 0, ("t", 0), 2))
        await until(lambda: bool(coordinator.additions))
        coordinator.additions[0].recorded.set_result(AddPartitionsReply(ErrorCode.PRODUCER_FENCED))
        coordinator.additions[0].decided.set_result(None)
        with pytest.raises(CoordinatorError) as refusal:
            await asked
        assert refusal.value.code is ErrorCode.PRODUCER_FENCED

    play_gate(story)
