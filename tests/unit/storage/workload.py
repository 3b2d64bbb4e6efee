"""A scripted life of a broker that notes what it was promised, and the check that the promise was kept."""

from dataclasses import dataclass, field

from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import KEPT_BATCHES
from muster.storage.records.markers import encode_marker
from muster.storage.topics.data_dir import CLEAN_SHUTDOWN
from muster.storage.types import AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, guard_for, open_broker, read_all

SMALL = {
    "log__segment__bytes": 250,
    "log__index__interval__bytes": 100,
    "log__retention__check__interval__ms": 1,
    "log__cleaner__backoff__ms": 1,
    "log__segment__delete__delay__ms": 0,
    "log__flush__offset__checkpoint__interval__ms": 1,
    "log__cleaner__min__cleanable__ratio": 0,
}


class Killed(BaseException):
    """The process is gone in the middle of a call."""


@dataclass
class Promise:
    """What was acknowledged: records by offset, deletions, log starts."""

    plain: dict[int, bytes] = field(default_factory=dict)
    keyed: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    plain_start: int = 0
    idempotent: int = 0
    topics: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)


def put(broker: Broker, promise: Promise, number: int) -> None:
    """One turn: an append to each topic, a flush, then the acknowledgement."""
    text = b"value %03d" % number
    # Some keys are written again and again, others once and must outlive every compaction.
    key = b"key %d" % (number % 3) if number % 2 else b"once %d" % number
    done = broker.append("plain", 0, batch(text, at=T0 + number), T0 + number)
    kept = broker.append("keyed", 0, batch(text, key=key, at=T0 + number), T0 + number)
    sent = batch(text, producer_id=5, producer_epoch=0, base_sequence=promise.idempotent, transactional=True)
    broker.append("txn", 0, sent, T0 + number, guard=guard_for(broker.log("txn", 0), sent))
    if number % 4 == 3:
        marker = encode_marker(
            commit=number % 8 == 3, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=T0
        )
        broker.append("txn", 0, marker, T0, origin=AppendOrigin.COORDINATOR)
    broker.flush()
    promise.plain[done.base_offset] = text
    promise.keyed[key] = (kept.base_offset, text)
    promise.idempotent += 1


def live(files: MemoryFiles, promise: Promise, rounds: int = 14) -> None:
    """Everything a node does with its disk: topics, records, upkeep, a restart."""
    broker = open_broker(files, **SMALL)
    for name, configs in (
        ("plain", {"retention.bytes": "600"}),
        ("keyed", {"cleanup.policy": "compact"}),
        ("txn", {}),
    ):
        if name not in broker.topics():
            broker.create_topic(name, 1, configs)
        promise.topics.add(name)
    for number in range(rounds):
        put(broker, promise, len(promise.plain))
        if number % 3 == 2:
            broker.tick(T0 + 10 * number)
            promise.plain_start = broker.start_offset("plain", 0)
    broker.create_topic("short-lived", 1)
    promise.topics.add("short-lived")
    promise.deleting.add("short-lived")
    broker.delete_topic("short-lived")
    promise.topics.discard("short-lived")
    promise.plain_start = max(promise.plain_start, broker.start_offset("plain", 0))
    before = broker.start_offset("plain", 0) + 1
    broker.delete_records("plain", 0, before)
    promise.plain_start = before
    broker.close()


def check(files: MemoryFiles, promise: Promise) -> None:
    """Open what is left and hold it against what was promised."""
    crashed = not files.exists(f"/data/{CLEAN_SHUTDOWN}")
    broker = open_broker(files, **SMALL)
    assert not [state for state in broker.recovered().values() if state.damage]
    topics = set(broker.topics())
    assert promise.topics - topics <= promise.deleting
    for name, look in (("plain", check_plain), ("keyed", check_keyed), ("txn", check_producer)):
        if name in promise.topics:
            look(broker, promise)
    if crashed and promise.idempotent:
        known = broker.log("txn", 0).producers.producers[5].batches
        assert len(known) >= min(KEPT_BATCHES, promise.idempotent), "of those before a segment's end, too"
    broker.close()
    again = open_broker(files, **SMALL)
    assert set(again.topics()) == topics
    assert again.recovered() == {}
    again.close()


def check_plain(broker: Broker, promise: Promise) -> None:
    log = broker.log("plain", 0)
    assert log.start_offset >= promise.plain_start
    found = read_all(log)
    assert [record.offset for record in found] == list(range(log.start_offset, log.end_offset))
    texts = {record.offset: record.value for record in found}
    kept = {offset: text for offset, text in promise.plain.items() if offset >= log.start_offset}
    assert {offset: texts[offset] for offset in kept} == kept
    assert log.end_offset >= max(promise.plain, default=-1) + 1


def check_keyed(broker: Broker, promise: Promise) -> None:
    latest = {record.key: (record.offset, record.value) for record in read_all(broker.log("keyed", 0))}
    for key, (offset, text) in promise.keyed.items():
        # A later, unacknowledged value may have made it; an older one must not have come back.
        assert latest[key] == (offset, text) or latest[key][0] > offset


def check_producer(broker: Broker, promise: Promise) -> None:
    log = broker.log("txn", 0)
    if not promise.idempotent:
        return
    last = log.producers.producers[5].last
    assert last is not None
    assert last.last_sequence >= promise.idempotent - 1
    end = log.end_offset
    for known in log.producers.producers[5].batches:
        again = batch(b"again", producer_id=5, producer_epoch=0, base_sequence=known.last_sequence, transactional=True)
        assert broker.append("txn", 0, again, T0).last_offset == known.last_offset
    assert log.end_offset == end


def survive(files: MemoryFiles, promise: Promise) -> bool:
    """Live until something fails; whether it went through."""
    try:
        live(files, promise)
    except (Killed, StorageError, OSError):
        return False
    return True
