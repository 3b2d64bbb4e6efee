"""Transactional producers at the Kafka listener: clients of level 0, whose EndTxn keeps the epoch."""

from typing import Any

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.kafka.dispatch import ClientPeer, HangUp
from muster.storage.records.batch import read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import Door, made, play
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
    door: Door, who: tuple[int, int], *texts: bytes, first: int = 0, place: tuple[str, int] = ADDED[0]
) -> int:
    data = batch(*texts, producer_id=who[0], producer_epoch=who[1], base_sequence=first, transactional=True)
    (part,) = await produce(door, 9, (*place, data), transactional_id="app")
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
    values, offset, stable = list[bytes](), 0, 1
    while offset < stable:
        (found,) = await fetch(door, 12, ("t", 0, offset), isolation_level=1)
        stable = found.last_stable_offset
        aborted = {each.first_offset for each in found.aborted_transactions}
        for each in read_batches(found.records or b""):
            if not each.control and each.base_offset not in aborted:
                values += [record.value or b"" for record in each.records()]
            offset = each.next_offset
    return values


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


def test_the_number_of_partitions_is_fixed_once_there_are_ids() -> None:
    disk = MemoryFiles()

    async def nothing(door: Door) -> None:
        await begin(door)

    play(nothing, disk, transactions=NODE)
    with pytest.raises(ValueError, match=r"transaction\.state\.log\.num\.partitions is 5"):
        play(nothing, disk, transactions=Settings(transaction_state_log_num_partitions=5))
