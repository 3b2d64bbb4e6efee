"""Each kind of end is explained by what happened: who, why, for how long, and what it held back (TX-E4)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.config import Settings
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.observability.views.transactions import (
    FENCED,
    NEW_EPOCH,
    OPERATOR,
    ORPHAN,
    PRODUCER,
    TIMED_OUT,
    UNKNOWN,
    CurrentTransaction,
    ExplainedEnd,
    HeldOffset,
    IdHistory,
    explain_id,
    tell_end,
)
from muster.coordinator.runtime.abort_records import AbortEntry
from muster.coordinator.server.transactions.transaction_history import merge_ends
from muster.coordinator.transactions.effects import (
    DescribeTransactionReply,
    EndCause,
    EndDecision,
    TerminateTransactionReply,
    TransactionEnd,
)
from muster.coordinator.transactions.events import RequestOrigin, TerminateTransaction
from tests.fakes.memory_files import MemoryFiles
from tests.support.kafka.door import Door, play
from tests.unit.kafka.test_kafka_transactions import ADDED, add, begin, end, ended, send
from tests.unit.storage.logs import T0, batch
from tests.unit.transactions.test_abort_journal import noted_in, passes

NODE = Settings(transaction_state_log_num_partitions=1)
CLIENT = RequestOrigin("127.0.0.1", "", "tests")
HELD = "It held readers of committed records back"


async def history(door: Door, name: str = "app") -> tuple[IdHistory, list[str]]:
    """Once its shard is loaded."""
    assert door.transactions is not None
    while True:
        try:
            _, known, sentences = await door.transactions.history.read(name)
        except CoordinatorError as refusal:
            if refusal.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            await asyncio.sleep(0)
        else:
            return known, sentences


async def completed(door: Door, count: int = 1) -> tuple[IdHistory, list[str]]:
    """Once so many ends are known."""
    while True:
        known, sentences = await history(door)
        if len(known.ended) >= count and known.current is None:
            return known, sentences


async def begun(door: Door, *places: tuple[str, int], **more: Any) -> tuple[int, int]:
    who = await begin(door, **more)
    assert set(await add(door, who, *(places or ADDED[:1]))) == {0}
    assert await send(door, who, b"a", b"b") == 0
    return who


# Stories: what a node tells of what clients did
# ----------------------------------------------


def test_a_commit_and_an_abort_are_their_producer_s() -> None:
    async def story(door: Door) -> None:
        who = await begun(door)
        await ended(door, who)
        assert await add(door, who, *ADDED) == [0, 0]
        await ended(door, who, commit=False)
        known, sentences = await completed(door, 2)
        aborted, committed = known.ended
        assert [(each.committed, each.cause, each.by, each.of) for each in known.ended] == [
            (False, PRODUCER, CLIENT, CLIENT),
            (True, PRODUCER, CLIENT, CLIENT),
        ]
        assert (aborted.partitions, committed.partitions, committed.epoch) == (2, 1, who[1])
        assert [(hold.topic, hold.partition, hold.offset, hold.records) for hold in committed.holds] == [("t", 0, 0, 2)]
        assert aborted.holds == (), "it had no record anywhere"
        assert sentences[0] == "'app' has no transaction open."
        assert "aborted by its producer (client 'tests' at 127.0.0.1); it was open for" in sentences[1]
        assert sentences[1].endswith("in 2 partitions.")
        assert "committed by its producer" in sentences[2]

    play(story, transactions=NODE)


def test_a_timeout_names_the_setting_and_whose_it_was() -> None:
    async def story(door: Door) -> None:
        given = await door.ask("InitProducerId", 4, transactional_id="app", transaction_timeout_ms=50)
        who = given.producer_id, given.producer_epoch
        assert await add(door, who, ADDED[0]) == [0]
        known, sentences = await completed(door)
        (timed_out,) = known.ended
        assert (timed_out.cause, timed_out.by, timed_out.of, timed_out.timeout_ms) == (
            TIMED_OUT,
            RequestOrigin(),
            CLIENT,
            50,
        )
        assert "(client 'tests' at 127.0.0.1) did not end it within its transaction.timeout.ms of 50 ms" in sentences[1]
        assert await end(door, who) in (47, 90)

    play(story, transactions=NODE)


def test_a_fence_names_the_new_instance_and_an_operator_himself() -> None:
    async def story(door: Door) -> None:
        await begun(door)
        who = await begin(door)
        assert await add(door, who, ADDED[1]) == [0]
        coordinator, operator = door.transactions, RequestOrigin("10.0.0.9", "muster-python 0.1.0")
        assert coordinator is not None
        fresh_id = await coordinator.draw_producer_id()
        await coordinator.ask(
            "app", lambda number: TerminateTransaction(number, "app", fresh_id, operator), TerminateTransactionReply
        )
        known, sentences = await completed(door, 2)
        terminated, fenced = known.ended
        assert (fenced.cause, fenced.by, fenced.of, fenced.epoch) == (FENCED, CLIENT, CLIENT, 0)
        assert [hold.offset for hold in fenced.holds] == [0]
        assert (terminated.cause, terminated.by, terminated.of) == (OPERATOR, operator, CLIENT)
        assert "by an operator (at 10.0.0.9, muster-python 0.1.0)" in sentences[1]
        assert "a new instance (client 'tests' at 127.0.0.1) was initialized with this transactional.id" in sentences[2]
        assert "typical of a restart" in sentences[2]

    play(story, transactions=NODE)


def test_what_is_open_is_told_with_what_it_holds_back_and_who_is_before_it() -> None:
    async def story(door: Door) -> None:
        first = await begun(door, *ADDED)
        assert await send(door, first, b"c", first=0, place=ADDED[1]) == 0
        other = await begin(door, "other")
        assert await add(door, other, ADDED[0], name="other") == [0]
        data = batch(b"x", producer_id=other[0], producer_epoch=other[1], base_sequence=0, transactional=True)
        guard = door.broker.log("t", 0).make_guard(*other)
        door.broker.append("t", 0, data, T0, guard=guard)
        door.broker.flush()
        known, sentences = await history(door)
        assert known.current is not None
        assert [(hold.partition, hold.offset, hold.behind) for hold in known.current.holds] == [(0, 0, 3), (1, 0, 1)]
        assert "It belongs to its producer (client 'tests' at 127.0.0.1)." in sentences[0]
        assert sentences[1].startswith("It holds readers of committed records back in t-0 at offset 0 for ")
        assert sentences[1].endswith("; they cannot read 3 records there yet.")
        behind, sentences = await history(door, "other")
        assert behind.current is not None
        assert (behind.current.holds, behind.current.behind_others) == ((), 1)
        assert "In 1 partition an older transaction holds them back." in sentences

    play(story, transactions=NODE)


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_restart_aborts_are_known_and_a_commit_is_told_as_far_as_its_record_goes(killed: bool) -> None:
    disk, seen = MemoryFiles(), list[ExplainedEnd]()

    async def story(door: Door) -> None:
        await begun(door)
        await begin(door)
        known, _ = await completed(door)
        seen.extend(known.ended)
        await passes(lambda: len(noted_in(door)) == 1)
        if killed:
            disk.kill()

    async def later(door: Door) -> None:
        known, sentences = await history(door)
        (fenced,) = known.ended
        assert replace(fenced, completed_ms=-1) == replace(seen[0], completed_ms=-1, holds=())
        assert "a new instance (client 'tests' at 127.0.0.1)" in sentences[1]
        assert "only the last state and aborts by the coordinator are kept" in sentences[-1]
        who = await begun(door)
        await ended(door, who)
        await completed(door, 2)

    async def last(door: Door) -> None:
        known, sentences = await history(door)
        committed, fenced = known.ended
        assert (committed.committed, committed.cause, committed.by) == (True, UNKNOWN, RequestOrigin())
        assert (committed.decided_ms, committed.partitions) == (-1, -1)
        assert "By whom is not known" in sentences[1]
        assert (fenced.cause, fenced.by) == (FENCED, CLIENT)

    play(story, disk, transactions=NODE)
    play(later, disk, transactions=NODE)
    play(last, disk, transactions=NODE)


def test_a_timeout_that_completed_before_the_restart_is_one_end_and_not_two() -> None:
    disk = MemoryFiles()

    async def story(door: Door) -> None:
        given = await door.ask("InitProducerId", 4, transactional_id="app", transaction_timeout_ms=50)
        assert await add(door, (given.producer_id, given.producer_epoch), ADDED[0]) == [0]
        await completed(door)
        await passes(lambda: len(noted_in(door)) == 1)

    async def later(door: Door) -> None:
        known, _ = await history(door)
        (timed_out,) = known.ended
        assert (timed_out.cause, timed_out.of, timed_out.partitions) == (TIMED_OUT, CLIENT, 1)
        assert timed_out.completed_ms >= timed_out.decided_ms

    play(story, disk, transactions=NODE)
    play(later, disk, transactions=NODE)


def test_an_orphan_of_a_known_producer_is_told_of_its_id() -> None:
    disk = MemoryFiles()

    async def story(door: Door) -> None:
        who = await begin(door)
        await begin(door)
        log = door.broker.log("t", 2)
        hanging = batch(b"x", producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True)
        log.append(hanging, T0, guard=log.make_guard(*who))
        log.flush()

    async def later(door: Door) -> None:
        await passes(lambda: len(noted_in(door)) == 1)
        known, sentences = await history(door)
        (orphan,) = known.ended
        assert (orphan.cause, orphan.producer_id, orphan.epoch, orphan.place) == (ORPHAN, 0, 0, "t-2")
        assert "records in t-2 of producer id 0, epoch 0, were of a transaction that no coordinator" in sentences[1]

    play(story, disk, transactions=NODE)
    play(later, disk, transactions=NODE)


def test_an_id_that_nobody_used_is_refused() -> None:
    async def story(door: Door) -> None:
        await begin(door)
        with pytest.raises(CoordinatorError) as refused:
            await history(door, "never")
        assert refused.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    play(story, transactions=NODE)


# Sentences
# ---------

NOW = 1_760_000_000_000
SINCE = NOW - 3_600_000
OF = RequestOrigin("10.0.0.5", "librdkafka 2.16.0", "billing")


def told(cause: str, *, loaded_ms: int = SINCE, unread: str = "", **more: Any) -> str:
    made: dict[str, Any] = {
        "started_ms": NOW - 100_000,
        "decided_ms": NOW - 40_000,
        "completed_ms": NOW - 39_990,
        "timeout_ms": 60_000,
        "partitions": 1,
        "of": OF,
        "by": OF,
    }
    end = ExplainedEnd(4, 7, more.pop("committed", False), cause, **(made | more))
    return tell_end(end, IdHistory("app", NOW, loaded_ms, unread=unread))


def test_a_timeout_in_time_needs_no_reason() -> None:
    sentence = told(TIMED_OUT)
    assert "did not end it within its transaction.timeout.ms of 1 min 0 s; it was open for 1 min 0 s" in sentence
    assert "meanwhile" not in sentence
    assert "late" not in sentence
    assert "not known here; a producer that needs longer has to set a larger transaction.timeout.ms" in sentence


def test_a_node_that_stood_still_tells_why_a_timeout_came_late() -> None:
    sentence = told(TIMED_OUT, started_ms=NOW - 130_000, stood_still_ms=29_000)
    assert "it was open for 1 min 30 s" in sentence
    assert "The node stood still for 29.00 s meanwhile, which does not count." in sentence


def test_a_start_of_the_node_tells_why_a_timeout_came_late() -> None:
    assert "The node loaded the id meanwhile" in told(TIMED_OUT, started_ms=NOW - 130_000, loaded_ms=NOW - 50_000)


def test_a_late_timeout_without_a_fact_is_not_explained() -> None:
    assert "Why that came 30.00 s late is not known." in told(TIMED_OUT, started_ms=NOW - 130_000)


def test_a_clock_that_was_set_back_is_told_and_no_wrong_time() -> None:
    assert "The node's clock was set back meanwhile, so that time is too short." in told(
        TIMED_OUT, started_ms=NOW - 45_000
    )
    sentence = told(PRODUCER, started_ms=NOW + 5_000)
    assert "how long it was open is not known, for the node's clock was set back meanwhile" in sentence
    assert "ms;" not in sentence


def test_two_hosts_with_one_id_are_named_both() -> None:
    sentence = told(FENCED, by=RequestOrigin("10.0.0.6", "librdkafka 2.16.0", "billing"))
    assert "a new instance (client 'billing' at 10.0.0.6, librdkafka 2.16.0)" in sentence
    assert "The one before (client 'billing' at 10.0.0.5, librdkafka 2.16.0) is fenced" in sentence
    assert "typical" not in sentence


def test_a_producer_that_began_again_ended_it_himself() -> None:
    assert "because its producer (client 'billing' at 10.0.0.5, librdkafka 2.16.0) asked for a new epoch" in told(
        NEW_EPOCH
    )


def test_what_is_not_known_is_told_as_not_known() -> None:
    nobody = RequestOrigin()
    sentence = told(UNKNOWN, by=nobody, of=nobody)
    assert "Neither why nor by whom is known" in sentence
    assert "__aborts has no entry of it" in sentence
    assert "__aborts cannot be read (Input/output error)" in told(UNKNOWN, unread="Input/output error")
    assert "By whom is not known" in told(UNKNOWN, committed=True)
    assert "(address not known)" in told(FENCED, by=nobody, of=nobody)
    assert "typical" not in told(FENCED, by=nobody, of=nobody), "two unknown addresses are not the same one"


def test_holds_are_told_longest_first_and_short_ones_not() -> None:
    holds = tuple(HeldOffset("t", number, 10, held_ms, True, 5) for number, held_ms in enumerate((9_000, 8_000, 999)))
    sentence = told(TIMED_OUT, holds=holds)
    assert f"{HELD} in t-0 at offset 10 for 9.00 s (it had 5 records there), t-1 at offset 10 for 8.00 s" in sentence
    assert "t-2" not in sentence
    assert HELD not in told(PRODUCER, holds=holds[2:])
    earlier = (HeldOffset("t", 0, 10, 9_000, False, -1),)
    assert f"{HELD} in t-0 at offset 10 for at least 9.00 s." in told(TIMED_OUT, holds=earlier)
    many = tuple(HeldOffset("t", number, 10, 9_000, True, 5) for number in range(9))
    assert "and in 6 more partitions." in told(TIMED_OUT, holds=many)


def sentences_of(current: CurrentTransaction | None, now_ms: int = NOW, since_ms: int = SINCE) -> list[str]:
    return explain_id(IdHistory("app", now_ms, since_ms, current))


def test_an_open_transaction_of_an_unknown_producer_says_so() -> None:
    current = CurrentTransaction(NOW - 30_000, 60_000, 2, RequestOrigin())
    (sentence, *_) = sentences_of(current)
    assert (
        "That is 30.00 s; the coordinator aborts it once it is open for its transaction.timeout.ms of 1 min 0 s."
        in (sentence)
    )
    assert "Where its producer is, is not known: it was initialized before" in sentence
    (late, *_) = sentences_of(replace(current, started_ms=NOW - 90_000))
    assert "longer than its transaction.timeout.ms" in late
    (back, *_) = sentences_of(replace(current, started_ms=NOW + 9_000))
    assert "still to come by the node's clock, which was set back meanwhile" in back


def test_a_decided_transaction_names_the_partitions_that_it_waits_for() -> None:
    end = ExplainedEnd(4, 7, False, TIMED_OUT, NOW - 1_000, of=OF, started_ms=NOW - 61_000, timeout_ms=60_000)
    current = CurrentTransaction(
        NOW - 61_000, 60_000, 5, OF, end=end, unmarked=("t-0", "t-1", "t-2", "t-3"), unmarked_count=5
    )
    first, second, *_ = sentences_of(current)
    assert first.startswith("The transaction of 'app' is decided and not complete. ")
    assert "Its marker is not durable yet in t-0, t-1, t-2 and 2 more partitions." in second


def test_an_id_that_is_forgotten_is_told_from_its_entries() -> None:
    (sentence,) = explain_id(IdHistory("app", NOW, -1))
    assert "does not know the transactional id 'app' now" in sentence
    _, last = explain_id(IdHistory("app", NOW, SINCE, unread="Input/output error"))
    assert "What the coordinator aborted before the start is not known" in last


# What belongs together
# ---------------------

REPLY = DescribeTransactionReply(state="Empty", producer_id=4, epoch=9, known_since_ms=SINCE)
ENTRY = AbortEntry("app", 4, 7, "operator", NOW - 40_000, by=OF, started_ms=NOW - 50_000, partitions=("t-0",))
END = TransactionEnd(4, 8, False, EndDecision(), NOW - 50_000, NOW - 40_000, NOW - 39_000, 60_000, 1)


def merged(reply: DescribeTransactionReply, *entries: AbortEntry) -> list[tuple[str, bool, int]]:
    ends: Sequence[ExplainedEnd] = merge_ends(reply, entries, lambda place: True)
    return [(end.cause, end.committed, end.decided_ms) for end in ends]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(REPLY, [(OPERATOR, False, NOW - 40_000)], id="only the entry"),
        pytest.param(replace(REPLY, ends=(END,)), [(OPERATOR, False, NOW - 40_000)], id="decided in an earlier life"),
        pytest.param(
            replace(REPLY, ends=(replace(END, decided_ms=NOW - 30_000),)),
            [(UNKNOWN, False, NOW - 30_000), (OPERATOR, False, NOW - 40_000)],
            id="another end",
        ),
        pytest.param(
            replace(REPLY, state="CompleteAbort", started_ms=NOW - 50_000, updated_ms=NOW - 39_000),
            [(OPERATOR, False, NOW - 40_000)],
            id="the record of the same end",
        ),
        pytest.param(
            replace(REPLY, state="CompleteCommit", started_ms=NOW - 50_000, updated_ms=NOW - 39_000),
            [(UNKNOWN, True, -1), (OPERATOR, False, NOW - 40_000)],
            id="the record of a commit",
        ),
        pytest.param(
            replace(REPLY, state="PrepareAbort", started_ms=NOW - 50_000, updated_ms=NOW - 40_000),
            [],
            id="under way",
        ),
    ],
)
def test_an_entry_is_told_once(reply: DescribeTransactionReply, expected: list[tuple[str, bool, int]]) -> None:
    assert merged(reply, ENTRY) == expected


def test_a_known_cause_is_not_replaced_by_an_entry() -> None:
    mine = replace(END, decision=EndDecision(EndCause.FENCED, OF, OF, 7))
    assert merged(replace(REPLY, ends=(mine,)), ENTRY) == [(FENCED, False, NOW - 40_000)]
