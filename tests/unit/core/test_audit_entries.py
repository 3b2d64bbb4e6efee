"""What is told of operators is bounded: positions in an entry, entries of a group, deleted groups of a shard."""

from muster.coordinator.core.model import events
from muster.coordinator.core.model.plan import entry_bytes, shorten_entry
from muster.coordinator.core.model.types import CommittedOffset, Limits, Outcome, RebalanceEntry
from muster.coordinator.core.requests.audit_entries import MAX_ENTRIES, MAX_FAREWELLS, MAX_POSITIONS, TOGETHER_MS
from muster.coordinator.core.shard import Shard

LIMITS = Limits()


def commit(number: int, group: str, partitions: int, at: int = 7) -> events.OffsetCommit:
    offsets = {("t", partition): CommittedOffset(at) for partition in range(partitions)}
    return events.OffsetCommit(number, group, "", None, -1, offsets, operator="ann", by_tool=True)


def entries(shard: Shard, group: str) -> list[RebalanceEntry]:
    return list(shard.ledgers[group].entries.values())


def test_of_very_many_positions_some_are_told_and_the_others_counted() -> None:
    shard = Shard(LIMITS, 0)
    effects = shard.step(commit(1, "g", 10_000), 10)
    while effects.rest is not None:
        effects = shard.step(effects.rest, 10)
    (entry,) = entries(shard, "g")
    assert len(entry.positions) == MAX_POSITIONS
    assert entry.more_positions == 10_000 - MAX_POSITIONS
    assert entry.detail == "ann set 10000 positions"


def test_slices_of_one_request_are_one_entry() -> None:
    shard = Shard(LIMITS, 0)
    shard.step(commit(1, "g", 600), 10)
    for number, first in enumerate(range(0, 600, 200)):
        places = tuple(("t", partition) for partition in range(first, first + 200))
        shard.step(events.OffsetDelete(2 + number, "g", places, "ann"), 11)
    (entry,) = entries(shard, "g")
    assert len(entry.positions) == MAX_POSITIONS
    assert {change.after for change in entry.positions} == {None}, "what the first slice set, it deleted"
    assert entry.more_positions == 400 + 400, "changes beyond are counted, not compared"


def test_an_operator_who_goes_on_for_ever_pushes_no_rebalance_out() -> None:
    shard = Shard(LIMITS, 0)
    for number in range(MAX_ENTRIES + 30):
        shard.step(commit(number, "g", 1, at=number), number * TOGETHER_MS)
    told = entries(shard, "g")
    assert len(told) == MAX_ENTRIES
    assert told[-1].positions[0].after == MAX_ENTRIES + 29


def test_a_clock_that_was_set_back_puts_nothing_together() -> None:
    shard = Shard(LIMITS, 0)
    shard.step(commit(1, "g", 1, at=1), 10 * TOGETHER_MS)
    shard.step(commit(2, "g", 1, at=2), 5 * TOGETHER_MS)
    assert [entry.number for entry in entries(shard, "g")] == [1, 2]


def test_of_too_many_deleted_groups_the_oldest_is_forgotten() -> None:
    shard = Shard(LIMITS, 0)
    for number in range(MAX_FAREWELLS + 5):
        shard.step(commit(2 * number, f"g{number}", 1), 10)
        shard.step(events.DeleteGroup(2 * number + 1, f"g{number}", operator="bob"), 20)
    assert len(shard.state.farewells) == len(shard.ledgers) == MAX_FAREWELLS
    assert "g4" not in shard.ledgers
    (last,) = entries(shard, "g5")
    assert last.outcome is Outcome.GROUP_DELETED


def test_a_group_that_is_deleted_again_and_again_is_told_of_once() -> None:
    shard = Shard(LIMITS, 0)
    for number in range(50):
        shard.step(commit(2 * number, "g", 1), 10)
        shard.step(events.DeleteGroup(2 * number + 1, "g", operator="bob"), 20)
    (entry,) = entries(shard, "g")
    assert entry.number == 100, "of each life the change of its position, and its end"
    assert shard.state.farewells == {"g": 100}


def test_positions_give_way_where_the_log_takes_little() -> None:
    shard = Shard(LIMITS, 0)
    shard.step(commit(1, "g", 300), 10)
    (entry,) = entries(shard, "g")
    cut = shorten_entry(entry, 4_000)
    assert entry_bytes(cut) <= 4_000
    assert (cut.positions, cut.more_positions) == ((), 300)
