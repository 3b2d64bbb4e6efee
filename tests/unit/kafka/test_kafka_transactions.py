"""Transactional producers at the Kafka listener: clients of level 0, whose EndTxn keeps the epoch, and of level 2."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.kafka import dispatch
from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.dispatch import ApiVersionsHandler, ClientPeer, HangUp, KafkaCall
from muster.coordinator.kafka.handlers import transaction_queries
from muster.coordinator.kafka.handlers.transaction_queries import TransactionQueryHandlers
from muster.coordinator.kafka.handlers.transactional_offsets import CommitConnections
from muster.coordinator.kafka.handlers.transactions import refuse_records
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.runtime.transaction_records import encode_transaction
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.listeners.kafka_listener import what_is_told
from muster.coordinator.server.transactions import transaction_coordinator
from muster.coordinator.server.transactions.transaction_coordinator import TransactionCoordinator
from muster.coordinator.transactions.effects import ListTransactionsReply
from muster.coordinator.transactions.records import LAST_CLIENT_EPOCH, TransactionState, TransactionStored
from muster.coordinator.transactions.state import MAX_TRANSACTION_PARTITIONS
from muster.long_work import AT_ONCE
from muster.storage.records.batch import encode_batch, read_batches
from tests.fakes.memory_files import MemoryFiles, damage_log
from tests.support.kafka.door import Door, made, play
from tests.support.transactions import keep_committed
from tests.unit.kafka.test_kafka_log_records import fetch, produce
from tests.unit.storage.logs import T0, batch, guard_for

NODE = Settings(transaction_state_log_num_partitions=3)
ADDED = ("t", 0), ("t", 1)


async def begin(door: Door, name: str = "app", **more: Any) -> tuple[int, int]:
    """Producer id and epoch of a new instance."""
    given = await door.ask("InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000, **more)
    assert given.error_code == 0
    return given.producer_id, given.producer_epoch


async def add(
    door: Door, who: tuple[int, int], *places: tuple[str, int], name: str = "app", version: int = 3, **more: Any
) -> list[int]:
    topics = [made("AddPartitionsToTxnRequest.topics", name=topic, partitions=[number]) for topic, number in places]
    asked = {"transactional_id": name, "producer_id": who[0], "producer_epoch": who[1], "topics": topics}
    answer = await door.ask("AddPartitionsToTxn", version, **(asked | more))
    return [part.partition_error_code for topic in answer.results for part in topic.results_by_partition]


async def send(
    door: Door,
    who: tuple[int, int],
    *texts: bytes,
    first: int = 0,
    place: tuple[str, int] = ADDED[0],
    version: int = 9,
) -> int:
    data = batch(*texts, producer_id=who[0], producer_epoch=who[1], base_sequence=first, transactional=True)
    (part,) = await produce(door, version, (*place, data), transactional_id="app")
    code: int = part.error_code
    return code


async def end(
    door: Door, who: tuple[int, int], *, commit: bool = True, version: int = 3, by: ClientPeer | None = None
) -> int:
    asked = {"transactional_id": "app", "producer_id": who[0], "producer_epoch": who[1], "committed": commit}
    code: int = (await door.ask("EndTxn", version, by=by, **asked)).error_code
    return code


async def ended(door: Door, who: tuple[int, int], *, commit: bool = True) -> None:
    """End it, and ask until it is complete: between Prepare and Complete a repeated EndTxn hears 51."""
    assert await end(door, who, commit=commit) == 0
    while (code := await end(door, who, commit=commit)) == 51:
        pass
    assert code == 0


async def committed(door: Door) -> list[bytes]:
    """What a reader of committed records gets of the first partition, fetch by fetch."""
    values, offset, stable, dropped = list[bytes](), 0, 1, set[int]()
    while offset < stable:
        (found,) = await fetch(door, 12, ("t", 0, offset), isolation_level=1)
        stable = found.last_stable_offset
        aborted = ((each.producer_id, each.first_offset) for each in found.aborted_transactions)
        kept, following = keep_committed(found.records or b"", aborted, dropped)
        values, offset = values + kept, following or offset
    return values


def test_many_partitions_are_answered_by_a_thread_and_too_many_are_refused_before_they_are_looked_at() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)

        async def codes_of(topic: str, rows: int) -> list[int]:
            named = made("AddPartitionsToTxnRequest.topics", name=topic, partitions=list(range(rows)))
            return await add(door, who, topics=[named])

        there = door.broker.topics()["t"].partitions
        assert await codes_of("t", AT_ONCE + 1) == [55] * there + [3] * (AT_ONCE + 1 - there)
        assert await codes_of("nowhere", MAX_TRANSACTION_PARTITIONS) == [3] * MAX_TRANSACTION_PARTITIONS
        assert set(await codes_of("nowhere", MAX_TRANSACTION_PARTITIONS + 1)) == {42}
        assert await add(door, who, *ADDED) == [0, 0]

    play(story, transactions=NODE)


def test_what_is_committed_is_read_and_what_is_aborted_is_not() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, *ADDED) == [0, 0]
        assert await send(door, who, b"a", b"b") == 0
        assert await committed(door) == []
        await ended(door, who)
        assert await committed(door) == [b"a", b"b"]
        assert await add(door, who, ADDED[0]) == [0]
        assert await send(door, who, b"c", first=2) == 0
        await ended(door, who, commit=False)
        (found,) = await fetch(door, 12, ("t", 0, 3), isolation_level=1)
        assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(who[0], 3)]
        assert found.last_stable_offset == found.high_watermark == 5
        assert await committed(door) == [b"a", b"b"]

    play(story, transactions=NODE)


def test_a_search_leaves_the_transaction_alone_that_has_begun_since() -> None:
    """A shard is loaded while the node runs: what was open when the logs were looked at may have ended by now."""

    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, ADDED[0]) == [0]
        assert await send(door, who, b"a") == 0
        (seen,) = door.broker.log("t", 0).open_transactions()
        await ended(door, who)
        who = await begin(door)
        assert await add(door, who, ADDED[0]) == [0]
        assert await send(door, who, b"b") == 0
        ours = door.transactions
        assert ours is not None
        assert ours._driver is not None
        await ours._settle_orphan(ours._driver, ADDED[0], seen)
        await ended(door, who)
        assert await committed(door) == [b"a", b"b"]

    play(story, transactions=NODE)


def test_topics_of_the_node_come_into_no_transaction_of_a_client() -> None:
    """Its end would write a marker into them, beside whoever writes there. Positions have a way of their own."""
    ours = ("__consumer_offsets", 0), ("__transaction_state", 0)

    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, ours[0], ADDED[0]) == [29, 55]
        assert await add(door, who, ours[1]) == [29]
        assert await add(door, who, ours[1], ("nowhere", 0)) == [29, 3]
        for place in ours:
            assert await send(door, who, b"a", place=place, version=12) == 17
        assert await end(door, who) == 48, "no transaction has begun"

    play(story, transactions=NODE)


def test_only_who_added_a_partition_may_write_to_it() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await send(door, who, b"a") == 48
        assert await add(door, who, ADDED[1]) == [0]
        assert await send(door, who, b"a") == 48
        assert await send(door, (who[0] + 1, 0), b"a") == 49
        assert await send(door, (who[0], who[1] + 1), b"a") == 47
        assert door.broker.end_offset("t", 0) == 0

    play(story, transactions=NODE)


def test_without_verification_records_come_in_unasked() -> None:
    async def story(door: Door) -> None:
        assert await send(door, await begin(door), b"a") == 0

    play(story, transactions=NODE.model_copy(update={"transaction_partition_verification_enable": False}))


def test_a_transactional_batch_needs_the_request_to_name_an_id() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        await add(door, who, ADDED[0])
        data = batch(b"a", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True)
        assert [part.error_code for part in await produce(door, 9, ("t", 0, data))] == [53]

    play(story, transactions=NODE)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"transactional_id": "", "transaction_timeout_ms": 1_000}, 42),
        ({"transactional_id": "app", "transaction_timeout_ms": 0}, 50),
        ({"transactional_id": "app", "transaction_timeout_ms": 900_001}, 50),
        ({"transactional_id": "app", "transaction_timeout_ms": 1_000, "producer_id": 3}, 42),
        ({"transactional_id": "app", "transaction_timeout_ms": 1_000, "producer_epoch": 3}, 42),
    ],
)
def test_what_init_producer_id_refuses(asked: dict[str, Any], code: int) -> None:
    async def story(door: Door) -> None:
        assert (await door.ask("InitProducerId", 4, **asked)).error_code == code

    play(story, transactions=NODE)


def test_what_add_partitions_refuses() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, ("t", 0), ("t", 3), ("nowhere", 0)) == [55, 3, 3]
        assert await add(door, who, ("t", 0), name="other") == [49]
        assert await add(door, who, ("t", 0), name="") == [42]
        assert await add(door, (who[0] + 1, 0), ("t", 0)) == [49]
        assert [await add(door, (who[0], 1), ("t", 0), version=version) for version in range(4)] == [
            [47], [47], [90], [90]
        ]  # fmt: skip

    play(story, transactions=NODE)


def test_what_end_txn_answers_in_each_state() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert [await end(door, who, commit=commit) for commit in (True, False)] == [48, 48]
        for commit in (True, False):
            await add(door, who, ADDED[0])
            await ended(door, who, commit=commit)
            assert [await end(door, who, commit=commit), await end(door, who, commit=not commit)] == [0, 48]
        assert [await end(door, (who[0], 1), version=version) for version in range(4)] == [47, 47, 90, 90]
        assert await end(door, (who[0] + 1, 0)) == 49

    play(story, transactions=NODE)


def test_a_new_instance_fences_the_one_before_and_aborts_what_it_had_open() -> None:
    async def story(door: Door) -> None:
        zombie = await begin(door)
        await add(door, zombie, ADDED[0])
        await send(door, zombie, b"undone")
        who = await begin(door)
        assert who == (zombie[0], 2), "one epoch only fences"
        assert await add(door, zombie, ADDED[0]) == [90]
        assert await send(door, zombie, b"late", first=1) == 47
        assert await end(door, zombie) == 90
        await add(door, who, ADDED[0])
        assert await send(door, who, b"done") == 0
        await ended(door, who)
        assert await committed(door) == [b"done"]

    play(story, transactions=NODE)


def test_a_request_that_was_overtaken_by_its_repetition_is_not_performed() -> None:
    async def story(door: Door) -> None:
        newer = door.connect()
        who = await begin(door, by=door.peer)
        assert await add(door, who, ADDED[0], by=newer) == [0]
        with pytest.raises(HangUp):
            await end(door, who, commit=False, by=door.peer)
        assert await end(door, who, by=newer) == 0

    play(story, transactions=NODE)


def test_a_node_goes_on_with_what_was_decided_and_aborts_what_nobody_knows() -> None:
    disk = MemoryFiles()
    found: list[int] = []

    async def before(door: Door) -> None:
        who = await begin(door)
        await add(door, who, *ADDED)
        await send(door, who, b"open")
        stray = batch(b"stray", producer_id=77, producer_epoch=4, base_sequence=0, transactional=True)
        door.broker.append("t", 2, stray, T0, guard=guard_for(door.broker.log("t", 2), stray))
        door.broker.flush()
        found.extend(who)

    async def after(door: Door) -> None:
        who = found[0], found[1]
        # Until the search is done requests are refused as loading.
        while (await add(door, who, ADDED[0])) == [14]:
            pass
        assert door.broker.log("t", 2).open_transactions() == []
        assert [each.producer_id for each in door.broker.log("t", 0).open_transactions()] == [who[0]]
        await ended(door, who)
        assert await committed(door) == [b"open"]

    play(before, disk, transactions=NODE)
    play(after, disk, transactions=NODE)


def test_a_node_that_never_saw_an_id_keeps_no_log_of_them() -> None:
    async def story(door: Door) -> None:
        assert (await door.ask("ListTransactions", 0)).transaction_states == []
        await produce(door, 9, ("t", 0, batch(b"x")))
        assert "__transaction_state" not in door.broker.topics()
        found = await door.ask("FindCoordinator", 3, key="app", key_type=1)
        assert (found.error_code, found.node_id) == (0, 7)
        assert door.broker.topics()["__transaction_state"].internal

    play(story, transactions=NODE)


def test_transactions_are_listed_by_state_and_producer() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        other = await begin(door, "other")
        await add(door, who, ADDED[0])

        async def listed(**asked: Any) -> list[tuple[str, str]]:
            answer = await door.ask("ListTransactions", 1, **asked)
            return sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)

        assert await listed() == [("app", "Ongoing"), ("other", "Empty")]
        assert await listed(state_filters=["Ongoing"]) == [("app", "Ongoing")]
        assert await listed(producer_id_filters=[other[0]]) == [("other", "Empty")]
        assert await listed(duration_filter=600_000) == []
        assert (await door.ask("ListTransactions", 1, state_filters=["Odd"])).unknown_state_filters == ["Odd"]

    play(story, transactions=NODE)


def test_transactions_are_listed_by_a_pattern_for_the_whole_id() -> None:
    async def story(door: Door) -> None:
        for name in ("bill-1", "bill-2", "order"):
            await begin(door, name)

        async def listed(pattern: str | None) -> tuple[int, list[str]]:
            answer = await door.ask("ListTransactions", 2, transactional_id_pattern=pattern)
            return answer.error_code, sorted(each.transactional_id for each in answer.transaction_states)

        assert await listed("bill-.") == (0, ["bill-1", "bill-2"])
        assert await listed("bill") == (0, [])
        for everything in (None, ""):
            assert await listed(everything) == (0, ["bill-1", "bill-2", "order"])
        assert await listed("(?<=a)b") == (128, []), "RE2 does not look back"
        assert await listed("x" * 5_000) == (128, [])

    play(story, transactions=NODE)


def test_transactions_are_described_one_by_one() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        await add(door, who, ("t", 2), ("t", 0))
        answer = await door.ask("DescribeTransactions", 0, transactional_ids=["app", "gone", ""])
        open_, gone, nameless = answer.transaction_states
        assert (open_.error_code, open_.transactional_id, open_.transaction_state) == (0, "app", "Ongoing")
        assert (open_.producer_id, open_.producer_epoch, open_.transaction_timeout_ms) == (*who, 60_000)
        assert open_.transaction_start_time_ms > 0
        assert [(each.topic, list(each.partitions)) for each in open_.topics] == [("t", [0, 2])]
        assert (gone.error_code, gone.transactional_id, gone.transaction_state) == (105, "gone", "")
        assert nameless.error_code == 42
        await ended(door, who)
        (done,) = (await door.ask("DescribeTransactions", 0, transactional_ids=["app"])).transaction_states
        assert (done.transaction_state, list(done.topics)) == ("CompleteCommit", [])
        assert done.transaction_start_time_ms == open_.transaction_start_time_ms, "as Kafka's"

    play(story, transactions=NODE)


def test_very_many_transactions_are_described_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "AT_ONCE", 2)
    monkeypatch.setattr(transaction_queries, "DESCRIBED_AT_ONCE", 2)

    async def story(door: Door) -> None:
        await begin(door)
        names = ["gone", "app", "gone", "other", "app"]
        answer = await door.ask("DescribeTransactions", 0, transactional_ids=names)
        told = [(each.transactional_id, each.error_code) for each in answer.transaction_states]
        assert told == [(name, 0 if name == "app" else 105) for name in names]

    play(story, transactions=NODE)


def test_a_shard_that_cannot_be_loaded_keeps_no_others_out_of_the_list() -> None:
    """As Kafka, which lists what it has loaded."""
    disk = MemoryFiles()
    names = [f"app-{number}" for number in range(6)]

    async def before(door: Door) -> None:
        for name in names:
            await begin(door, name)

    async def after(door: Door) -> None:
        while (answer := await door.ask("ListTransactions", 1)).error_code == 14:
            pass
        listed = sorted(each.transactional_id for each in answer.transaction_states)
        assert (answer.error_code, listed) == (0, [name for name in names if partition_for(name, 3) != 1])
        assert 0 < len(listed) < len(names), "some were in the damaged shard, and some in others"

    play(before, disk, transactions=NODE)
    damage_log(disk, "__transaction_state-1")
    play(after, disk, transactions=NODE)


def test_nothing_is_listed_while_a_shard_loads() -> None:
    """A list that is short for a moment would show transactions as hanging."""

    async def ask_every_shard(*asked: Any) -> Any:
        return {0: ListTransactionsReply(), 1: ListTransactionsReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}

    async def story(door: Door) -> None:
        handlers = TransactionQueryHandlers(cast(Any, SimpleNamespace(ask_every_shard=ask_every_shard)))
        listed = await handlers.list_transactions(struct("ListTransactionsRequest")(), KafkaCall(0, "tests", door.peer))
        assert (listed.error_code, list(listed.transaction_states)) == (14, [])

    play(story)


@pytest.mark.parametrize("code", [14, 15])
def test_a_coordinator_that_cannot_answer_says_so_for_every_id(code: int) -> None:
    busy = Overloaded("too much") if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else NodeShuttingDown("down")

    async def refuse(*asked: Any) -> Any:
        raise busy

    async def story(door: Door) -> None:
        handlers = TransactionQueryHandlers(cast(Any, SimpleNamespace(ask=refuse, ask_every_shard=refuse)))
        call = KafkaCall(0, "tests", door.peer)
        asked = struct("DescribeTransactionsRequest")(transactional_ids=["a", "b"])
        described = await handlers.describe_transactions(asked, call)
        assert [each.error_code for each in described.transaction_states] == [code, code]
        listed = await handlers.list_transactions(struct("ListTransactionsRequest")(), call)
        assert listed.error_code == code

    play(story)


def test_a_node_knows_only_so_many_ids() -> None:
    async def story(door: Door) -> None:
        first = await begin(door, "a")
        await begin(door, "b")
        refused = await door.ask("InitProducerId", 4, transactional_id="c", transaction_timeout_ms=1_000)
        assert refused.error_code == 89
        assert await begin(door, "a") == (first[0], 1), "those that are known go on"

    play(story, transactions=NODE.model_copy(update={"transaction_max_ids": 2}))


def test_the_number_of_partitions_is_fixed_once_there_are_ids() -> None:
    disk = MemoryFiles()

    async def nothing(door: Door) -> None:
        await begin(door)

    play(nothing, disk, transactions=NODE)
    with pytest.raises(ValueError, match=r"transaction\.state\.log\.num\.partitions is 5"):
        play(nothing, disk, transactions=Settings(transaction_state_log_num_partitions=5))


# Level 2: each end raises the epoch (KIP-890)
# --------------------------------------------

NO_PRODUCER = (-1, -1)


async def send_raising(
    door: Door, who: tuple[int, int], *texts: bytes, first: int = 0, place: tuple[str, int] = ADDED[0]
) -> int:
    return await send(door, who, *texts, first=first, place=place, version=12)


async def end_raising(door: Door, who: tuple[int, int], *, commit: bool = True) -> tuple[int, tuple[int, int]]:
    """The code, and what the next transaction is written by."""
    asked = {"transactional_id": "app", "producer_id": who[0], "producer_epoch": who[1], "committed": commit}
    answer = await door.ask("EndTxn", 5, **asked)
    return answer.error_code, (answer.producer_id, answer.producer_epoch)


async def state_of(door: Door) -> str:
    """The state of the id, once its markers are written."""
    while True:
        (found,) = (await door.ask("ListTransactions", 1)).transaction_states
        if not found.transaction_state.startswith("Prepare"):
            return str(found.transaction_state)


async def brought_to(door: Door, state: str) -> tuple[int, int]:
    """Producer id and epoch of an id in this state, whose epoch has been raised before."""
    who = await begin(door, name="app")
    who = await begin(door, name="app")
    if state != "Empty":
        assert await send_raising(door, who, b"x") == 0
    if state.startswith("Complete"):
        code, who = await end_raising(door, who, commit=state == "CompleteCommit")
        assert code == 0
    assert await state_of(door) == state
    return who


AGAIN, NEXT = "the answer again", "the next epoch"


@pytest.mark.parametrize(
    ("state", "abort_before", "abort_current", "commit_before", "commit_current"),
    [
        ("Empty", 90, NEXT, 90, 48),
        ("CompleteAbort", AGAIN, NEXT, 48, 48),
        ("CompleteCommit", 48, NEXT, AGAIN, 48),
        ("Ongoing", 90, NEXT, 90, NEXT),
    ],
)
def test_what_end_txn_of_level_2_answers_in_each_state(
    state: str, abort_before: object, abort_current: object, commit_before: object, commit_current: object
) -> None:
    async def story(door: Door) -> None:
        for commit, back, expected in (
            (False, 1, abort_before),
            (False, 0, abort_current),
            (True, 1, commit_before),
            (True, 0, commit_current),
        ):
            producer, epoch = await brought_to(door, state)
            answer = {AGAIN: (0, (producer, epoch)), NEXT: (0, (producer, epoch + 1))}.get(
                str(expected), (expected, NO_PRODUCER)
            )
            assert await end_raising(door, (producer, epoch - back), commit=commit) == answer
            assert await state_of(door) == (
                {True: "CompleteCommit", False: "CompleteAbort"}[commit] if expected == NEXT else state
            )
            assert await end_raising(door, (producer, epoch + 7), commit=commit) == (90, NO_PRODUCER)
            assert await end_raising(door, (producer + 1, epoch), commit=commit) == (49, NO_PRODUCER)

    play(story, transactions=NODE)


def test_each_transaction_has_an_epoch_of_its_own_which_its_marker_ends() -> None:
    async def story(door: Door) -> None:
        first = who = await begin(door)
        for number in range(3):
            # It follows the end of the one before at once: the node waits until that is complete.
            assert await send_raising(door, who, b"%d" % number) == 0
            assert await send_raising(door, who, b"more", first=1) == 0
            code, who = await end_raising(door, who, commit=number != 1)
            assert (code, who) == (0, (first[0], first[1] + number + 1))
        assert await state_of(door) == "CompleteCommit"
        epochs, offset = list[tuple[bool, int]](), 0
        while offset < door.broker.end_offset("t", 0):
            (found,) = await fetch(door, 12, ("t", 0, offset))
            for each in read_batches(found.records):
                epochs.append((each.control, each.producer_epoch))
                offset = each.next_offset
        assert epochs == [(marker, n + marker) for n in range(3) for marker in (False, False, True)]
        assert await committed(door) == [b"0", b"more", b"2", b"more"]

    play(story, transactions=NODE)


def test_a_delayed_end_of_the_transaction_before_ends_nothing() -> None:
    async def story(door: Door) -> None:
        before = await begin(door)
        assert await send_raising(door, before, b"a") == 0
        _, who = await end_raising(door, before)
        assert await state_of(door) == "CompleteCommit"
        assert await end_raising(door, before) == (0, who)
        assert await send_raising(door, who, b"b") == 0
        for commit in (True, False):
            assert await end_raising(door, before, commit=commit) == (90, NO_PRODUCER)
        assert await state_of(door) == "Ongoing"
        assert await committed(door) == [b"a"]

    play(story, transactions=NODE)


def test_delayed_records_of_the_transaction_before_do_not_get_into_the_next_one() -> None:
    async def story(door: Door) -> None:
        before = await begin(door)
        assert await send_raising(door, before, b"a") == 0
        _, who = await end_raising(door, before)
        assert await state_of(door) == "CompleteCommit"
        assert await send_raising(door, before, b"late", first=1) == 47
        assert await send_raising(door, who, b"b") == 0
        assert await send_raising(door, before, b"late", first=1) == 47
        assert await send_raising(door, before, b"late", place=ADDED[1]) == 47
        assert (await end_raising(door, who))[0] == 0
        assert await state_of(door) == "CompleteCommit"
        assert await committed(door) == [b"a", b"b"]

    play(story, transactions=NODE)


@pytest.mark.parametrize("verifies", [True, False])
def test_records_of_level_2_add_their_partition_themselves(verifies: bool) -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await send_raising(door, who, b"a") == 0
        assert await send_raising(door, who, b"b", place=ADDED[1]) == 0
        assert await state_of(door) == "Ongoing"
        _, who = await end_raising(door, who)
        assert await state_of(door) == "CompleteCommit"
        for partition in (0, 1):
            assert door.broker.log("t", partition).open_transactions() == []
        assert await committed(door) == [b"a"]

    play(story, transactions=NODE.model_copy(update={"transaction_partition_verification_enable": verifies}))


def test_a_partition_that_was_not_added_is_told_by_what_the_client_knows() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert [await send(door, who, b"a", version=version) for version in (9, 10, 11)] == [48, 48, 120]

    play(story, transactions=NODE)


def test_the_first_batch_of_an_epoch_has_the_first_sequence() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await send_raising(door, who, b"b", first=1) == 45
        assert await send_raising(door, who, b"a") == 0
        assert await send_raising(door, who, b"b", first=1) == 0

    play(story, transactions=NODE)


@pytest.mark.parametrize(("version", "code"), [(9, 19), (11, 19), (12, 51)])
def test_a_transaction_that_is_not_complete_yet_is_told_to_who_knows_the_word(version: int, code: int) -> None:
    assert refuse_records("app", 51, version).code == code


def test_the_last_epoch_ends_with_a_fresh_producer_id() -> None:
    disk = MemoryFiles()

    async def before(door: Door) -> None:
        found = await door.ask("FindCoordinator", 3, key="app", key_type=1)
        assert found.error_code == 0
        old = TransactionStored("app", 900, LAST_CLIENT_EPOCH, 60_000, TransactionState.EMPTY, updated_ms=T0)
        key, value = encode_transaction(old)[:2]
        place = "__transaction_state", partition_for("app", NODE.transaction_state_log_num_partitions)
        door.broker.log(*place).append(encode_batch([(T0, key, value, ())]), T0)
        door.broker.flush()

    async def after(door: Door) -> None:
        last = 900, LAST_CLIENT_EPOCH
        while (code := await send_raising(door, last, b"a")) == 19:
            pass
        assert code == 0
        code, who = await end_raising(door, last)
        assert code == 0
        assert who[0] != 900
        assert who[1] == 0
        assert await state_of(door) == "CompleteCommit"
        assert await end_raising(door, last) == (0, who), "repeated"
        assert await send_raising(door, who, b"b") == 0
        assert (await end_raising(door, who))[1] == (who[0], 1)

    play(before, disk, transactions=NODE)
    play(after, disk, transactions=NODE)


def test_a_long_list_is_asked_for_in_several_turns_and_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of two ids a turn: of the three shards the one that reaches it ends its portion."""

    async def story(door: Door) -> None:
        names = [f"app-{number}" for number in range(12)]
        for name in names:
            await begin(door, name)
        at_once = (await door.ask("ListTransactions", 1)).transaction_states
        monkeypatch.setattr(transaction_coordinator, "IDS_PER_TURN", 2)
        monkeypatch.setattr(dispatch, "AT_ONCE", 3)
        ours = door.transactions
        assert ours is not None
        assert list(ours._portions()) == [[0], [1], [2]]
        long = (await door.ask("ListTransactions", 1)).transaction_states
        assert [each.transactional_id for each in long] == [each.transactional_id for each in at_once]
        assert sorted(each.transactional_id for each in long) == sorted(names)

    play(story, transactions=NODE)


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_level_0_writes_records_that_brokers_of_every_age_read(level: int, version: int) -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, *ADDED) == [0, 0]
        await ended(door, who)
        log = door.broker.log("__transaction_state", partition_for("app", NODE.transaction_state_log_num_partitions))
        values = [
            record.value or b"" for found in read_batches(log.fetch(0, 1 << 20).records) for record in found.records()
        ]
        assert [value[:2].hex() for value in values] == [f"000{version}"] * 4

    play(story, transactions=NODE.model_copy(update={"transaction_version": level}))


def told_versions(level: int | None) -> tuple[dict[int, int], Any]:
    """The last version of each API, and the answer."""

    async def ask() -> Any:
        peer = ClientPeer("127.0.0.1", asyncio.get_running_loop().create_future())
        asked = struct("ApiVersionsRequest")(client_software_name="tests", client_software_version="1")
        return ApiVersionsHandler(*what_is_told(level)).api_versions_now(asked, KafkaCall(3, "tests", peer))

    answer = decode_frame("ApiVersionsResponse", 3, b"".join(encode("ApiVersionsResponse", 3, asyncio.run(ask()))))
    return {each.api_key: each.max_version for each in answer.api_keys}, answer


def test_level_2_is_told_as_a_finalized_feature() -> None:
    last, answer = told_versions(2)
    assert (last[0], last[22], last[25], last[26], last[28]) == (12, 5, 4, 5, 5)
    assert answer.supported_features == ()
    assert answer.finalized_features_epoch > 0
    (feature,) = answer.finalized_features
    assert (feature.name, feature.min_version_level, feature.max_version_level) == ("transaction.version", 2, 2)


@pytest.mark.parametrize("level", [0, 1])
def test_below_level_2_clients_are_told_to_go_on_as_before(level: int) -> None:
    last, answer = told_versions(level)
    assert (last[0], last[22], last[25], last[26], last[28]) == (11, 5, 4, 4, 4)
    assert answer.finalized_features == ()
    assert answer.finalized_features_epoch > 0, "a client that knows level 2 from before takes it back"


def test_a_node_without_a_coordinator_of_transactions_tells_of_none() -> None:
    last, answer = told_versions(None)
    assert (last[0], last[22]) == (9, 4)
    assert 26 not in last
    assert answer.finalized_features_epoch == -1
    assert answer.finalized_features == ()


# -- positions of groups -------------------------------------------------------------------------------------


async def add_offsets(door: Door, who: tuple[int, int], version: int = 3) -> int:
    asked = {"transactional_id": "app", "producer_id": who[0], "producer_epoch": who[1], "group_id": "g"}
    code: int = (await door.ask("AddOffsetsToTxn", version, **asked)).error_code
    return code


async def commit_positions(door: Door, who: tuple[int, int], version: int = 3, **more: Any) -> list[int]:
    row = "TxnOffsetCommitRequest.topics.partitions"
    topics = [
        made(
            "TxnOffsetCommitRequest.topics",
            name=name,
            partitions=[made(row, partition_index=number, committed_offset=5) for number in numbers],
        )
        for name, numbers in (("t", (0, 9)), ("nowhere", (0,)))
    ]
    asked = {"transactional_id": "app", "producer_id": who[0], "producer_epoch": who[1], "topics": topics}
    answer = await door.ask("TxnOffsetCommit", version, **(asked | {"group_id": "g"} | more))
    return [part.error_code for topic in answer.topics for part in topic.partitions]


@pytest.mark.parametrize("version", range(5))
def test_positions_are_taken_once_the_group_has_joined_the_transaction(version: int) -> None:
    """Clients from version 4 on know TRANSACTION_ABORTABLE, as a broker of Kafka 4.1.1 tells them."""

    async def story(door: Door) -> None:
        who = await begin(door)
        assert await commit_positions(door, who, version) == [48 if version < 4 else 120, 3, 3]
        assert await add_offsets(door, who, version) == 0
        assert await commit_positions(door, who, version) == [0, 3, 3]

    play(story, transactions=NODE)


def test_positions_that_were_overtaken_by_their_repetition_are_not_taken() -> None:
    """At level 0 the next transaction has the same epoch, and would commit what comes late of the one before."""

    async def story(door: Door) -> None:
        newer, who = door.connect(), await begin(door)
        assert await add_offsets(door, who) == 0
        assert await commit_positions(door, who, by=newer) == [0, 3, 3]
        await ended(door, who)
        assert await add_offsets(door, who) == 0
        with pytest.raises(HangUp, match="overtaken"):
            await commit_positions(door, who, by=door.peer)
        assert await commit_positions(door, who, 5, by=door.peer) == [0, 3, 3], "an epoch is one transaction there"
        assert await commit_positions(door, who, by=newer) == [0, 3, 3]

    play(story, transactions=NODE)


def test_as_many_connections_are_remembered_as_may_be() -> None:
    connections = CommitConnections(most=2)
    for producer, connection in ((1, 9), (2, 9), (1, 9), (3, 9), (2, 1)):
        connections.note(producer, 0, connection)
    with pytest.raises(HangUp):
        connections.note(3, 0, 8)
    connections.note(3, 1, 8)


def test_what_commits_of_positions_refuse() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add_offsets(door, (who[0] + 1, 0)) == 49
        assert [await add_offsets(door, (who[0], 1), version) for version in range(4)] == [47, 47, 90, 90]
        assert await add_offsets(door, who) == 0
        assert (await commit_positions(door, who, group_id=""))[0] == 24
        assert (await commit_positions(door, (who[0] + 1, 0)))[0] == 49
        assert (await commit_positions(door, (who[0], 1)))[0] == 47
        assert (await commit_positions(door, who, generation_id=3))[0] == 22

    play(story, transactions=NODE)


def test_positions_of_level_2_join_the_transaction_by_themselves() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        assert await commit_positions(door, who, 5) == [0, 3, 3]
        assert await commit_positions(door, who, 4) == [0, 3, 3]

    play(story, transactions=NODE)


def test_a_search_for_open_transactions_that_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([OSError(5, "Input/output error")])
    search = TransactionCoordinator._search_logs

    async def search_or_fail(coordinator: TransactionCoordinator, driver: EngineDriver) -> None:
        for failure in failures:
            raise failure
        await search(coordinator, driver)

    monkeypatch.setattr(TransactionCoordinator, "_search_logs", search_or_fail)

    async def story(door: Door) -> None:
        who = await begin(door)
        assert await add(door, who, ADDED[0]) == [0]

    play(story, transactions=NODE)


def test_a_repeated_batch_of_the_transaction_before_keeps_no_later_one_out() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        await add(door, who, ADDED[0])
        assert await send(door, who, b"a") == 0
        await ended(door, who)
        await add(door, who, ADDED[0])
        assert await send(door, who, b"a") == 0, "it is in the log, so nothing is appended"
        assert await send(door, who, b"b", first=1) == 0
        await ended(door, who)
        assert await committed(door) == [b"a", b"b"]

    play(story, transactions=NODE)
