"""Who holds readers of committed records back for too long is named, with what ends it; metrics count every end."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from muster.coordinator.config import Settings
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.transactions.stable_offset_watch import (
    GRACE_MS,
    LATE,
    FindOwner,
    LateHold,
    OpenOwner,
    StableOffsetWatch,
    tell_late,
)
from muster.coordinator.transactions.events import RequestOrigin
from muster.coordinator.transactions.records import TransactionExpired, TransactionState, TransactionStored
from muster.coordinator.transactions.state import TransactionLimits, TransactionsState, apply_transaction
from muster.storage.broker.broker import Broker
from muster.storage.logs.transactions import StableHold
from tests.support.kafka.door import Door, play
from tests.unit.kafka.test_kafka_transactions import ADDED, add, begin, ended, send
from tests.unit.storage.test_stable_holds import ONE, Clock, measured
from tests.unit.storage.test_transactions import begin as begin_in_log
from tests.unit.storage.test_transactions import end as end_in_log
from tests.unit.transactions.test_abort_journal import passes

MAX_TIMEOUT_MS = 900_000
LIMIT_MS = MAX_TIMEOUT_MS + GRACE_MS
NODE = Settings(transaction_state_log_num_partitions=1)
OWNER = OpenOwner("billing", RequestOrigin("10.0.0.5", "librdkafka 2.16.0"))


def watch_of(broker: Broker, clock: Clock, owner: FindOwner) -> tuple[StableOffsetWatch, Conditions]:
    watch, conditions = StableOffsetWatch(broker, clock, MAX_TIMEOUT_MS, owner), Conditions(clock)
    watch._conditions = conditions
    return watch, conditions


def test_a_hold_is_late_after_the_longest_timeout_and_five_minutes() -> None:
    broker, log, clock = measured()
    watch, conditions = watch_of(broker, clock, lambda *_: None)
    begin_in_log(log, number=ONE, count=3)
    log.flush()
    clock.now_ms += LIMIT_MS
    asyncio.run(watch.look())
    assert (watch.late, conditions.sentence(LATE), watch.lags()) == ([], None, {("t", 0): 3})
    clock.now_ms += 1
    asyncio.run(watch.look())
    assert conditions.sentence(LATE) == (
        "readers of committed records stop at offset 0 of t-0 for 20 min 0 s, 3 records before its end: a transaction "
        f"of producer id {ONE}, epoch 0, that no transactional id of this node will end; `muster transactions abort "
        "--topic t --partition 0 --start-offset 0` ends it"
    )
    end_in_log(log, number=ONE)
    log.flush()
    asyncio.run(watch.look())
    assert (watch.late, conditions.sentence(LATE)) == ([], None)


def test_one_that_a_coordinator_has_open_is_named_by_its_id() -> None:
    broker, log, clock = measured()
    asked = []

    def owner(*what: object) -> OpenOwner:
        asked.append(what)
        return OWNER

    watch, conditions = watch_of(broker, clock, owner)
    begin_in_log(log, number=ONE)
    clock.now_ms += LIMIT_MS + 1
    asyncio.run(watch.look())
    assert asked == [(ONE, 0, ("t", 0))]
    told = conditions.sentence(LATE) or ""
    assert "the transaction of transactional id 'billing'" in told
    assert "its producer (at 10.0.0.5, librdkafka 2.16.0)" in told
    assert "`muster transactions force-terminate --transactional-id billing` ends it" in told


def test_of_many_the_oldest_three_are_named() -> None:
    hold = StableHold(ONE, 0, 5, 1, 0, False)
    late = [LateHold(("t", number), hold, 2_000_000, 1, None) for number in range(5)]
    told = tell_late(late)
    assert told.count("stop at offset 5") == 3
    assert told.endswith("; and so in 2 more partitions")
    assert "for at least 33 min 20 s" in told


def test_a_node_of_a_cluster_knows_not_whether_another_one_will_end_it() -> None:
    told = tell_late([LateHold(("t", 0), StableHold(ONE, 0, 5, 1, 0, True), 2_000_000, 1, None)], alone=False)
    assert "of no transactional id that this node coordinates" in told
    assert "`muster transactions find-hanging --topic t --partition 0`" in told
    assert "transactions abort" not in told


# On a node
# ---------


def test_a_node_knows_whose_transaction_it_is_that_holds_readers_back() -> None:
    async def story(door: Door) -> None:
        coordinator = door.transactions
        assert coordinator is not None
        assert coordinator.figures() is None
        who = await begin(door)
        assert await add(door, who, ADDED[0]) == [0]
        client = RequestOrigin("127.0.0.1", "", "tests")
        assert coordinator._owner_of_open(*who, ADDED[0]) == OpenOwner("app", client)
        assert coordinator._owner_of_open(who[0], who[1] + 1, ADDED[0]) is None
        assert coordinator._owner_of_open(*who, ADDED[1]) is None
        assert coordinator._owner_of_open(4_711, 0, ADDED[0]) is None
        await ended(door, who)
        assert coordinator._owner_of_open(*who, ADDED[0]) is None

    play(story, transactions=NODE)


def test_every_end_is_counted_by_result_and_cause() -> None:
    async def story(door: Door) -> None:
        coordinator = door.transactions
        assert coordinator is not None
        who = await begin(door)
        assert await send(door, who, b"a") == 48
        assert await add(door, who, ADDED[0]) == [0]
        assert await send(door, who, b"a") == 0
        await coordinator._watch.look()
        figures = coordinator.figures()
        assert figures is not None
        assert (figures.states["Ongoing"], figures.stable_lags) == (1, {ADDED[0]: 1})
        assert figures.verification_failures == 1
        await ended(door, who)
        assert await add(door, who, ADDED[0]) == [0]
        await ended(door, who, commit=False)
        assert await add(door, who, ADDED[0]) == [0]
        await begin(door)

        def ends() -> dict[tuple[str, str], int]:
            told = coordinator.figures()
            assert told is not None
            return dict(told.ends)

        await passes(lambda: sum(ends().values()) == 3)
        assert ends() == {
            ("committed", "producer"): 1,
            ("aborted", "producer"): 1,
            ("aborted", "fenced by a new instance"): 1,
        }
        figures = coordinator.figures()
        assert figures is not None
        assert (figures.states["Empty"], figures.states["Ongoing"], figures.seconds.count) == (1, 0, 3)

    play(story, transactions=NODE)


def test_partitions_are_no_series_where_they_are_not_wanted() -> None:
    async def story(door: Door) -> None:
        coordinator = door.transactions
        assert coordinator is not None
        who = await begin(door)
        assert await add(door, who, ADDED[0]) == [0]
        assert await send(door, who, b"a") == 0
        await coordinator._watch.look()
        figures = coordinator.figures()
        assert figures is not None
        assert figures.stable_lags == {}

    play(story, transactions=replace_settings(metrics_granularity="topic"))


def replace_settings(**more: object) -> Settings:
    return Settings(**(NODE.model_dump(include={"transaction_state_log_num_partitions"}) | more))


# The counts of states
# --------------------

RECORD = TransactionStored("A", 1, 0, 60_000, TransactionState.EMPTY)
facts = some.lists(some.tuples(some.sampled_from("ABC"), some.sampled_from([None, *TransactionState][:7])), max_size=40)


@given(facts)
def test_counts_of_states_are_those_of_all_ids(steps: list[tuple[str, TransactionState | None]]) -> None:
    state = TransactionsState(TransactionLimits())
    for name, told in steps:
        fact = TransactionExpired(name) if told is None else replace(RECORD, transactional_id=name, state=told)
        apply_transaction(state, fact)
        found = [known.stored.state for known in state.ids.values()]
        assert {each: count for each, count in state.counts.items() if count} == {
            each: found.count(each) for each in found
        }
