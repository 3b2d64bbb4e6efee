"""Positions in transactions: what a shard knows live is at every moment what a replay of its log says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import TxnOffsetCommitReply
from muster.coordinator.core.model.events import TxnMarkerRead, TxnOffsetCommit, TxnOffsetsWritten, TxnWriteOver
from muster.coordinator.core.model.records import OffsetDeleted, OffsetsStored
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    LogBatch,
    OwnerRecord,
    ProducerEpoch,
    ShardRecordRead,
    ShardReplay,
    encode_owner_record,
)

OWNER = ProducerEpoch(7, 0)
GROUP = st.sampled_from(["g", "g", "h"])
PART = st.integers(0, 2)
CLIENT = st.sampled_from([50, 51, 52])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), GROUP, PART),
        st.tuples(st.just("delete"), GROUP, PART),
        st.tuples(st.just("drop"), GROUP, PART),
        st.tuples(st.just("txn"), GROUP, PART, CLIENT),
        st.tuples(st.just("txn"), GROUP, PART, CLIENT),
        st.tuples(st.just("end"), CLIENT, st.booleans()),
        st.tuples(st.just("end"), CLIENT, st.just(True)),
        st.tuples(st.just("heard")),
    ),
    max_size=30,
)


class Both:
    """A shard, and its log as a replay of `ownership` reads it."""

    def __init__(self) -> None:
        self.shard, self.replay = Shard(Limits(), 0), ShardReplay()
        self.shard.step(events.Loaded(), 0)
        self.end, self.number = 0, 0
        self.log_says: dict[bytes, int] = {}
        self.unheard: list[TxnMarkerRead] = []
        """Markers that are in the log, and not read yet."""
        key, value, _ = encode_owner_record(OwnerRecord(1, 1, OWNER))
        self.append(OWNER, [(key, value)])

    def append(
        self, producer: ProducerEpoch, pairs: list[tuple[bytes, bytes | None]], transactional: bool = False
    ) -> None:
        records = [ShardRecordRead(key, value, self.end + at) for at, (key, value) in enumerate(pairs)]
        self.read(LogBatch(self.end, self.end + len(pairs), producer, records, transactional))

    def read(self, seen: LogBatch) -> set[tuple[str, str, int]]:
        """Whose record counts from here on."""
        self.end = seen.next_offset
        counts = set()
        for record in self.replay.replay_batch(seen):
            assert record.key is not None
            group, _, part = record.key.decode().partition("/")
            if part.isdigit():
                counts.add((group, "t", int(part)))
            if record.value is None:
                self.log_says.pop(record.key, None)
            else:
                self.log_says[record.key] = int(record.value)
        return counts

    def asked(self, event: events.Request) -> None:
        pairs: list[tuple[bytes, bytes | None]] = []
        for record in self.shard.step(event, 0).records:
            if isinstance(record, OffsetsStored):
                pairs += [(key(record.group_id, p), b"%d" % v.offset) for (_, p), v in record.offsets.items()]
            elif isinstance(record, OffsetDeleted):
                pairs.append((key(record.group_id, record.partition), None))
        if pairs:
            self.append(OWNER, pairs)

    def plain(self, group: str, part: int) -> None:
        self.number += 1
        offsets = {("t", part): CommittedOffset(self.number)}
        self.asked(events.OffsetCommit(self.number, group, "", None, -1, offsets))

    def delete(self, group: str, part: int) -> None:
        self.asked(events.OffsetDelete(self.number, group, (("t", part),)))

    def drop(self, group: str, part: int) -> None:
        self.asked(events.DeleteGroup(self.number, group))

    def txn(self, group: str, part: int, client: int) -> None:
        self.number += 1
        offsets = {("t", part): CommittedOffset(self.number)}
        effects = self.shard.step(TxnOffsetCommit(self.number, group, "", None, -1, offsets), 0)
        [(_, reply)] = effects.replies
        assert isinstance(reply, TxnOffsetCommitReply)
        assert effects.records == []
        self.shard.step(TxnOffsetsWritten(client, 0, group, reply.kept, self.end), 0)
        self.shard.step(TxnWriteOver(-self.number, group, self.number), 0)
        self.append(ProducerEpoch(client, 0), [(key(group, part), b"%d" % self.number)], transactional=True)

    def marker(self, client: int, commits: bool) -> None:
        at = self.end
        counts = self.read(LogBatch(at, at + 1, ProducerEpoch(client, 0), (), True, commits))
        self.unheard.append(TxnMarkerRead(client, 0, commits, frozenset(counts), at))

    def heard(self) -> None:
        for event in self.unheard:
            assert self.shard.step(event, 0).records == []
        self.unheard = []

    def unstable(self) -> set[bytes]:
        return {key(group, p) for group in "gh" for _, p in self.shard.state.pending.unstable(group)}


def key(group: str, part: int) -> bytes:
    return f"{group}/{part}".encode()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_shard_knows_what_its_log_says(steps: list[tuple[str, ...]]) -> None:
    both = Both()
    for what, *rest in [*steps, ("heard",)]:
        getattr(both, "marker" if what == "end" else what)(*rest)
        state, unstable = both.shard.state, both.unstable()
        live = {key(g, p): v.offset for g, offsets in state.offsets.items() for (_, p), v in offsets.items()}
        for each in (live.keys() | both.log_says.keys()) - unstable:
            assert live.get(each) == both.log_says.get(each)
        waiting = {each for keys in both.replay.pending.values() for each in keys}
        assert unstable >= waiting, "what waits in the log is never taken for stable"
    assert (live, unstable) == (both.log_says, waiting)
