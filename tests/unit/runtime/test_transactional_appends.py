"""Transactions of groups on their way into the log: what it is asked before, the batches, and when answers leave."""

from collections.abc import Sequence
from typing import Any

import pytest

from muster.coordinator.core.model.events import Event, OffsetCommit, TxnEnded, TxnOffsetCommit
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime import shards
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.group_log import BrokerGroupLog, FramedEntries, encode_batches
from muster.coordinator.runtime.ports import LogWithoutTransactions, TxnProducer
from muster.coordinator.runtime.replay import GROUPS_TOPIC, replay_shard
from muster.coordinator.runtime.shards import ShardStatus
from muster.storage.broker.broker import Broker
from muster.storage.records.batch import BatchView, read_batches
from muster.storage.records.markers import read_marker
from tests.fakes.memory_files import MemoryFiles
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.sim.checkers.replay import what_waits

NOW_MS = 7
NONE = ErrorCode.NONE


class Groups:
    """One shard on a real log."""

    def __init__(self, slice_positions: int = 500) -> None:
        self.broker = Broker("/data", files=MemoryFiles(), clock_ms=lambda: NOW_MS)
        self.log = BrokerGroupLog(self.broker, 1, 1 << 20)
        self.number = 0
        self.bugs: list[str] = []
        options = EngineOptions(on_bug=lambda script, error: self.bugs.append(f"{script}: {error!r}"))
        self.engine = Engine(self.log, 1, Limits(slice_positions=slice_positions), options=options)
        self.engine.load(NOW_MS)
        self.flush()

    def guard(self, producer: int, epoch: int = 0) -> object | None:
        return self.broker.log(GROUPS_TOPIC, 0).make_guard(producer, epoch)

    def plain(self, offset: int) -> OffsetCommit:
        self.number += 1
        return OffsetCommit(self.number, "g", "", None, -1, {("t", 0): CommittedOffset(offset)})

    def write(
        self, producer: int, *offsets: int, epoch: int = 0, guard: object | None = None, generation: int = -1
    ) -> TxnOffsetCommit:
        self.number += 1
        positions = {("t", place): CommittedOffset(offset) for place, offset in enumerate(offsets)}
        return TxnOffsetCommit(self.number, "g", "", None, generation, positions, producer, epoch, guard)

    def end(self, producer: int, *, epoch: int = 0, commit: bool = True, coordinator: int = 0) -> TxnEnded:
        self.number += 1
        return TxnEnded(self.number, producer, epoch, commit, coordinator)

    def turn(self, *asked: Event) -> list[ErrorCode]:
        """The codes that were told at once."""
        for event in asked:
            assert self.engine.submit(0, event)
        self.engine.turn(NOW_MS)
        return self.told()

    def told(self) -> list[ErrorCode]:
        return [reply.code for _, reply in self.engine.take_released().replies]

    def flush(self) -> list[ErrorCode]:
        if (job := self.engine.flush_job()) is not None:
            job.run()
            self.engine.flushed(job)
        return self.told()

    def asked(self, *asked: Event) -> list[ErrorCode]:
        """The same once all is durable."""
        return [*self.turn(*asked), *self.flush()]

    def batches(self) -> list[BatchView]:
        return list(read_batches(self.broker.fetch(GROUPS_TOPIC, 0, 0, 1 << 20).records))

    @property
    def core(self) -> Shard:
        core = self.engine.core(0)
        assert isinstance(core, Shard)
        return core

    def committed(self) -> dict[int, int]:
        return {part: value.offset for (_, part), value in self.core.state.offsets.get("g", {}).items()}


def producers(batches: Sequence[BatchView]) -> list[tuple[int, int, int, bool, bool]]:
    return [(b.producer_id, b.producer_epoch, b.base_sequence, b.transactional, b.control) for b in batches]


PLAIN = (-1, -1, -1, False, False)


def test_a_turn_with_transactions_is_several_batches_in_the_order_decided() -> None:
    groups = Groups()
    assert (
        groups.turn(
            groups.plain(1),
            groups.plain(2),
            groups.write(50, 3, 3, guard=groups.guard(50)),
            groups.write(50, 4),
            groups.plain(5),
            groups.end(50),
            groups.plain(6),
        )
        == []
    ), "nothing is told before all of it is durable"
    assert groups.flush() == [NONE] * 7
    batches = groups.batches()
    in_transaction, marker = (50, 0, -1, True, False), (50, 0, -1, True, True)
    # Each request of a transaction finds in the log what was decided before it.
    assert producers(batches) == [PLAIN, in_transaction, in_transaction, PLAIN, marker, PLAIN]
    assert [batch.count for batch in batches] == [2, 2, 1, 1, 1, 1]
    told = read_marker(batches[4])
    assert told is not None
    assert (told.aborted, told.coordinator_epoch) == (False, 0)
    assert groups.committed() == {0: 6, 1: 3}


def test_what_the_log_would_refuse_is_refused_before_the_group_is_looked_at() -> None:
    groups = Groups()
    assert groups.asked(groups.write(50, 1, generation=3)) == [ErrorCode.INVALID_TXN_STATE], (
        "its coordinator was not asked"
    )
    guard = groups.guard(50)
    assert groups.asked(groups.write(50, 1, guard=guard, generation=3)) == [ErrorCode.ILLEGAL_GENERATION]
    assert groups.asked(groups.write(50, 1, guard=guard)) == [NONE], "the guard holds still"
    assert groups.asked(groups.end(50, epoch=1, coordinator=4)) == [NONE]
    assert groups.asked(groups.write(50, 2, guard=guard)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert groups.asked(groups.write(50, 2, epoch=1, guard=guard)) == [ErrorCode.INVALID_TXN_STATE]
    assert groups.asked(groups.end(50, epoch=0, coordinator=4)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert groups.asked(groups.end(50, epoch=1, coordinator=3)) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert groups.asked(groups.end(50, epoch=1, coordinator=4)) == [NONE], "once more changes nothing"
    assert groups.committed() == {0: 1}
    assert groups.engine.status(0) is ShardStatus.ACTIVE
    assert groups.engine.metrics.failures == 0
    assert groups.bugs == []


def test_a_marker_of_the_same_turn_voids_a_guard() -> None:
    groups = Groups()
    guard = groups.guard(50)
    assert groups.asked(groups.end(50), groups.write(50, 1, guard=guard)) == [NONE, ErrorCode.INVALID_TXN_STATE]
    assert what_waits(groups.core) == []


def test_a_refusal_waits_for_what_was_decided_before_it() -> None:
    """It tells of an epoch that a crash could take back."""
    groups = Groups()
    assert groups.turn(groups.end(50, epoch=1), groups.end(50, epoch=0)) == []
    assert groups.flush() == [NONE, ErrorCode.INVALID_PRODUCER_EPOCH]


def test_a_large_commit_is_one_batch_and_its_marker_comes_behind_it() -> None:
    groups = Groups(slice_positions=2)
    large = groups.write(50, *range(35), guard=groups.guard(50))
    assert groups.turn(groups.plain(9), large, groups.end(50), groups.write(51, 1), groups.plain(8)) == []
    heard = []
    for _ in range(20):
        heard += groups.asked()
    assert sorted(heard) == [NONE] * 4 + [ErrorCode.INVALID_TXN_STATE]
    batches = groups.batches()
    assert [batch.count for batch in batches if batch.transactional and not batch.control] == [35]
    assert [batch.control for batch in batches].count(True) == 1
    places = {(batch.producer_id, batch.control): at for at, batch in enumerate(batches)}
    assert places[50, False] < places[50, True]
    assert groups.committed()[34] == 34


def test_a_commit_that_kafka_would_not_take_is_several_batches_of_its_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shards, "WHOLE_BYTES", 1)
    groups = Groups(slice_positions=2)
    groups.turn(groups.write(50, *range(35), guard=groups.guard(50)), groups.end(50))
    heard = []
    while groups.engine.pending:
        heard += groups.asked()
    assert heard == [NONE, NONE]
    batches = groups.batches()
    assert [(batch.count, batch.control) for batch in batches] == [(8, False)] * 4 + [(3, False), (1, True)]
    assert {(batch.producer_id, batch.transactional) for batch in batches} == {(50, True)}
    assert groups.committed() == {place: place for place in range(35)}
    again = Shard(Limits(), 0)
    replay_shard(groups.log, 0, again)
    assert again.state.offsets == groups.core.state.offsets


def test_a_large_batch_is_the_one_that_would_have_been_made_at_once() -> None:
    records = [(b"k%d" % number, b"v" * number, -1) for number in range(50)]
    draft = FramedEntries()
    draft.extend(records[:20])
    draft.extend(records[20:])
    assert list(encode_batches(draft, 7, producer=TxnProducer(50, 3))) == list(
        encode_batches(records, 7, producer=TxnProducer(50, 3))
    )
    parts = list(encode_batches(draft, 7, 500, TxnProducer(50, 3)))
    assert len(parts) > 1
    assert {producers([view])[0] for part in parts for view in read_batches(part)} == {(50, 3, -1, True, False)}


def test_after_a_restart_what_waits_is_what_waited() -> None:
    groups = Groups()
    groups.asked(groups.plain(1), groups.write(50, 2, 2, guard=groups.guard(50)))
    groups.asked(groups.write(51, 3, guard=groups.guard(51)))
    again = Shard(Limits(), 0)
    report = replay_shard(groups.log, 0, again)
    assert (report.malformed, report.groups) == (0, 4)
    assert what_waits(again) == what_waits(groups.core) != []
    assert again.committed_to() == groups.core.committed_to()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_an_append_that_fails_drops_the_shard_and_the_log_has_the_last_word(failing: int) -> None:
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits())
    engine.load(NOW_MS)
    groups = Groups()
    log.failing_appends = {log.appends + failing}
    for event in (groups.plain(1), groups.write(50, 2), groups.end(50)):
        engine.submit(0, event)
    engine.turn(NOW_MS)
    codes = [reply.code for _, reply in engine.take_released().replies]
    away = ErrorCode.NOT_COORDINATOR
    assert sorted(codes) == sorted([away, away, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    engine.turn(NOW_MS)
    assert engine.status(0) is ShardStatus.ACTIVE
    core = engine.core(0)
    assert isinstance(core, Shard)
    committed = {part: value.offset for (_, part), value in core.state.offsets.get("g", {}).items()}
    assert (committed, len(what_waits(core))) == [({}, 0), ({0: 1}, 0), ({0: 1}, 1)][failing - 1]


class Plain(LogWithoutTransactions, MemoryGroupLog):
    """Takes none."""


def test_a_log_without_transactions_refuses_them() -> None:
    engine = Engine(Plain(1), 1, Limits())
    engine.load(NOW_MS)
    groups = Groups()
    asked: list[Any] = [groups.write(50, 2), groups.end(50)]
    for event in asked:
        engine.submit(0, event)
    engine.turn(NOW_MS)
    codes = [reply.code for _, reply in engine.take_released().replies]
    assert codes == [ErrorCode.UNSUPPORTED_VERSION] * 2


def test_a_log_without_room_refuses_what_it_would_have_to_write() -> None:
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits())
    engine.load(NOW_MS)
    groups = Groups()
    log.full = True
    for event in (groups.plain(1), groups.end(50)):
        engine.submit(0, event)
    engine.turn(NOW_MS)  # here it finds out
    engine.turn(NOW_MS)
    asked: list[Any] = [groups.write(50, 2), groups.end(50)]
    for event in asked:
        engine.submit(0, event)
    engine.turn(NOW_MS)
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    codes = [reply.code for _, reply in engine.take_released().replies]
    assert codes == [ErrorCode.NOT_COORDINATOR, elsewhere, ErrorCode.COORDINATOR_NOT_AVAILABLE, elsewhere]
    log.full = False
    engine.turn(NOW_MS + 10_000)
    engine.submit(0, again := groups.end(50))
    engine.turn(NOW_MS + 10_000)
    job = engine.flush_job()
    assert job is not None
    job.run()
    engine.flushed(job)
    assert [(number, reply.code) for number, reply in engine.take_released().replies] == [(again.request_id, NONE)]
