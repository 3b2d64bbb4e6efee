"""Whatever pauses, deaths and hand-offs come in between, no log of a fence ever takes a token below one it has.

The real core decides who owns the partition and who may claim; real logs on a disk in memory take the records. Writers
are zombies whenever they like: each may stand still between any two of its steps for as long as the story goes on.
"""

import asyncio
from dataclasses import dataclass, field, replace

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import ClaimFenceReply, ConsumerHeartbeatReply, Reply
from muster.coordinator.core.model.events import NO_PRODUCER, ClaimFence
from muster.coordinator.core.model.records import Record
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.storage.broker.fences import FenceOwnership, Fences
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.errors import InvalidProducerEpoch
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all

TOPIC = b"t" * 16
CATALOG = events.TopicsChanged({"t": 1}, ids={"t": TOPIC})
LIMITS = Limits(consumer_assignment_interval_ms=0, offsets_retention_ms=10**12)
LOGS = (("out", 0), ("out", 1))
DAY_MS = 86_400_000

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["hand over", "hand over", "join", "beat", "leave"]), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["take", "claim", "tell"]), st.integers(0, 3), st.sampled_from(LOGS)),
        st.tuples(st.just("write"), st.integers(0, 3), st.sampled_from(LOGS)),
        st.tuples(st.just("write"), st.integers(0, 3), st.sampled_from(LOGS)),
        st.tuples(st.sampled_from(["crash", "stop", "expire", "epochs"])),
    ),
    min_size=20,
    max_size=60,
)

EPOCHS_USED_UP: list[tuple[object, ...]] = [
    ("hand over", "a"),
    ("write", 0, LOGS[0]),
    ("epochs",),
    ("hand over", "b"),
    ("write", 0, LOGS[0]),
    ("stop",),
    ("expire",),
    ("write", 1, LOGS[0]),
]


@dataclass
class Writer:
    """A producer with the token that its member had; where it stands, whatever the group has done since."""

    member: str
    generation: int
    granted: ClaimFenceReply | None = None
    """As it was told, once logs knew of it."""
    under_way: ClaimFenceReply | None = None
    """What the group said; it waits to be told to a log, and dies with the node."""
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    """By log that it has claimed for: how many records it wrote."""


class Life:
    """One node after the other on one disk, and everybody who ever wrote."""

    def __init__(self) -> None:
        self.disk = MemoryFiles()
        self.records: list[Record] = []
        self.broker = open_broker(self.disk, log__segment__bytes=700)
        self.broker.create_topic("out", 2)
        self.tokens: dict[str, tuple[int, bool]] = {}
        self.writers: list[Writer] = []
        self.highest: tuple[int, ...] = ()
        """The newest ownership that its owner was told of."""
        self.request, self.now_ms = 0, T0
        self.begin()

    def begin(self) -> None:
        self.shard = Shard(LIMITS, 0)
        self.shard.step(CATALOG, self.now_ms)
        for record in self.records:
            self.shard.apply(record)
        self.shard.step(events.Loaded(), self.now_ms)
        self.commit = GroupCommit(self.broker, lambda: self.now_ms, workers=1)
        self.fences = Fences(self.broker, self.commit, lambda: self.now_ms)
        self.broker.keep_fences(lambda fence: fence in self.shard.state.fence_ids)

    def ask(self, request: events.Request) -> Reply:
        effects = self.shard.step(request, self.now_ms)
        self.records += effects.records
        return dict(effects.replies)[request.request_id]

    def next_id(self) -> int:
        self.request += 1
        return self.request

    # -- members

    def beat(self, member: str, epoch: int, owned: dict[bytes, frozenset[int]] | None) -> None:
        timeout_ms, topics = (60_000, ("t",)) if epoch == 0 else (-1, None)
        reply = self.ask(
            events.ConsumerHeartbeat(
                self.next_id(), "g", member, epoch, rebalance_timeout_ms=timeout_ms, topic_names=topics, owned=owned
            )
        )
        assert isinstance(reply, ConsumerHeartbeatReply)
        if reply.code or epoch < 0:
            self.tokens.pop(member, None)
            return
        had = epoch > 0 and self.tokens.get(member, (0, False))[1]
        has = had if reply.assignment is None else 0 in reply.assignment.get(TOPIC, ())
        self.tokens[member] = reply.member_epoch, has
        if has and not had:
            self.writers.append(Writer(member, reply.member_epoch))

    def member(self, what: str, name: str) -> None:
        epoch, has = self.tokens.get(name, (0, False))
        if what == "join":
            self.beat(name, 0, {})
        elif what == "hand over":  # by the death of all the others
            for other in [each for each in self.tokens if each != name]:
                self.beat(other, -1, {})
            self.beat(name, 0, {})
        elif name in self.tokens:
            self.beat(name, -1 if what == "leave" else epoch, {TOPIC: frozenset({0})} if has else {})

    # -- writers

    async def writer(self, what: str, which: int, log: tuple[str, int]) -> None:
        if which >= len(self.writers):
            return
        writer = self.writers[-1 - which]
        if what == "take":  # another producer of the same owner
            self.writers.append(Writer(writer.member, writer.generation))
        elif what == "claim":
            self.claim(writer)
        elif what == "tell":
            await self.tell(writer, log)
        elif what == "write":
            if log not in writer.written:
                self.claim(writer)
                await self.tell(writer, log)
            if log in writer.written:
                self.write(writer, log)

    def claim(self, writer: Writer) -> None:
        held = writer.granted
        known = (NO_PRODUCER, NO_PRODUCER) if held is None else (held.producer_id, held.epoch)
        fresh = self.broker.next_fence_id()
        reply = self.ask(ClaimFence(self.next_id(), "g", writer.member, "t", 0, writer.generation, *known, fresh))
        assert isinstance(reply, ClaimFenceReply)
        assert reply.code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
        if reply.code is ErrorCode.NONE:
            writer.under_way = reply
            event("a claim was granted")
        else:
            event("a claim was refused")

    async def tell(self, writer: Writer, log: tuple[str, int]) -> None:
        """The second half of a claim; the writer may have stood still for long since the first."""
        granted, writer.under_way = writer.under_way, None
        if granted is None:
            return
        try:
            await self.fences.put_up(FenceOwnership(granted.producer_id, granted.epoch, granted.former), [log])
        except InvalidProducerEpoch:
            assert order(granted) < self.highest
            event("a claim came too late for the logs")
            return
        if granted != writer.granted:
            writer.granted, writer.written = granted, {}
        writer.written.setdefault(log, 0)
        self.highest = max(self.highest, order(granted))

    def write(self, writer: Writer, log: tuple[str, int]) -> None:
        granted = writer.granted
        assert granted is not None
        value = b"%d %d %d" % (writer.generation, *order(granted))
        data = batch(
            value,
            at=self.now_ms,
            producer_id=granted.producer_id,
            producer_epoch=granted.epoch,
            base_sequence=writer.written[log],
        )
        try:
            self.broker.append(*log, data, self.now_ms)
        except InvalidProducerEpoch:
            assert order(granted) < self.highest, "the newest owner is never refused"
            event("a zombie was refused")
            return
        assert order(granted) >= self.highest, "a later owner has claimed: nothing older is taken by any log"
        writer.written[log] += 1
        self.broker.flush()

    # -- the node

    async def node(self, what: str) -> None:
        if what == "expire":
            self.now_ms += 30 * DAY_MS
            for log in self.broker.logs():
                log.forget_producers(self.now_ms, DAY_MS, lambda fence: fence in self.shard.state.fence_ids)
        elif what == "epochs":
            self.use_epochs_up()
        else:
            await self.commit.close()
            if what == "stop":
                self.broker.close()
            else:
                self.disk.kill()
            self.broker = open_broker(self.disk, log__segment__bytes=700)
            for writer in self.writers:
                writer.under_way = None
            self.begin()

    def use_epochs_up(self) -> None:
        """As if the fence had been claimed 30,000 times by owners who are gone and wrote nothing."""
        fence = self.shard.state.fences.get("g", {}).get(("t", 0))
        if fence is not None and fence.epoch < 30_000:
            worn = replace(fence, epoch=32_766, member_id="nobody")
            self.shard.apply(worn)
            self.records.append(worn)

    async def run(self, story: list[tuple[object, ...]]) -> None:
        for what, *rest in story:
            match rest:
                case [str() as name]:
                    self.member(str(what), name)
                case [int() as which, (topic, partition)]:
                    await self.writer(str(what), which, (topic, partition))
                case _:
                    await self.node(str(what))
        await self.commit.close()

    def check(self) -> None:
        for log in self.broker.logs():
            if log.partition[0] == "out":
                seen = [tuple(map(int, (record.value or b"").split())) for record in read_all(log)]
                ownerships = [(former, epoch) for _, former, epoch in seen]
                assert ownerships == sorted(ownerships), "ownerships went down"
                generations = [generation for generation, _, _ in seen]
                assert generations == sorted(generations), "tokens went down"


def order(granted: ClaimFenceReply) -> tuple[int, int]:
    """Ownerships of one fence in the order in which they were granted."""
    return len(granted.former), granted.epoch


@settings(max_examples=150, deadline=None)
@given(steps)
@example(EPOCHS_USED_UP)
def test_tokens_of_a_fence_never_go_down(story: list[tuple[object, ...]]) -> None:
    life = Life()
    asyncio.run(life.run(story))
    life.check()
