"""The log of transactional ids: each record is a batch of one, and what a turn has decided for a shard is one write."""

import errno
from pathlib import PurePath

import pytest

from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.transaction_records import TRANSACTIONS_TOPIC
from muster.coordinator.runtime.transaction_shards import BrokerTransactionLog, transaction_topic
from muster.storage.broker.broker import Broker
from muster.storage.records.batch import read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, open_broker

SEGMENT = 1_000


class WatchedLog:
    """Of two shards, each with a record; and how often its segments are written to."""

    def __init__(self) -> None:
        self.disk = MemoryFiles()
        self.broker: Broker = open_broker(self.disk)
        topic = transaction_topic(2, SEGMENT)
        self.broker.create_topic(topic.name, topic.partitions, topic.configs, internal=True)
        self.log = BrokerTransactionLog(self.broker)
        for shard in range(2):
            self.log.append(shard, [(b"first", b"v", None)], [], T0)
        self.writes: list[str] = []
        self.disk.fault = self._note

    def _note(self, operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            self.writes.append(PurePath(path).parent.name)

    def append(self, *names: bytes, shard: int = 0, size: int = 1) -> None:
        self.log.append(shard, [(name, bytes(size), None) for name in names], [], T0)

    def kept(self, shard: int = 0) -> list[tuple[bytes, int]]:
        """The records, each with how many its batch has."""
        self.broker.flush([(TRANSACTIONS_TOPIC, shard)])
        fetched = self.broker.fetch(TRANSACTIONS_TOPIC, shard, 0, 1 << 20)
        return [(record.key or b"", each.count) for each in read_batches(fetched.records) for record in each.records()]


def test_what_a_turn_has_decided_is_one_write_to_each_shard() -> None:
    log = WatchedLog()
    names = [b"%d" % number for number in range(9)]
    log.append(*names[:4])
    log.append(*names, shard=1)
    log.append(b"alone")
    assert log.writes == ["__transaction_state-0", "__transaction_state-1", "__transaction_state-0"]
    assert log.kept() == [(name, 1) for name in (b"first", *names[:4], b"alone")]
    assert log.kept(1) == [(name, 1) for name in (b"first", *names)]


def test_a_turn_goes_over_the_end_of_a_segment() -> None:
    log = WatchedLog()
    names = [b"%d" % number for number in range(12)]
    log.append(*names, size=SEGMENT // 4)
    first = log.kept()  # of the first segment
    assert first == [(name, 1) for name in (b"first", *names)][: len(first)]
    assert log.broker.end_offset(TRANSACTIONS_TOPIC, 0) == 1 + len(names)
    assert len(log.broker.log(TRANSACTIONS_TOPIC, 0).segment_list.all) >= 4


def test_of_a_write_that_fails_nothing_is_kept() -> None:
    log = WatchedLog()

    def full(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "the disk is full", path)

    log.disk.fault = full
    log.disk.partial = 100
    with pytest.raises(LogFailed, match="the disk is full") as failed:
        log.append(b"a", b"b", b"c")
    assert failed.value.no_room
    log.disk.fault = None
    assert log.kept() == [(b"first", 1)]
    log.append(b"a", b"b")
    assert log.kept() == [(b"first", 1), (b"a", 1), (b"b", 1)]
