"""`{cluster}.security`: the compacted partition with ACLs, tokens and quotas of all nodes, as one node reads and
writes it.

It is created with its first records where everything of a cluster is new, and never later: an empty one would say
that no principal has a right, and with allow.everyone.if.no.acl.found that every one has any. So a topic that is
gone, or has no beginning, is for an operator to look at (`muster engine init --security`).

All nodes read it as it grows. A node that changes something owns it first, as a shard's log is owned (KB-F3,
KB-F4): the next epoch of the producer `{cluster}.security`, its owner record, and everything before that is read.
From that record on the broker refuses what a former owner still sends. Where the broker has forgotten it, all
readers skip that (KB-S4), the former owner among them, which knows then that its change did not count. So two nodes
never decide by less than what the other has written, and an owner stays the owner until another node writes.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from muster.coordinator.kafka_backend.shard_ownership.client_transactions import NOT_WRITTEN
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    NewRecord,
    OwnerRecord,
    ProducerEpoch,
    ShardRecord,
    ShardReplay,
    encode_owner_record,
)
from muster.coordinator.kafka_backend.state_log_io import log_batches_of
from muster.coordinator.kafka_backend.state_topic import (
    FIRST_S,
    UNKNOWN_TOPIC,
    StateTopicSpec,
    TopicMarks,
    UnusableUpstream,
    check_configs,
    create_checked_topic,
    topic_appears,
    wait_for_leaders,
)
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.protocol import (
    FENCED_CODES,
    WAIT_FOR_COORDINATOR,
    WAIT_FOR_LEADER,
    Unreached,
    UpstreamError,
    UpstreamRefused,
    describe_code,
)
from muster.coordinator.kafka_backend.upstream.record_requests import OUT_OF_RANGE, log_span, pause_and_refresh
from muster.coordinator.kafka_backend.upstream.topic_requests import topic_configs
from muster.coordinator.kafka_backend.upstream.upstream_client import PAUSE_S, Upstream
from muster.storage.errors import StorageError
from muster.storage.records.batch import BatchView, encode_written

# Before a node reads it: created once, checked by all
# ----------------------------------------------------

PARTITION: Final = 0
SECURITY_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": "8388608",
    "segment.bytes": "16777216",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
SECURITY_CONFIGS_CHECKED: Final = ("cleanup.policy", "min.insync.replicas", "max.message.bytes")
BEGIN_WRITE_MS: Final = 10_000
TRIES: Final = 100
"""Of what a new Kafka is not ready for yet, a pause between them."""

CURE: Final = (
    "look what became of it; `muster engine init --security` makes it anew, empty: nobody but super.users has a right "
    "then"
)


async def is_new_cluster(upstream: Upstream, state_topic: str, cluster: str) -> bool:
    """Whether nothing of the cluster is there yet, or was. Raises UpstreamError."""
    topic = (await upstream.refresh([state_topic])).topics.get(state_topic)
    missing = topic is None or topic.code == UNKNOWN_TOPIC
    return missing and not await TopicMarks(upstream, cluster, state_topic, FIRST_S).remembers()


async def prepare_security_topic(
    upstream: Upstream, topic: str, *, replication: int, id_base: int, new: bool, mark: Sequence[NewRecord], now_ms: int
) -> None:
    """Look whether the topic will do. new: it may be made, or begun, which is to have these records in it (`mark`).

    Raises UnusableUpstream, UpstreamError.
    """
    wanted = StateTopicSpec(topic, 1, replication, id_base)
    seen = (await upstream.refresh([topic])).topics.get(topic)
    missing = seen is None or seen.code == UNKNOWN_TOPIC
    if missing and not new and not await topic_appears(upstream, wanted):
        raise UnusableUpstream(
            f"the upstream has no topic {topic}, where it is kept who may do what, though its groups are there; {CURE}"
        )
    if missing and new:
        await create_checked_topic(upstream, wanted, SECURITY_TOPIC_CONFIGS)
    elif not missing and seen is not None and seen.code:
        raise UpstreamRefused(f"asking for the topic {topic}", seen.code)
    await wait_for_leaders(upstream, wanted)
    if (parts := len(upstream.view.topics[topic].parts)) != 1:
        raise UnusableUpstream(
            f"the upstream's {topic}, where it is kept who may do what, has {parts} partitions; expected 1"
        )
    check_configs(wanted, await topic_configs(upstream, topic, SECURITY_CONFIGS_CHECKED))
    if await is_topic_empty(upstream, topic):
        if not new:
            raise UnusableUpstream(
                f"the upstream's {topic}, where it is kept who may do what, has nothing in it; {CURE}"
            )
        await begin_security_topic(upstream, topic, mark, now_ms)


async def security_topic_exists(upstream: Upstream, topic: str) -> bool:
    """Whether nodes of this cluster ask who may do what, as far as this login may see. Raises UpstreamError."""
    seen = (await upstream.refresh([topic])).topics.get(topic)
    return seen is not None and not seen.code


async def is_topic_empty(upstream: Upstream, topic: str) -> bool:
    start, end = await log_span(upstream, topic, PARTITION)
    return end <= start


async def begin_security_topic(upstream: Upstream, topic: str, mark: Sequence[NewRecord], now_ms: int) -> None:
    """The first batch: its first owner, and what says that it was begun. Two nodes that do it at once both may."""
    place = (topic, PARTITION)
    producer = await fencing_producer(upstream, topic)
    wire = encode_written([encode_owner_record(OwnerRecord(1, -1, producer)), *mark], now_ms, producer=(*producer, 0))
    for _ in range(TRIES):
        written = (await record_requests.produce(upstream, upstream.leader(*place), {place: wire}, BEGIN_WRITE_MS))[
            place
        ]
        if written.code == 0 or written.code in FENCED_CODES:
            return
        await pause_and_refresh(upstream, topic)
    raise UpstreamError(f"{topic} cannot be written: the upstream says {describe_code(written.code)}")


async def fencing_producer(upstream: Upstream, transactional_id: str) -> ProducerEpoch:
    """A producer that fences those before. Raises UpstreamError."""
    code = 0
    for _ in range(TRIES):
        try:
            answer = await record_requests.init_producer(upstream, transactional_id)
        except UpstreamRefused as error:  # nobody coordinates it yet
            code = error.code
        else:
            if not answer.code:
                return ProducerEpoch(answer.producer_id, answer.epoch)
            code = answer.code
        if code not in WAIT_FOR_COORDINATOR:
            break
        await asyncio.sleep(PAUSE_S)
    raise UpstreamRefused(f"asking for the producer {transactional_id}", code)


# Reading and writing it
# ----------------------

PURPOSE: Final = "security"
"""Of the connection that waits for news."""

WAIT_MS: Final = 500
PORTION: Final = 256 << 10
WRITE_MS: Final = 5_000
LOOK_S: Final = 5.0
"""How often it is looked whether it is the same topic still."""

APART_S: Final = 0.1
"""At most so long who was overtaken leaves the other to it: two that took it from each other would go on with that."""

LOST_SEQUENCE: Final = frozenset({45, 59})
"""The broker does not know what this producer wrote: it is owned anew."""

DUPLICATE: Final = 46
UNTOLD: Final = -1
MAX_FENCED: Final = 10_000
"""Void batches that are remembered by their places, for who waits for one of his."""

Take = Callable[[Sequence[ShardRecord]], None]


class SecurityTopicDamaged(Exception):
    """It is not what it was, or cannot be read, so that nobody knows who may do what. The text is a sentence."""


class SecurityOwnerSuperseded(Exception):
    """Somebody else owns it: what was to be written was not, or does not count."""


class SecurityLog:
    """`read_log`, then `run`, then the rest; all in the thread of the loop."""

    def __init__(
        self,
        upstream: Upstream,
        topic: str,
        *,
        node: int,
        instance: str,
        wall_ms: Callable[[], int],
        truth: Callable[[bytes], bytes | None],
        on_fenced: Callable[[int], None] = lambda count: None,
    ) -> None:
        """truth: what counts for a key by all that was read. on_fenced: hears of records that were passed over."""
        self.topic = topic
        self._upstream = upstream
        self._place = (topic, PARTITION)
        self._node, self._instance = node, instance
        self._wall_ms = wall_ms
        self._truth = truth
        self._on_fenced = on_fenced
        self._replay = ShardReplay()
        self._id = b""
        self._held: ProducerEpoch | None = None
        self._sequence = 0
        self._voided: set[int] = set()
        self._heard_s = self._looked_s = 0.0
        self._progress = asyncio.Event()
        self.why = "it was not asked yet"
        """What the last question came to, where that is nothing."""

    # -- reading ------------------------------------------------------------------------------------------------------

    async def load(self, take: Take) -> None:
        """All there is now. Raises SecurityTopicDamaged, UpstreamError."""
        asked_s = asyncio.get_running_loop().time()
        await self._upstream.refresh([self.topic])
        self._id = self._upstream.view.topics[self.topic].topic_id
        start, upto = await record_requests.log_span(self._upstream, *self._place)
        self._replay.position = start
        loaded = record_requests.read_log(
            self._upstream, *self._place, start, upto, deadline_s=self._upstream.reach.answer_s
        )
        async for batches in loaded:
            self._taken(batches, take)
        self._heard_s = self._looked_s = asked_s

    async def run(self, take: Take) -> None:
        """What comes, for as long as it is there. Raises SecurityTopicDamaged."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if loop.time() - self._looked_s > LOOK_S:
                    await self._upstream.refresh([self.topic])
                    self._looked_s = loop.time()
                self._is_the_same()
                await self._read(take)
            except UpstreamError as error:
                self.why = str(error)
                await self._pause()

    async def _pause(self) -> None:
        try:
            await pause_and_refresh(self._upstream, self.topic)
        except UpstreamError as error:
            self.why = str(error)

    async def _read(self, take: Take) -> None:
        leader, position = self._upstream.leader(*self._place), self._replay.position
        asked_s = asyncio.get_running_loop().time()  # an answer may have waited for a process that stood still
        told = await record_requests.fetch(
            self._upstream,
            leader,
            {self._place: position},
            max_wait_ms=WAIT_MS,
            portion=PORTION,
            purpose=PURPOSE,
        )
        part = told.get(self._place)
        if part is None:
            raise Unreached(f"{self.topic} is left out of an answer")
        if part.code == OUT_OF_RANGE:
            raise SecurityTopicDamaged(
                f"the upstream's {self.topic} was read up to offset {position}, and has no such offset any more: what "
                "was written there is lost, or it was made anew"
            )
        if part.code:
            raise Unreached(f"{self.topic} cannot be read: the upstream says {describe_code(part.code)}")
        self._taken(part.batches, take)
        if self._replay.position >= part.high_watermark:
            self._heard_s = asked_s

    def _is_the_same(self) -> None:
        """Raises SecurityTopicDamaged."""
        seen_now = self._upstream.view.topics.get(self.topic)
        if seen_now is not None and not seen_now.code and seen_now.topic_id != self._id:
            raise SecurityTopicDamaged(
                f"the upstream's {self.topic} is another topic than it was: it was deleted, and made anew"
            )

    def _taken(self, batches: Sequence[BatchView], take: Take) -> None:
        """Raises SecurityTopicDamaged."""
        try:
            for batch in batches:
                if batch.next_offset <= self._replay.position:
                    continue
                if batch.control or batch.transactional:  # nobody of us writes such
                    self._replay.position = batch.next_offset
                    self._on_fenced(1)
                    continue
                (whole,) = log_batches_of([batch])
                fenced = self._replay.fenced_records
                counts = self._replay.replay_batch(whole)
                if self._replay.fenced_records > fenced:
                    self._report_fenced(whole.base_offset, self._replay.fenced_records - fenced)
                if counts:
                    take(counts)
        except StorageError as error:
            raise SecurityTopicDamaged(f"the upstream's {self.topic} cannot be read: {error}") from error
        self._progress.set()
        self._progress = asyncio.Event()

    def _report_fenced(self, offset: int, count: int) -> None:
        if len(self._voided) >= MAX_FENCED:
            self._voided.clear()
        self._voided.add(offset)
        self._on_fenced(count)

    @property
    def behind_s(self) -> float:
        """For so long it is not known whether all that counts has been read."""
        return asyncio.get_running_loop().time() - self._heard_s

    async def _reaches(self, end: int) -> None:
        while self._replay.position < end:
            await self._progress.wait()

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> bool:
        """Whether nobody else has written since this node owns it, as far as is read."""
        owner = self._replay.owner
        return self._held is not None and owner is not None and owner.producer == self._held

    async def own(self) -> None:
        """On return all that anybody wrote before is read, and nobody else writes who does not own it after us. Raises
        UpstreamError."""
        while not self.owned:
            self._held = None
            producer = await fencing_producer(self._upstream, self.topic)
            before = self._replay.owner
            owner = OwnerRecord(
                1 if before is None else before.turn + 1, self._node, producer, self._instance, since_ms=self._wall_ms()
            )
            try:
                offset = await self._produce([encode_owner_record(owner)], producer, 0)
                await self._reaches(offset + 1)
                if self._replay.owner is not None and self._replay.owner.producer == producer:
                    self._held, self._sequence = producer, 1
                    await self._mend(owner.turn)
            except SecurityOwnerSuperseded:
                await asyncio.sleep(random.uniform(0, APART_S))

    async def _mend(self, turn: int) -> None:
        """KB-S7: what void records hide is written again, and then owner records of turns before go."""
        if keys := self._replay.must_repair():
            await self.append([(key, self._truth(key), None) for key in keys])
        gone = [key for before, key in self._replay.owners if before < turn]
        if gone:
            await self.append([(key, None, None) for key in gone])
            self._replay.owners = [each for each in self._replay.owners if each[0] >= turn]

    async def append(self, new: Sequence[NewRecord]) -> None:
        """Durable, read again, and counting on return; `own` comes before. Raises SecurityOwnerSuperseded,
        UpstreamError; whoever gives up waiting does not know whether it was written."""
        held = self._held
        if held is None or not self.owned:
            raise SecurityOwnerSuperseded
        try:
            offset = await self._produce(new, held, self._sequence)
            self._sequence += len(new)
            await self._reaches(offset + len(new))
        except BaseException:
            self._held = None  # what is on its way is fenced by our next epoch
            raise
        if offset in self._voided:
            self._held = None
            raise SecurityOwnerSuperseded

    async def _produce(self, new: Sequence[NewRecord], producer: ProducerEpoch, sequence: int) -> int:
        """The very same bytes until it is known what became of them (KB-A2); the offset of the first record."""
        wire = encode_written(new, self._wall_ms(), producer=(*producer, sequence))
        while True:
            try:
                leader = self._upstream.leader(*self._place)
                told = await record_requests.produce(self._upstream, leader, {self._place: wire}, WRITE_MS)
                written = told[self._place]
            except Unreached as error:
                self.why = str(error)
                await self._pause()
                continue
            if written.code == 0 and written.offset != UNTOLD:
                return written.offset
            if written.code in FENCED_CODES or written.code in LOST_SEQUENCE or written.code in (0, DUPLICATE):
                if written.code == DUPLICATE and written.offset != UNTOLD:
                    return written.offset
                raise SecurityOwnerSuperseded
            if written.code in NOT_WRITTEN:
                raise UpstreamRefused(f"writing to {self.topic}", written.code, written.detail)
            if written.code not in WAIT_FOR_LEADER:
                raise UpstreamError(f"writing to {self.topic}: the upstream says {describe_code(written.code)}")
            self.why = f"the upstream says {describe_code(written.code)}"
            await self._pause()
