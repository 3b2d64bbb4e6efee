"""What a replay makes of a log in which many transactions are open at once."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    LogBatch,
    OwnerRecord,
    ProducerEpoch,
    ShardRecord,
    ShardRecordRead,
    ShardReplay,
    encode_owner_record,
)

ME, STRANGER = ProducerEpoch(7, 1), ProducerEpoch(8, 0)
KEYS = st.sampled_from([b"a", b"b", b"c"])
CLIENTS = st.integers(50, 53)


class Naive(ShardReplay):
    """By going through all that waits."""

    __slots__ = ()

    def _overtakes(self, records: Sequence[ShardRecord]) -> None:
        for record in records:
            key = record.key
            assert key is not None
            if self.to_repair.get(key, record.offset) < record.offset:
                del self.to_repair[key]
            for waiting in self.pending.values():
                if key in waiting and waiting[key].offset < record.offset:
                    del waiting[key]

    def _waits_no_more(self, key: bytes, producer_id: int) -> None:
        """Nothing is kept of that."""

    def must_repair(self) -> list[bytes]:
        return [key for key in self.to_repair if not any(key in waiting for waiting in self.pending.values())]


def log_of(steps: list[tuple[str, int, list[bytes]]]) -> list[LogBatch]:
    key, value, _ = encode_owner_record(OwnerRecord(1, 1, ME))
    log, end = [LogBatch(0, 1, ME, [ShardRecordRead(key, value, 0)])], 1
    for kind, client, keys in steps:
        records = [ShardRecordRead(each, b"v", end + at) for at, each in enumerate(keys)]
        after = end + max(len(keys), 1)
        if kind == "marks":
            log.append(LogBatch(end, end + 1, ProducerEpoch(client, 0), (), True, client % 2 == 0))
            after = end + 1
        elif kind == "commits":
            log.append(LogBatch(end, after, ProducerEpoch(client, 0), records, True))
        else:
            log.append(LogBatch(end, after, ME if kind == "plain" else STRANGER, records))
        end = after
    return log


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["plain", "void", "commits", "marks"]), CLIENTS, st.lists(KEYS, min_size=1, max_size=3)
        ),
        max_size=25,
    )
)
def test_what_counts_and_what_waits_is_as_by_going_through_it(steps: list[tuple[str, int, list[bytes]]]) -> None:
    quick, naive = ShardReplay(), Naive()
    for batch in log_of(steps):
        assert list(quick.replay_batch(batch)) == list(naive.replay_batch(batch))
        assert quick.pending == naive.pending
        assert quick.must_repair() == naive.must_repair()


def test_a_record_costs_no_more_where_many_transactions_are_open() -> None:
    """With a hundred it took a slice of 10,000 records 40 ms, on the loop."""

    class Untouched(dict[int, Any]):
        def values(self) -> Any:
            raise AssertionError("all that waits is gone through")

        items = __iter__ = values

    replay = ShardReplay()
    for batch in log_of([("commits", client, [b"a"]) for client in range(50, 150)]):
        replay.replay_batch(batch)
    replay.pending = Untouched(replay.pending)
    (*_, last) = log_of([("plain", 0, [b"x"])] * 200)
    assert len(replay.replay_batch(last._replace(base_offset=500, next_offset=501))) == 1
