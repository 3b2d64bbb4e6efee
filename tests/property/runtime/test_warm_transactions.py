"""TX-N1: a standby that takes records of transactional ids in as they come is what a replay of the log gives."""

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.model.events import Loaded
from muster.coordinator.core.model.types import Limits
from muster.coordinator.replication.io.shards.replicated_shards import WarmTransactionShard
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.replay import LoadReport
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.runtime.transaction_records import encode_transaction
from muster.coordinator.runtime.transaction_shards import (
    TRANSACTIONS,
    TransactionCores,
    TransactionShardCore,
    replay_transactions,
)
from muster.coordinator.transactions.events import NO_CONNECTION
from muster.coordinator.transactions.records import TransactionExpired, TransactionState, TransactionStored
from muster.coordinator.transactions.state import TransactionLimits
from tests.support.led_bench import HeldAuthority
from tests.support.warm_logs import FollowedLog, MemoryTail

LIMITS = Limits()
STATES = [state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT]
PRODUCERS = {"a": 10, "b": 20, "c": 30}
"""No two ids ever have the same producer id."""


def stored(name: str, more: int, epoch: int, state: TransactionState, partitions: Any, updated_ms: int) -> Any:
    return TransactionStored(name, PRODUCERS[name] + more, epoch, 60_000, state, partitions, updated_ms, 1_000)


IDS = st.sampled_from(sorted(PRODUCERS))
RECORDS = st.one_of(
    st.builds(TransactionExpired, IDS),
    st.builds(
        stored,
        IDS,
        st.integers(0, 2),
        st.integers(0, 9),
        st.sampled_from(STATES),
        st.sampled_from([{}, {"t": (0,)}, {"t": (0, 1), "u": (3,)}]),
        st.integers(1_000, 2_000),
    ),
)


class TransactionLog(FollowedLog):
    """One shard of `__transaction_state`, which has no second half."""

    def tail(self, topic: str, shard: int) -> MemoryTail:
        tail = MemoryTail(self.groups[shard])
        self.tails.setdefault(shard, []).append(tail)
        return tail

    def write(self, *records: Any) -> None:
        self.append(0, [encode_transaction(each) for each in records], [], 0)


def cores() -> TransactionCores:
    return TransactionCores(TransactionLimits(), lambda: NO_CONNECTION)


def standby(log: TransactionLog, told: list[str]) -> WarmTransactionShard:
    core = cores()(LIMITS, 0)
    return WarmTransactionShard(0, core, log, nullcontext(), lambda shard, why: told.append(why))  # type: ignore[arg-type]


def hard(core: object) -> Any:
    assert isinstance(core, TransactionShardCore)
    state = core.shard.state
    stored = {name: known.stored for name, known in state.ids.items()}
    counts = {kind: count for kind, count in state.counts.items() if count}
    return stored, dict(state.by_producer), counts


@given(st.lists(st.tuples(RECORDS, st.integers(0, 3)), max_size=40), st.integers(1, 4))
def test_what_came_by_and_by_is_what_a_replay_gives(slices: list[tuple[Any, int]], portion: int) -> None:
    log, told = TransactionLog(1), list[str]()
    warm = standby(log, told)
    (tail,) = log.tails[0]
    tail.portion = portion
    for record, turns in slices:
        log.write(record)
        tail.committed = min(tail.committed + turns * portion, tail.part.end_offset)
        while warm.take_some():
            pass
    assert warm.take_the_rest(lambda: False)
    cold, report = cores()(LIMITS, 0), LoadReport()
    replay_transactions(log, 0, cold, report, lambda: False)
    assert hard(warm.core) == hard(cold)
    for core in (warm.core, cold):
        core.step(Loaded(), 5_000)
    assert warm.core.deadlines == cold.deadlines, "and it goes on in the same way"
    assert told == []


def test_a_record_that_cannot_be_read_makes_the_standby_useless_and_a_replay_passes_it_over() -> None:
    log, told = TransactionLog(1), list[str]()
    warm = standby(log, told)
    log.write(TransactionStored("a", 1, 0, 60_000, TransactionState.EMPTY))
    log.append(0, [(encode_transaction(TransactionExpired("b"))[0], b"\x00\x01\x00", -1)], [], 0)
    log.commit()
    assert not warm.take_some()
    assert warm.useless
    assert "offset 1" in told[0]
    engine = LeasedEngine(
        log,
        1,
        LIMITS,
        cores(),
        EngineOptions(kind=TRANSACTIONS),
        authority=HeldAuthority(),  # type: ignore[arg-type]
    )
    engine.take_over(0, warm, 10)
    assert engine.status(0) is ShardStatus.ACTIVE
    assert hard(engine.core(0))[0].keys() == {"a"}, "it is loaded from its log"


@pytest.mark.parametrize("more", [0, 2])
def test_a_takeover_needs_only_what_came_since(more: int) -> None:
    log = TransactionLog(1)
    warm = standby(log, [])
    log.write(*(TransactionStored(f"id-{number}", number, 0, 60_000, TransactionState.EMPTY) for number in range(9)))
    log.commit()
    while warm.take_some():
        pass
    log.write(
        *(TransactionStored(f"new-{number}", 50 + number, 0, 60_000, TransactionState.EMPTY) for number in range(more))
    )
    (tail,) = log.tails[0]
    assert tail.at == 9
    engine = LeasedEngine(
        log,
        1,
        LIMITS,
        cores(),
        EngineOptions(kind=TRANSACTIONS),
        authority=HeldAuthority(),  # type: ignore[arg-type]
    )
    engine.take_over(0, warm, 10)
    assert engine.core(0) is warm.core
    assert len(hard(engine.core(0))[0]) == 9 + more
