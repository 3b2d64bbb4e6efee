"""CL-G8: copies are followed as they grow, up to what is committed, and who is cut below what was taken in begins
anew."""

import asyncio

import pytest

from muster.coordinator.core.model.types import Limits
from muster.coordinator.replication.io.replica_logs import StoredLog
from muster.coordinator.replication.io.shards.replicated_shards import MAX_BEGINNINGS, StoredShardTail, WarmShards
from muster.coordinator.replication.protocol.cluster_metadata import OFFSETS, TopicPartition
from muster.coordinator.runtime.group_log import records_from
from muster.coordinator.runtime.ports import KeyValue, LogDamage, LogFailed
from muster.storage.records.batch import encode_batch, lost_records, read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.fakes.tiny_shard import TinyShard
from tests.support.warm_logs import FollowedLog, MemoryTail
from tests.unit.replication.io.test_stored_logs import ID, PLACE, logs_on, sent
from tests.unit.runtime.test_kept_ready import at, encode


class Followed:
    """A copy on a disk in memory, and its tail."""

    def __init__(self) -> None:
        self.disk = MemoryFiles()
        logs = logs_on(self.disk)
        self.log: StoredLog = logs.open(PLACE, ID)
        self.broker = self.log._broker
        self.tail = self.begin()

    def begin(self) -> StoredShardTail:
        return StoredShardTail(self.broker, *PLACE)

    def copied(self, *texts: bytes, epoch: int = 0, committed: bool = True) -> None:
        self.log.append_as_follower(sent(*texts, at=self.log.end, epoch=epoch))
        if committed:
            self.log.tell_high_watermark(self.log.end)

    def given(self, *, committed: bool = True) -> list[bytes | None]:
        values: list[bytes | None] = []
        while (portion := self.tail.more(committed=committed)) is not None:
            for item in portion:
                assert isinstance(item, KeyValue)
                values.append(item.value)
        return values


def test_g8_what_is_committed_comes_once_and_the_rest_when_it_is_asked_for() -> None:
    copy = Followed()
    assert copy.tail.stands()
    assert not copy.tail.behind
    assert copy.given() == []
    copy.copied(b"a", b"b")
    copy.copied(b"c", epoch=2, committed=False)
    assert copy.tail.behind
    assert copy.given() == [b"a", b"b"]
    assert not copy.tail.behind
    assert copy.given(committed=False) == [b"c"]
    assert copy.given(committed=False) == []
    assert copy.tail.stands()


def test_a_batch_of_which_only_a_part_is_committed_waits() -> None:
    copy = Followed()
    copy.copied(b"a")
    copy.copied(b"b", b"c", committed=False)
    copy.log.tell_high_watermark(2)
    assert copy.given() == [b"a"]
    copy.log.tell_high_watermark(3)
    assert copy.given() == [b"b", b"c"]


def test_f5_a_cut_above_what_was_given_changes_nothing() -> None:
    copy = Followed()
    copy.copied(b"a")
    copy.copied(b"b", committed=False)
    assert copy.given() == [b"a"]
    copy.log.cut(1)
    copy.copied(b"c", epoch=1)
    assert copy.tail.stands()
    assert copy.given() == [b"c"]


def test_f6_a_cut_below_what_was_given_is_seen_and_so_when_the_log_has_grown_again() -> None:
    for regrown in (False, True):
        copy = Followed()
        copy.copied(b"a")
        copy.copied(b"b")
        assert copy.given() == [b"a", b"b"]
        copy.log.cut(1)
        if regrown:
            copy.copied(b"x", b"y", b"z", epoch=1)
        assert not copy.tail.stands()
        copy.tail = copy.begin()
        assert copy.given() == ([b"a", b"x", b"y", b"z"] if regrown else [b"a"])


def test_f7_a_copy_that_begins_anew_is_seen() -> None:
    copy = Followed()
    copy.copied(b"a")
    assert copy.given() == [b"a"]
    copy.log.restart_at(7)
    assert not copy.tail.stands()


def test_what_is_damaged_is_told_as_such() -> None:
    flipped = bytearray(sent(b"aaaa", at=0) + sent(b"b", at=1))
    flipped[flipped.index(b"aaaa")] ^= 1
    damage, sound = records_from(0, list(read_batches(bytes(flipped))))
    assert isinstance(damage, LogDamage)
    assert ("checksum" in damage.sentence, damage.given_up) == (True, False)
    assert isinstance(sound, KeyValue)


def test_what_an_operator_took_out_is_told_as_given_up_and_what_lies_before_is_left_out() -> None:
    pairs = encode_batch([(0, b"k0", b"v0", ()), (0, b"k1", b"v1", ())], base_offset=3)
    taken, left = records_from(4, list(read_batches(lost_records(0, 3, 0) + bytes(pairs))))
    assert isinstance(taken, LogDamage)
    assert (taken.offset, taken.next_offset, taken.given_up) == (0, 3, True)
    assert left == KeyValue(b"k1", b"v1", 4)


def test_a_log_that_is_not_here_cannot_be_followed() -> None:
    with pytest.raises(LogFailed, match="nowhere-3"):
        StoredShardTail(Followed().broker, "nowhere", 3)


# -- the shards of a node


class Stage:
    """Two shards; `copied` are followed here."""

    def __init__(self) -> None:
        self.copied = {TopicPartition(OFFSETS, 0)}
        self.log = FollowedLog(2)
        self.warming = WarmShards(self.log, 2, lambda shard: TinyShard(Limits(), shard), lambda: self.copied)
        for shard in (0, 1):
            encoded = encode([at(1)])
            self.log.append(shard, encoded.groups, encoded.ledger, 0)

    def catch_up(self) -> None:
        for _ in range(2):  # to begin, and to go on
            while self.warming.take_some():
                pass
            for shard in self.log.tails:
                self.log.commit(shard)
        while self.warming.take_some():
            pass

    @property
    def tail(self) -> MemoryTail:
        return self.log.tails[0][-2]

    def offsets(self) -> list[int] | None:
        warm = self.warming.take_warm_shard(0)
        if warm is None:
            return None
        assert isinstance(warm.core, TinyShard)
        return list(warm.core.offsets.values())


def test_g8_those_copied_here_are_kept_ready_and_given_to_who_takes_them_over_once() -> None:
    stage = Stage()
    stage.catch_up()
    assert sorted(stage.log.tails) == [0]
    assert stage.offsets() == [1]
    assert stage.offsets() is None


def test_a_shard_that_is_copied_here_no_more_takes_no_memory() -> None:
    stage = Stage()
    stage.catch_up()
    stage.copied.clear()
    stage.catch_up()
    assert stage.offsets() is None


def test_f6_after_a_cut_it_begins_anew_and_not_without_end() -> None:
    stage = Stage()
    stage.catch_up()
    stage.tail.cut = True
    stage.tail.committed += 1  # that it is looked at
    stage.catch_up()
    stage.catch_up()
    assert stage.offsets() == [1]
    stage.catch_up()
    for _ in range(2 * MAX_BEGINNINGS):
        stage.tail.cut = True
        stage.tail.committed += 1
        stage.catch_up()
        stage.catch_up()
    assert stage.offsets() is None
    stage.catch_up()
    assert stage.offsets() == [1], "once it was led here it is tried again"


def test_what_is_of_no_use_is_not_begun_again_until_it_was_led_here() -> None:
    stage = Stage()
    stage.log.append(0, [KeyValue(b"\x00\x01\x00", b"")], [], 0)
    stage.catch_up()
    stage.catch_up()
    assert len(stage.log.tails[0]) == 2
    assert stage.offsets() is None
    stage.catch_up()
    assert len(stage.log.tails[0]) == 4


def test_in_a_loop_it_goes_by_itself() -> None:
    async def story() -> None:
        stage = Stage()
        task = asyncio.create_task(stage.warming.run())
        while not stage.warming._warm or stage.warming._warm[0].behind:
            await asyncio.sleep(0)
            for shard in stage.log.tails:
                stage.log.commit(shard)
        task.cancel()
        assert stage.offsets() is not None

    asyncio.run(story())
