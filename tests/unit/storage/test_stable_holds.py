"""Which transaction held the last stable offset of a log, from when to when, and how many records it had (TX-E3)."""

from typing import Any

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.logs import transactions
from muster.storage.logs.log import Log
from muster.storage.logs.transactions import StableHold, StableHolds
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch
from tests.unit.storage.test_transactions import begin, data_of, end, opened

PLACE = ("t", 0)
ONE, TWO = 11, 12


class Clock:
    now_ms = T0

    def __call__(self) -> int:
        return self.now_ms


def measured(disk: MemoryFiles | None = None) -> tuple[Broker, Log, Clock]:
    broker, clock = opened(disk), Clock()
    broker.holds.clock_ms = clock
    return broker, broker.log(*PLACE), clock


def short(holds: list[StableHold]) -> list[tuple[int, int, int, int]]:
    """(producer, first offset, records, for how long)"""
    return [(hold.producer_id, hold.first_offset, hold.records, hold.held_ms) for hold in holds]


def test_a_transaction_holds_readers_back_from_its_first_record_to_its_marker() -> None:
    broker, log, clock = measured()
    log.append(batch(b"before"), T0)
    begin(log, number=ONE, count=3)
    clock.now_ms += 40
    log.append(data_of(3, number=ONE, count=2), T0)
    assert log.current_hold() == StableHold(ONE, 0, 1, 5, T0, True)
    clock.now_ms += 60
    end(log, number=ONE, epoch=1, level=2)
    assert broker.holds.of(PLACE) == [StableHold(ONE, 0, 1, 5, T0, True, T0 + 100)]
    assert log.current_hold() is None


def test_of_several_the_oldest_holds_and_the_next_one_from_then_on() -> None:
    broker, log, clock = measured()
    begin(log, number=ONE)
    clock.now_ms += 10
    begin(log, number=TWO)
    clock.now_ms += 10
    end(log, number=ONE)
    hold = log.current_hold()
    assert hold is not None
    assert (hold.producer_id, hold.since_ms, hold.held_ms) == (TWO, T0 + 20, -1)
    clock.now_ms += 30
    end(log, number=TWO, commit=False)
    assert short(broker.holds.of(PLACE)) == [(ONE, 0, 1, 20), (TWO, 1, 1, 30)]


def test_one_that_ends_behind_an_older_one_never_held_anything() -> None:
    broker, log, clock = measured()
    begin(log, number=ONE)
    begin(log, number=TWO)
    clock.now_ms += 10
    end(log, number=TWO)
    clock.now_ms += 10
    end(log, number=ONE)
    assert short(broker.holds.of(PLACE)) == [(ONE, 0, 1, 20)]


def test_records_without_a_transaction_ask_for_no_time() -> None:
    """Whoever does not use transactions pays for none of it."""
    broker, log, _ = measured()

    def never() -> int:
        raise AssertionError("the clock was read")

    broker.holds.clock_ms = never
    log.append(batch(b"a"), T0)
    log.append(batch(b"b", producer_id=ONE, producer_epoch=0, base_sequence=0), T0)
    assert log.current_hold() is None


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_open_before_the_start_is_measured_from_the_start_and_says_so(clean: bool) -> None:
    disk = MemoryFiles()
    broker, log, clock = measured(disk)
    begin(log, number=ONE)
    begin(log, number=TWO)
    log.flush()
    broker.close() if clean else disk.kill()
    broker, log, clock = measured(disk)
    hold = log.current_hold()
    assert hold is not None
    assert (hold.producer_id, hold.epoch, hold.exactly) == (ONE, 0, False)
    clock.now_ms += 50
    end(log, number=ONE)
    end(log, number=TWO)
    first, second = broker.holds.of(PLACE)
    assert (first.producer_id, first.exactly) == (ONE, False)
    assert (second.producer_id, second.since_ms, second.exactly, second.held_ms) == (TWO, T0 + 50, True, 0)
    assert first.records == (-1 if clean else 1), "a snapshot does not count records"


def test_of_a_log_the_last_hundred_are_kept_and_of_a_node_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "HOLDS_OF_NODE", 150)
    holds = StableHolds(Clock())

    def note(place: str, *numbers: int) -> None:
        for number in numbers:
            holds.note((place, 0), StableHold(number, 0, number, 1, T0, True, T0 + 1))

    note("a", *range(120))
    assert [hold.producer_id for hold in holds.of(("a", 0))] == list(range(20, 120))
    note("b", *range(200, 250))
    note("c", *range(300, 310))
    assert [hold.producer_id for hold in holds.of(("a", 0))] == list(range(30, 120)), "the oldest log loses them"
    note("a", 500)
    assert len(holds.of(("a", 0))) == 91
    assert len(holds.of(("b", 0))) == 49
    assert holds.of_producer(305) == [(("c", 0), holds.of(("c", 0))[5])]
    holds.forget(("a", 0))
    assert holds.of(("a", 0)) == []
    note("d", *range(600, 700))
    assert len(holds.of(("b", 0))) + len(holds.of(("c", 0))) + len(holds.of(("d", 0))) == 150


def test_a_topic_that_is_made_again_has_no_holds_of_the_one_before() -> None:
    broker, log, _ = measured()
    begin(log, number=ONE)
    end(log, number=ONE)
    assert len(broker.holds.of(PLACE)) == 1
    broker.delete_topic("t")
    assert broker.holds.of(PLACE) == []


def test_a_log_that_is_made_while_the_node_runs_is_measured_too() -> None:
    broker, _, clock = measured()
    broker.create_topic("later", 1)
    log: Any = broker.log("later", 0)
    begin(log, number=ONE)
    clock.now_ms += 5
    end(log, number=ONE)
    assert short(broker.holds.of(("later", 0))) == [(ONE, 0, 1, 5)]
