"""KB-S4 and KB-S7: what a replay makes of a shard's log, and what must be written again."""

from collections.abc import Sequence

import pytest

from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    KEPT_KEY,
    LogBatch,
    OwnerRecord,
    ProducerEpoch,
    RepairPass,
    ShardRecordRead,
    ShardReplay,
    decode_owner_record,
    encode_owner_record,
)

OLD, NEW, OTHER = ProducerEpoch(7, 0), ProducerEpoch(7, 1), ProducerEpoch(9, 0)
CLIENT = ProducerEpoch(50, 0)


@pytest.mark.parametrize("turn", [b"Infinity", b"NaN", b"[" * 100_000, b'"x"', b"{}", b"9" * 5_000, b"9" * 4_300])
def test_an_owner_record_that_nobody_can_read_is_none(turn: bytes) -> None:
    """Whoever may write to the topic may have put it there: it is to stop no node, let alone all."""
    value = b'{"node":1,"producer_id":7,"epoch":0,"turn":' + turn + b"}"
    assert decode_owner_record(ShardRecordRead(b"\xffowner 1 7 0", value, 0)) is None


class Log:
    """Batches one behind another, as somebody would read them."""

    def __init__(self) -> None:
        self.seen: list[LogBatch] = []
        self.end = 0

    def plain(self, producer: ProducerEpoch, *pairs: tuple[str, str | None], transactional: bool = False) -> None:
        self.raw(
            producer, [(key.encode(), None if value is None else value.encode()) for key, value in pairs], transactional
        )

    def raw(
        self, producer: ProducerEpoch, pairs: Sequence[tuple[bytes, bytes | None]], transactional: bool = False
    ) -> None:
        records = [ShardRecordRead(key, value, self.end + at) for at, (key, value) in enumerate(pairs)]
        self.seen.append(LogBatch(self.end, self.end + len(pairs), producer, records, transactional))
        self.end += len(pairs)

    def owner(self, turn: int, producer: ProducerEpoch, node: int = 1) -> OwnerRecord:
        owner = OwnerRecord(turn, node, producer)
        key, value, _ = encode_owner_record(owner)
        self.raw(producer, [(key, value)])
        return owner

    def marker(self, producer: ProducerEpoch, *, commits: bool) -> None:
        self.seen.append(LogBatch(self.end, self.end + 1, producer, (), True, commits))
        self.end += 1

    def replayed(self) -> tuple[ShardReplay, dict[str, str]]:
        replay, state = ShardReplay(), dict[str, str]()
        for record in replay.take_all(self.seen):
            assert record.key is not None
            if record.value is None:
                state.pop(record.key.decode(), None)
            else:
                state[record.key.decode()] = record.value.decode()
        return replay, state


def test_s4a_what_is_older_than_the_first_owner_record_counts() -> None:
    log = Log()
    log.plain(OTHER, ("a", "1"))
    owner = log.owner(1, OLD)
    log.plain(OLD, ("b", "2"))
    replay, state = log.replayed()
    assert state == {"a": "1", "b": "2"}
    assert (replay.owner, replay.before, replay.fenced_records, replay.position) == (owner, None, 0, 3)
    assert not replay.unfenced


def test_s4a_a_batch_of_anybody_but_the_latest_owner_is_void() -> None:
    log = Log()
    log.owner(1, OLD)
    log.plain(OLD, ("a", "1"))
    log.owner(2, OTHER)
    log.plain(OLD, ("a", "late"), ("b", "late"))
    log.plain(OTHER, ("c", "3"))
    replay, state = log.replayed()
    assert state == {"a": "1", "c": "3"}
    assert (replay.fenced_records, replay.must_repair()) == (2, [b"a", b"b"])


def test_s4_of_two_that_took_the_same_turn_the_first_did() -> None:
    log = Log()
    log.owner(1, OLD)
    first = log.owner(2, NEW)
    log.owner(2, OTHER)
    log.plain(OTHER, ("a", "1"))
    log.plain(NEW, ("b", "2"))
    replay, state = log.replayed()
    assert replay.owner == first
    assert state == {"b": "2"}


def test_an_owner_record_speaks_for_its_own_producer_only() -> None:
    log = Log()
    owner = log.owner(1, OLD)
    key, value, _ = encode_owner_record(OwnerRecord(2, 2, NEW))
    log.raw(OTHER, [(key, value)])
    log.raw(NEW, [(b"\xffowner 3 7 1", b"not JSON")])
    assert log.replayed()[0].owner == owner


def test_s4b_a_transaction_counts_at_its_marker_and_only_if_it_commits() -> None:
    log = Log()
    log.owner(1, OLD)
    log.plain(CLIENT, ("a", "txn"), ("b", "txn"), transactional=True)
    log.plain(OLD, ("c", "1"))
    assert log.replayed()[1] == {"c": "1"}
    log.marker(CLIENT, commits=False)
    assert log.replayed()[1] == {"c": "1"}
    log.plain(CLIENT, ("a", "again"), transactional=True)
    log.marker(ProducerEpoch(CLIENT.id, 1), commits=True)
    assert log.replayed()[1] == {"c": "1", "a": "again"}


def test_s4c_what_is_open_at_the_end_is_handed_over() -> None:
    log = Log()
    log.plain(CLIENT, ("a", "1"), transactional=True)
    log.plain(ProducerEpoch(51, 3), ("b", "2"), transactional=True)
    replay, state = log.replayed()
    assert state == {}
    assert {id_: list(waiting) for id_, waiting in replay.pending.items()} == {50: [b"a"], 51: [b"b"]}


def test_s4b_what_was_written_behind_a_transactions_record_stays() -> None:
    """A cleaner keeps the newer one, and says the same then."""
    log = Log()
    log.owner(1, OLD)
    log.plain(CLIENT, ("a", "txn"), ("b", "txn"), transactional=True)
    log.plain(OLD, ("a", "2"))
    log.marker(CLIENT, commits=True)
    assert log.replayed()[1] == {"a": "2", "b": "txn"}


def test_s4b_of_two_transactions_the_later_record_stays() -> None:
    log = Log()
    log.plain(CLIENT, ("a", "early"), transactional=True)
    log.plain(ProducerEpoch(51, 0), ("a", "late"), transactional=True)
    log.marker(ProducerEpoch(51, 0), commits=True)
    log.marker(CLIENT, commits=True)
    assert log.replayed()[1] == {"a": "late"}


def test_e6_a_commit_does_not_bring_back_what_was_deleted_meanwhile() -> None:
    """Once cleaned the log has the tombstone, and then nothing at all."""
    log = Log()
    log.owner(1, OLD)
    log.plain(CLIENT, ("a", "txn"), transactional=True)
    log.plain(OLD, ("a", None))
    log.marker(CLIENT, commits=True)
    assert log.replayed()[1] == {}


def test_s7_what_was_written_since_needs_no_repair() -> None:
    log = Log()
    log.owner(1, OLD)
    log.owner(2, OTHER)
    log.plain(OLD, ("a", "late"), ("b", "late"))
    log.plain(OTHER, ("a", "2"))
    assert log.replayed()[0].must_repair() == [b"b"]


def test_s7_a_key_that_a_transaction_waits_for_is_left() -> None:
    log = Log()
    log.owner(1, OLD)
    log.plain(CLIENT, ("a", "txn"), transactional=True)
    log.owner(2, OTHER)
    log.plain(OLD, ("a", "late"), ("b", "late"))
    assert log.replayed()[0].must_repair() == [b"b"]
    log.marker(CLIENT, commits=True)
    replay, state = log.replayed()
    assert state == {"a": "txn"}
    assert sorted(replay.must_repair()) == [b"a", b"b"]


def test_s7_the_truth_of_a_key_is_what_counts_for_it() -> None:
    log = Log()
    log.owner(1, OLD)
    log.plain(OLD, ("a", "1"), ("b", "1"), ("c", "1"))
    log.plain(OLD, ("a", "2"), ("c", None))
    log.owner(2, OTHER)
    log.plain(OLD, ("a", "late"), ("c", "late"), ("d", "late"))
    replay, _ = log.replayed()
    truth = RepairPass(replay.must_repair(), 0, replay.position)
    assert not truth.done
    truth.replay_batches(log.seen)
    assert truth.done
    assert truth.values == {b"a": b"2", b"c": None, b"d": None}


def test_f6_who_does_not_fence_the_one_before_is_unsettled_until_it_says_so() -> None:
    log = Log()
    log.owner(1, NEW)
    log.owner(2, ProducerEpoch(7, 2))
    assert not log.replayed()[0].unfenced
    log.owner(3, ProducerEpoch(7, 0))
    assert log.replayed()[0].unfenced
    log.owner(4, ProducerEpoch(7, 1))
    assert log.replayed()[0].unfenced
    log.raw(ProducerEpoch(7, 0), [(KEPT_KEY, b"")])
    assert log.replayed()[0].unfenced
    log.raw(ProducerEpoch(7, 1), [(KEPT_KEY, b"")])
    assert not log.replayed()[0].unfenced


def test_a_batch_is_taken_once() -> None:
    log = Log()
    log.plain(OLD, ("a", "1"))
    replay = ShardReplay()
    assert len(replay.replay_batch(log.seen[0])) == 1
    assert len(replay.replay_batch(log.seen[0])) == 0
