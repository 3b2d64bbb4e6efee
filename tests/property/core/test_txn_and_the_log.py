"""Positions in transactions: what a shard knows live is at every moment what a replay of its log says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core import events
from muster.coordinator.core.records import OffsetDeleted, OffsetsStored
from muster.coordinator.core.shard import Shard
from muster.coordinator.core.txn.events import TxnEnded, TxnOffsetCommit, TxnOffsetsWritten, TxnWriteOver
from muster.coordinator.core.txn.replies import TxnOffsetCommitReply
from muster.coordinator.core.types import CommittedOffset, Limits
from muster.coordinator.ownership.facts import Owner, Producer, Read, owner_record
from muster.coordinator.ownership.voids import Replay, Seen

OWNER = Producer(7, 0)
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
    ),
    max_size=30,
)


class Both:
    """A shard, and its log as a replay of `ownership` reads it."""

    def __init__(self) -> None:
        self.shard, self.replay = Shard(Limits(), 0), Replay()
        self.shard.step(events.Loaded(), 0)
        self.end, self.number = 0, 0
        self.log_says: dict[bytes, int] = {}
        key, value, _ = owner_record(Owner(1, 1, OWNER))
        self.append(OWNER, [(key, value)])

    def append(self, producer: Producer, pairs: list[tuple[bytes, bytes | None]], transactional: bool = False) -> None:
        records = [Read(key, value, self.end + at) for at, (key, value) in enumerate(pairs)]
        self.read(Seen(self.end, self.end + len(pairs), producer, records, transactional))

    def read(self, seen: Seen) -> None:
        self.end = seen.next_offset
        for record in self.replay.take(seen):
            assert record.key is not None
            if record.value is None:
                self.log_says.pop(record.key, None)
            else:
                self.log_says[record.key] = int(record.value)

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
        self.shard.step(TxnWriteOver(self.number), 0)
        self.append(Producer(client, 0), [(key(group, part), b"%d" % self.number)], transactional=True)

    def marker(self, client: int, commits: bool) -> None:
        assert self.shard.step(TxnEnded(client, 0, commits), 0).records == []
        self.read(Seen(self.end, self.end + 1, Producer(client, 0), (), True, commits))


def key(group: str, part: int) -> bytes:
    return f"{group}/{part}".encode()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_shard_knows_what_its_log_says(steps: list[tuple[str, ...]]) -> None:
    both = Both()
    for what, *rest in steps:
        getattr(both, "marker" if what == "end" else what)(*rest)
        state = both.shard.state
        live = {key(g, p): v.offset for g, offsets in state.offsets.items() for (_, p), v in offsets.items()}
        assert live == both.log_says
        waiting = {
            client: {key(group, p) for group, offsets in groups.items() for _, p in offsets}
            for client, groups in state.pending.of.items()
        }
        assert {client: keys for client, keys in waiting.items() if keys} == {
            client: set(keys) for client, keys in both.replay.pending.items() if keys
        }
        for group in "gh":
            unstable = {key(group, p) for _, p in state.pending.unstable(group)}
            assert unstable == {each for keys in waiting.values() for each in keys if each.startswith(group.encode())}
