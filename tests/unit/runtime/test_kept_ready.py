"""CL-G8: a shard that is kept ready, what makes it of no use, and how it is taken over."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

from muster.coordinator.core.model.records import DelayStored, OffsetStored, RebalanceDecided, Record
from muster.coordinator.core.model.types import Limits, StoredOffset
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.kafka_records import encode
from muster.coordinator.runtime.leased import SLICE, LeasedEngine, WarmShard
from muster.coordinator.runtime.own_records import ledger_key
from muster.coordinator.runtime.ports import Entry, KeyValue, LogDamage, LogFailed
from muster.coordinator.runtime.shards import ShardStatus
from tests.fakes.tiny_shard import TinyShard, entry
from tests.support.led_bench import HeldAuthority
from tests.support.warm_logs import FollowedLog


def at(offset: int, partition: int = 0) -> OffsetStored:
    return OffsetStored("g", "t", partition, StoredOffset(offset, -1, "", 5))


class Copy:
    """A shard that another node leads; what it wrote is here, and `commit` says how much of it counts."""

    def __init__(self, *records: Record) -> None:
        self.log = FollowedLog(1)
        self.told: list[tuple[int, str]] = []
        self.core = TinyShard(Limits(), 0)
        self.warm = WarmShard(0, self.core, self.log, nullcontext(), lambda *said: self.told.append(said))
        self.write(*records)

    def write(self, *records: Record) -> None:
        encoded = encode(records)
        self.log.append(0, encoded.groups, encoded.ledger, 0)

    def catch_up(self) -> None:
        self.log.commit()
        while self.warm.take_some():
            pass

    def take_over(self) -> LeasedEngine:
        """This node leads it."""
        engine = LeasedEngine(self.log, 1, Limits(), TinyShard, authority=HeldAuthority())
        engine.take_over(0, self.warm, 10)
        assert engine.status(0) is ShardStatus.ACTIVE
        return engine


def offsets(engine: LeasedEngine) -> dict[tuple[str, str, int], int]:
    core = engine.core(0)
    assert isinstance(core, TinyShard)
    return core.offsets


def test_g8_what_is_committed_is_taken_in_and_nothing_above() -> None:
    copy = Copy(at(1), RebalanceDecided("g", entry(3, 0)))
    assert not copy.warm.behind
    assert not copy.warm.take_some()
    assert copy.core.offsets == {}
    copy.log.commit()
    copy.write(at(2))
    assert copy.warm.behind
    copy.log.tails[0][0].portion = 1
    while copy.warm.take_some():
        pass
    assert copy.core.offsets == {("g", "t", 0): 1}
    assert copy.core.rounds == {"g": 3}
    assert not copy.warm.behind


def test_g8_whoever_leads_takes_the_rest_to_the_logs_end_and_reads_nothing_twice() -> None:
    copy = Copy(at(1))
    copy.catch_up()
    copy.write(at(2, 1), RebalanceDecided("g", entry(4, 0)))
    engine = copy.take_over()
    assert engine.core(0) is copy.core
    assert offsets(engine) == {("g", "t", 0): 1, ("g", "t", 1): 2}
    assert copy.core.rounds == {"g": 4}
    assert copy.log.reads == 0
    assert copy.log.flushes == 1
    report = engine.report(0)
    assert (report.groups, report.ledger, report.records) == (2, 1, 3)
    assert dict(report.committed_to) == copy.core.committed_to()


def test_a_slice_is_no_longer_than_it_may_be() -> None:
    copy = Copy(*(at(offset, offset) for offset in range(3 * SLICE)))
    copy.log.tails[0][0].portion = 10**6
    copy.log.commit()
    for taken in (SLICE, 2 * SLICE, 3 * SLICE):
        assert copy.warm.take_some()
        assert len(copy.core.offsets) == taken
    assert not copy.warm.take_some()


def useless(copy: Copy, spoil: Callable[[Copy], None], why: str) -> None:
    """It is said once, and the takeover reads the whole log."""
    copy.catch_up()
    spoil(copy)
    copy.catch_up()
    copy.catch_up()
    assert copy.warm.useless
    assert [why in sentence for _, sentence in copy.told] == [True], copy.told
    engine = copy.take_over()
    assert engine.core(0) is not copy.core
    assert offsets(engine)["g", "t", 0] == 1
    assert copy.log.reads == 1
    assert len(copy.told) == 1


def test_what_is_damaged_is_left_to_a_load() -> None:
    def damage(copy: Copy) -> None:
        copy.log.tails[0][1].damage.append(LogDamage(7, "its checksum is wrong", 8))
        copy.write(at(2, 1), RebalanceDecided("g", entry(3, 0)))

    useless(Copy(at(1)), damage, "offset 7: its checksum is wrong")


def test_a_record_that_says_nothing_is_left_to_a_load() -> None:
    def write(groups: list[Entry], ledger: list[Entry]) -> Callable[[Copy], None]:
        return lambda copy: copy.log.append(0, groups, ledger, 0)

    useless(Copy(at(1)), write([KeyValue(b"\x00\x01\x00", b"")], []), "field of 2 bytes at byte 2")
    useless(Copy(at(1)), write([], [KeyValue(b"{}", b"")]), "group: Field required")


def test_what_an_older_version_kept_in_the_diary_is_left_to_a_load() -> None:
    delay = DelayStored("d", "1,2", 500)

    def write(copy: Copy) -> None:
        copy.log.append(0, [], [KeyValue(ledger_key("d", 0, "delay"), encode([delay]).groups[0][1])], 0)

    useless(Copy(at(1)), write, "an older version kept there")


def test_a_mistake_costs_a_load_and_no_more() -> None:
    def break_it(copy: Copy) -> None:
        copy.core.apply = lambda record: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        copy.write(at(1))

    useless(Copy(at(1)), break_it, "cannot be applied: ZeroDivisionError")


def test_f6_what_was_cut_below_it_is_not_taken_over() -> None:
    copy = Copy(at(1))
    copy.catch_up()
    copy.log.tails[0][0].cut = True
    engine = copy.take_over()
    assert copy.warm.cut
    assert engine.core(0) is not copy.core
    assert copy.told == []


def test_f6_a_cut_while_the_last_of_it_is_read_is_seen() -> None:
    copy = Copy(at(1))
    tail = copy.log.tails[0][0]
    more = tail.more

    def cut_then(*, committed: bool) -> Iterator[KeyValue | LogDamage] | None:
        found = more(committed=committed)
        tail.cut = found is None
        return found

    tail.more = cut_then  # type: ignore[method-assign]
    assert copy.take_over().core(0) is not copy.core


def test_who_is_given_up_while_the_rest_is_read_ends_soon() -> None:
    copy = Copy(*(at(offset, offset) for offset in range(20)))
    engine = LeasedEngine(
        copy.log, 1, Limits(), TinyShard, options=EngineOptions(loads_elsewhere=True), authority=HeldAuthority()
    )
    engine.take_over(0, copy.warm, 10)
    job = engine.load_job()
    assert job is not None
    engine.leave(0, "another leads", 11)
    try:
        job.run()
    except LogFailed as error:
        engine.load_failed(job, error)
    assert len(copy.core.offsets) < 20
    assert engine.status(0) is ShardStatus.UNLOADED


def test_a_shard_that_falls_is_read_from_its_log() -> None:
    copy = Copy(at(1))
    engine = copy.take_over()
    engine.leave(0, "no lease", 20)
    engine.load_shard(0, 21)
    assert engine.core(0) is not copy.core
    assert offsets(engine) == {("g", "t", 0): 1}
