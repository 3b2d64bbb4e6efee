"""`__aborts`: what the coordinator ended by itself is noted with the decision, and what cannot be noted is told."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as some

from muster.coordinator.config import Settings
from muster.coordinator.runtime.abort_records import (
    ABORTS_TOPIC,
    PARTITIONS_NAMED,
    AbortEntry,
    decode_abort,
    encode_abort,
    split_by_size,
)
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.transactions import abort_journal
from muster.coordinator.server.transactions.abort_journal import (
    LOST,
    UNWRITTEN,
    AbortJournal,
    AbortReader,
    append_aborts,
)
from muster.coordinator.transactions.effects import EndCause, TerminateTransactionReply
from muster.coordinator.transactions.events import RequestOrigin, TerminateTransaction
from muster.storage.logs.retention import truncate_log
from muster.storage.records.batch import read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import Door, play
from tests.unit.kafka.test_kafka_transactions import ADDED, add, begin, end, ended, send
from tests.unit.storage.logs import T0, batch

NODE = Settings(transaction_state_log_num_partitions=1)
ENTRY = AbortEntry(
    "billing",
    4,
    7,
    "timed out",
    T0 + 60_012,
    of=RequestOrigin("127.0.0.1", "librdkafka 2.16.0", "rdkafka"),
    started_ms=T0,
    open_ms=60_012,
    timeout_ms=60_000,
    partitions=("t-0",),
    partition_count=1,
)

origins = some.builds(RequestOrigin, some.text(max_size=9), some.text(max_size=9), some.text(max_size=9))
numbers = some.integers(-1, 1 << 62)
entries = some.builds(
    AbortEntry,
    some.text(max_size=20),
    numbers,
    some.integers(-1, 32_767),
    some.sampled_from(["timed out", "operator", "orphan"]),
    numbers,
    origins,
    origins,
    numbers,
    numbers,
    numbers,
    some.integers(0, 1 << 40),
    some.lists(some.text(max_size=9), max_size=4).map(tuple),
    some.integers(0, 100_000),
)


# The entries
# -----------


@given(entries)
def test_an_entry_is_read_as_it_was_written(entry: AbortEntry) -> None:
    _, value, _ = encode_abort(entry)
    assert value is not None
    assert decode_abort(value) == entry


def test_an_entry_has_the_fields_that_its_page_names() -> None:
    key, value, _ = encode_abort(ENTRY)
    assert key == b"billing"
    assert json.loads(value or b"") == {
        "id": "billing",
        "producer": 4,
        "epoch": 7,
        "cause": "timed out",
        "of": "127.0.0.1",
        "of_software": "librdkafka 2.16.0",
        "of_client": "rdkafka",
        "started": T0,
        "open_ms": 60_012,
        "timeout_ms": 60_000,
        "stood_still_ms": 0,
        "partitions": ["t-0"],
        "partition_count": 1,
        "at": T0 + 60_012,
    }


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b'{"producer": 4}', b'{"producer": [], "epoch": 1}'])
def test_what_is_no_entry_is_passed_over(value: bytes) -> None:
    assert decode_abort(value) is None


def test_records_are_split_so_that_a_batch_stays_small() -> None:
    records = [(b"k", b"v" * size, -1) for size in (5, 5, 50, 5)]
    assert [len(portion) for portion in split_by_size(records, 12)] == [2, 1, 1]
    assert split_by_size([], 12) == []


# Writing them
# ------------


class Disk:
    """A log that fails as long as it is told to."""

    def __init__(self, *older: AbortEntry) -> None:
        self.older, self.written = list(older), list[AbortEntry]()
        self.failing = False

    async def write(self, entries: Sequence[AbortEntry]) -> None:
        if self.failing:
            raise OSError(28, "No space left on device")
        self.written += entries

    async def read_latest(self, transactional_id: str, most: int) -> list[AbortEntry]:
        if self.failing:
            raise OSError(5, "Input/output error")
        found = (each for each in reversed(self.older + self.written) if each.transactional_id == transactional_id)
        return list(islice(found, most))


Story = Callable[[AbortJournal, Disk, Conditions], Awaitable[None]]


def tell(story: Story, *older: AbortEntry) -> Disk:
    disk, conditions = Disk(*older), Conditions(lambda: T0)

    async def run() -> None:
        journal = AbortJournal(disk, pause=lambda seconds: asyncio.sleep(0))
        journal.start(conditions)
        async with asyncio.timeout(30):
            await story(journal, disk, conditions)
            await journal.stop()

    asyncio.run(run())
    return disk


async def passes(wanted: Callable[[], bool]) -> None:
    while not wanted():  # noqa: ASYNC110  # one turn of the loop at a time, no time passes
        await asyncio.sleep(0)


def test_what_a_full_disk_does_not_take_is_written_later_and_told_meanwhile() -> None:
    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        disk.failing = True
        journal.note(ENTRY)
        await passes(lambda: conditions.sentence(UNWRITTEN) is not None)
        assert "No space left" in (conditions.sentence(UNWRITTEN) or "")
        assert await journal.latest_of("billing", 5) == [ENTRY]
        disk.failing = False
        await passes(lambda: not journal.waiting)
        await passes(lambda: conditions.sentence(UNWRITTEN) is None)

    assert tell(story).written == [ENTRY]


def test_entries_beyond_a_thousand_are_lost_counted_and_told() -> None:
    many = [replace(ENTRY, epoch=number) for number in range(1_003)]

    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        disk.failing = True
        for entry in many:
            journal.note(entry)
        assert (journal.waiting, journal.lost) == (1_000, 3)
        assert (conditions.sentence(LOST) or "").startswith("3 aborts of transactions are not noted")
        disk.failing = False

    assert tell(story).written == many[:1_000], "the end of the node writes what waits"


def test_while_a_cluster_is_upgraded_a_thousand_wait_for_a_leader_that_takes_them_and_the_rest_is_told() -> None:
    many = [replace(ENTRY, epoch=number) for number in range(1_500)]

    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        disk.failing = True
        for entry in many[:1_000]:
            journal.note(entry)
        await passes(lambda: conditions.sentence(UNWRITTEN) is not None)
        assert (conditions.sentence(UNWRITTEN) or "").startswith("1000 aborts of transactions wait to be noted")
        assert conditions.sentence(LOST) is None
        for entry in many[1_000:]:
            journal.note(entry)
        assert (journal.waiting, journal.lost) == (1_000, 500)
        assert await journal.latest_of("billing", 1) == [many[-1]], "this node knows it as long as it lives"
        disk.failing = False
        await passes(lambda: not journal.waiting)
        await passes(lambda: conditions.sentence(UNWRITTEN) is None)
        assert (conditions.sentence(LOST) or "").startswith("500 aborts of transactions are not noted")
        journal.note(replace(ENTRY, epoch=2_000))
        await passes(lambda: not journal.waiting)
        assert journal.lost == 500, "from here on none is lost"

    assert [entry.epoch for entry in tell(story).written] == [*range(1_000), 2_000]


def test_an_end_of_the_node_does_not_wait_for_a_disk_that_fails() -> None:
    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        disk.failing = True
        journal.note(ENTRY)

    assert tell(story).written == []


def test_entries_of_others_and_of_before_the_start_are_told_in_their_order_and_once() -> None:
    older, other = replace(ENTRY, epoch=1, at_ms=T0), replace(ENTRY, transactional_id="else")

    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        journal.note(ENTRY)
        assert await journal.latest_of("billing", 5) == [ENTRY, older]
        await passes(lambda: not journal.waiting)
        assert await journal.latest_of("billing", 5) == [ENTRY, older], "what the node wrote it knows already"
        assert await journal.latest_of("billing", 1) == [ENTRY]
        later = replace(ENTRY, epoch=9, at_ms=ENTRY.at_ms + 1)
        disk.older.append(later)
        assert await journal.latest_of("billing", 5) == [later, ENTRY, older], "another node wrote it meanwhile"

    tell(story, older, other, older)


def test_a_log_that_cannot_be_read_is_told_and_read_again() -> None:
    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        disk.failing = True
        assert await journal.latest_of("billing", 5) == []
        assert "Input/output error" in journal.unread
        disk.failing = False
        assert await journal.latest_of("billing", 5) == [ENTRY]
        assert journal.unread == ""

    tell(story, ENTRY)


def test_memory_keeps_the_latest_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abort_journal, "MOST_KNOWN", 2)
    one, two, three = (replace(ENTRY, epoch=number) for number in (1, 2, 3))

    async def story(journal: AbortJournal, disk: Disk, conditions: Conditions) -> None:
        disk.failing = True
        for entry in (one, two, three):
            journal.note(entry)
        assert await journal.latest_of("billing", 5) == [three, two]
        disk.failing = False

    tell(story)


# On a node
# ---------


def noted_in(door: Door) -> list[AbortEntry]:
    """What `__aborts` has; all of it is durable."""
    if ABORTS_TOPIC not in door.broker.topics():
        return []
    records = door.broker.fetch(ABORTS_TOPIC, 0, 0, 1 << 20).records
    found = [decode_abort(record.value or b"") for batch in read_batches(records) for record in batch.records()]
    return [entry for entry in found if entry is not None]


def test_ordinary_ends_cost_no_entry_and_no_topic() -> None:
    async def story(door: Door) -> None:
        who = await begin(door)
        for commit in (True, False):
            assert await add(door, who, ADDED[0]) == [0]
            await ended(door, who, commit=commit)
        assert ABORTS_TOPIC not in door.broker.topics()

    play(story, transactions=NODE)


def test_a_fence_and_an_operator_are_noted_with_who_it_was() -> None:
    async def story(door: Door) -> None:
        old = await begin(door)
        assert await add(door, old, *ADDED) == [0, 0]
        new = await begin(door)
        await passes(lambda: len(noted_in(door)) == 1)
        assert await add(door, new, ADDED[0]) == [0]
        coordinator, operator = door.transactions, RequestOrigin("10.0.0.9", "muster 0.1.0", "")
        assert coordinator is not None
        fresh_id = await coordinator.draw_producer_id()
        reply = await coordinator.ask(
            "app", lambda number: TerminateTransaction(number, "app", fresh_id, operator), TerminateTransactionReply
        )
        assert reply.code == 0
        await passes(lambda: len(noted_in(door)) == 2)
        fenced, terminated = noted_in(door)
        client = RequestOrigin("127.0.0.1", "", "tests")
        assert (fenced.transactional_id, fenced.cause, fenced.by, fenced.of) == (
            "app",
            EndCause.FENCED.value,
            client,
            client,
        )
        assert (fenced.producer_id, fenced.epoch, fenced.partitions) == (*old, ("t-0", "t-1"))
        assert (terminated.cause, terminated.by, terminated.of) == (EndCause.OPERATOR.value, operator, client)
        assert (terminated.producer_id, terminated.epoch, terminated.partitions) == (*new, ("t-0",))
        assert await end(door, new) in (47, 90)

    play(story, transactions=NODE)


def test_a_timeout_is_noted_and_known_after_a_restart() -> None:
    disk, noted = MemoryFiles(), list[AbortEntry]()

    async def story(door: Door) -> None:
        given = await door.ask("InitProducerId", 4, transactional_id="app", transaction_timeout_ms=50)
        assert await add(door, (given.producer_id, given.producer_epoch), ADDED[0]) == [0]
        await passes(lambda: len(noted_in(door)) == 1)
        noted.extend(noted_in(door))
        (entry,) = noted
        assert (entry.cause, entry.by, entry.timeout_ms) == ("timed out", RequestOrigin(), 50)
        assert entry.open_ms >= 50
        assert entry.at_ms == entry.started_ms + entry.open_ms

    async def after(door: Door) -> None:
        assert door.transactions is not None
        assert await door.transactions.aborts.latest_of("app", 20) == noted

    play(story, disk, transactions=NODE)
    play(after, disk, transactions=NODE)


def test_a_reader_goes_on_where_it_was_keeps_the_latest_and_begins_again_after_a_cut() -> None:
    many = [replace(ENTRY, epoch=number, at_ms=T0 + number) for number in range(5)]

    async def story(door: Door) -> None:
        broker = door.broker
        broker.create_topic(ABORTS_TOPIC, 1, internal=True)
        reader = AbortReader(broker, most=3)
        assert await reader.read_latest("billing", 5) == []
        append_aborts(broker, [encode_abort(entry) for entry in many[:2]], T0)
        broker.flush([(ABORTS_TOPIC, 0)])
        assert await reader.read_latest("billing", 5) == [many[1], many[0]]
        append_aborts(broker, [encode_abort(replace(ENTRY, transactional_id="else"))], T0)
        append_aborts(broker, [encode_abort(entry) for entry in many[2:]], T0)
        broker.flush([(ABORTS_TOPIC, 0)])
        assert await reader.read_latest("billing", 5) == many[:1:-1], "three are kept"
        assert await reader.read_latest("billing", 1) == many[4:]
        log = broker.log(ABORTS_TOPIC, 0)
        truncate_log(log, 2)
        assert await reader.read_latest("billing", 5) == [many[1], many[0]]

    play(story, transactions=NODE)


def test_a_hanging_transaction_is_noted_as_an_orphan() -> None:
    """A log has records of a producer that no coordinator knows, as an earlier node may have left them."""
    disk = MemoryFiles()

    async def story(door: Door) -> None:
        await ended_one(door)
        guard = door.broker.log("t", 1).make_guard(4_711, 3, level=0)
        hanging = batch(b"lost", producer_id=4_711, producer_epoch=3, base_sequence=0, transactional=True)
        door.broker.append("t", 1, hanging, T0, guard=guard)
        door.broker.flush([("t", 1)])

    async def after(door: Door) -> None:
        await passes(lambda: len(noted_in(door)) == 1)
        (entry,) = noted_in(door)
        assert (entry.transactional_id, entry.producer_id, entry.epoch, entry.cause) == ("", 4_711, 3, "orphan")
        assert (entry.partitions, entry.started_ms, entry.open_ms) == (("t-1",), -1, -1)

    play(story, disk, transactions=NODE)
    play(after, disk, transactions=NODE)


async def ended_one(door: Door) -> None:
    who = await begin(door)
    assert await add(door, who, ADDED[0]) == [0]
    assert await send(door, who, b"a") == 0
    await ended(door, who)


def test_an_entry_names_a_hundred_partitions_and_counts_all() -> None:
    async def story(door: Door) -> None:
        door.broker.create_topic("many", 150)
        who = await begin(door)
        places = [("many", number) for number in range(150)]
        assert set(await add(door, who, *places)) == {0}
        await begin(door)
        await passes(lambda: len(noted_in(door)) == 1)
        (entry,) = noted_in(door)
        assert (len(entry.partitions), entry.partition_count) == (PARTITIONS_NAMED, 150)

    play(story, transactions=NODE)
