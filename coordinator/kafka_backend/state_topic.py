"""The state topic: created or checked before a node starts, watched while it runs, and accepted again by an operator.

Nothing that was lost is recreated by itself (KB-H1). A node refuses an upstream, or a topic, with which it would
lose groups (KB-N2). `muster engine init --again` is the word of an operator who has looked at a topic that was
lost, cut or replaced: it counts as it is.

A node has no data directory, and what is written into the topic disappears with it, so the upstream has to remember
that there was one. Its name among the transactional ids survives: it lies in a topic of Kafka's own, needs no
further right (it begins with `{cluster}.shard-`), and can be looked up without a change. Two are kept: one of the
topic's name, and one that also has its id and its number of partitions. The upstream forgets them
`transactional.id.expiration.ms` (7 days) after their last use. Nodes use them again and again, so that a topic that
is gone is taken for one that never was only where no node has run for so long. An upstream older than Kafka 3.0
cannot be asked (KIP-664): there running nodes notice it, and a starting one does not.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import uuid4

import structlog

from muster.coordinator.edge.background_tasks import BackgroundTask
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.shard_log import AcceptedLoss, encode_accepted_loss
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import UpstreamTopic
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.protocol import (
    WAIT_FOR_COORDINATOR,
    Unspoken,
    UpstreamError,
    UpstreamRefused,
)
from muster.coordinator.kafka_backend.upstream.record_requests import (
    is_transactional_id_known,
    pause_and_refresh,
    remember_transactional_id,
)
from muster.coordinator.kafka_backend.upstream.topic_requests import create_topic, topic_configs
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamTopics
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.storage.records.batch import encode_turn

# What the upstream remembers of the topic
# ----------------------------------------

PATIENCE_S: Final = 5.0


class TopicMarks:
    """Of one state topic's name. Everything here raises UpstreamError."""

    def __init__(self, upstream: Upstream, cluster: str, name: str, patience_s: float = PATIENCE_S) -> None:
        """patience_s: so long the coordinator of a transactional id may be on its way."""
        self._patience_s = patience_s
        self._upstream = upstream
        self._any = f"{cluster}.shard-topic.{name}"

    async def remembers(self) -> bool:
        """Whether there was a topic of that name; no where the upstream cannot be asked."""
        return await self._is_known(self._any)

    async def knows(self, topic: UpstreamTopic) -> bool:
        """Whether it was this one; no where the upstream cannot be asked."""
        return await self._is_known(self._of(topic))

    async def write(self, topic: UpstreamTopic) -> None:
        """This is the one, from now on and again."""
        for transactional_id in (self._of(topic), self._any):
            await remember_transactional_id(self._upstream, transactional_id, self._patience_s)

    async def _is_known(self, transactional_id: str) -> bool:
        try:
            return await is_transactional_id_known(self._upstream, transactional_id, self._patience_s)
        except Unspoken:
            return False

    def _of(self, topic: UpstreamTopic) -> str:
        return f"{self._any}.{id_text(topic.id)}.{topic.partitions}"


def id_text(topic_id: bytes) -> str:
    """As Kafka's tools print it.

    >>> id_text(bytes(range(16)))
    'AAECAwQFBgcICQoLDA0ODw'
    """
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


# Checks before a node starts (KB-N2)
# -----------------------------------

UNKNOWN_TOPIC: Final = 3
INVALID_REPLICATION_FACTOR: Final = 38
LEADERS_S: Final = 30.0
FIRST_S: Final = 30.0
"""So long a new upstream may take to make the topic of transactions, which the first question of its kind has it do."""
LOOKS: Final = 5
"""Before it is said that a topic is gone: a broker may be behind."""
MAX_MESSAGE_BYTES: Final = 8_388_608
CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    "segment.bytes": "104857600",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
}
"""Of a state topic that is made; min.insync.replicas depends on how many copies there are (KB-S7: the lag). A broker
forgets producers by the time stamps of what they wrote: by its own clock, not by that of a node."""

LOOKED_AT: Final = ("cleanup.policy", "min.insync.replicas", "max.message.bytes")


class UnusableUpstream(Exception):
    """The node cannot be started over this upstream. The text says what was found, and what to do."""


class StateTopicSpec(NamedTuple):
    """topic, partitions: `engine.kafka.state.topic`, `offsets.topic.num.partitions`. replication:
    `engine.kafka.state.replication.factor`. id_base, cluster: `engine.kafka.node.id.base`, `engine.kafka.cluster`."""

    topic: str
    partitions: int
    replication: int
    id_base: int
    cluster: str = "muster"


async def prepare_state_topic(upstream: Upstream, wanted: StateTopicSpec) -> int:
    """How many bytes a batch of the state topic may have, less a tenth (KB-S1); makes the topic where there is none,
    and none was before.

    Raises UnusableUpstream, and UpstreamError where nobody answers.
    """
    batch_bytes = await check_state_topic(upstream, wanted)
    if batch_bytes is None:
        await create_state_topic(upstream, wanted)
        await wait_for_leaders(upstream, wanted)
        batch_bytes = await check_existing_topic(upstream, wanted)
    return batch_bytes


async def check_state_topic(upstream: Upstream, wanted: StateTopicSpec) -> int | None:
    """As `prepare_state_topic`, and writes nothing: None where the topic is yet to be made, and may be."""
    await check_upstream(upstream, wanted)
    if topic_exists(upstream, wanted):
        await wait_for_leaders(upstream, wanted)
        return await check_existing_topic(upstream, wanted)
    first = TopicMarks(upstream, wanted.cluster, wanted.topic, FIRST_S)
    if not await first.remembers():
        await create_state_topic(upstream, wanted, validate_only=True)
        return None
    if await topic_appears(upstream, wanted):
        await wait_for_leaders(upstream, wanted)
        return await check_existing_topic(upstream, wanted)
    raise UnusableUpstream(
        f"the state topic {wanted.topic} is not there, and it was: groups and positions went with it. Nothing "
        "is made anew by itself: look at what became of it; `muster engine init --again` makes it, empty"
    )


async def check_existing_topic(upstream: Upstream, wanted: StateTopicSpec) -> int:
    """Raises UnusableUpstream for another topic than it was, and one that would lose groups."""
    marks, topic = TopicMarks(upstream, wanted.cluster, wanted.topic, PATIENCE_S), state_topic_of(upstream, wanted)
    if topic.partitions == wanted.partitions and not await is_same_topic(marks, topic):
        raise UnusableUpstream(
            f"the state topic {wanted.topic} (id {id_text(topic.id)}) is not the one it was: that is deleted, and "
            "another was made. Look at it; `muster engine init --again` says that it counts from now on"
        )
    grown = topic.partitions > wanted.partitions and await marks.knows(topic)
    return await check_partitions_and_configs(upstream, wanted, grown=grown)


async def is_same_topic(marks: TopicMarks, topic: UpstreamTopic) -> bool:
    """Whether it is the topic of before, or there was none. While transactional ids have no coordinator nobody is told;
    no shard can be taken then, either, and it is looked at again (`kafka_backend/watching.py`)."""
    try:
        return await marks.knows(topic) or not await marks.remembers()
    except UpstreamError:
        return True


async def check_upstream(upstream: Upstream, wanted: StateTopicSpec) -> None:
    """Raises UnusableUpstream where nodes cannot be over this upstream at all."""
    if lacks := await upstream.lacks():
        raise UnusableUpstream(
            f"the upstream does not speak {', '.join(lacks)}, which is needed; expected Apache Kafka 2.8 or later"
        )
    view = await upstream.refresh([wanted.topic])
    for broker in sorted(view.brokers):
        if broker >= wanted.id_base:
            raise UnusableUpstream(
                f"the upstream has a broker of id {broker}, and Muster's nodes are told to clients as "
                f"{wanted.id_base} and above; raise engine.kafka.node.id.base above all ids of brokers"
            )


def topic_exists(upstream: Upstream, wanted: StateTopicSpec) -> bool:
    """As the last answer has it."""
    topic = upstream.view.topics.get(wanted.topic)
    if topic is not None and topic.code not in (0, UNKNOWN_TOPIC):
        raise UpstreamRefused(f"asking for the topic {wanted.topic}", topic.code)
    return topic is not None and not topic.code


async def topic_appears(upstream: Upstream, wanted: StateTopicSpec) -> bool:
    """A broker may be behind: whether it is there by another answer, a while later."""
    for _ in range(LOOKS):
        await pause_and_refresh(upstream, wanted.topic)
        if topic_exists(upstream, wanted):
            return True
    return False


async def check_partitions_and_configs(upstream: Upstream, wanted: StateTopicSpec, *, grown: bool) -> int:
    """As `prepare_state_topic`, of a topic that is there. grown: it may have more partitions than there are shards."""
    parts = state_topic_of(upstream, wanted).partitions
    if parts < wanted.partitions or (parts > wanted.partitions and not grown):
        more = ""
        if parts > wanted.partitions:
            more = "; where partitions were added to it since, `muster engine init --again` leaves those unused"
        raise UnusableUpstream(
            f"offsets.topic.num.partitions is {wanted.partitions}, but the upstream's {wanted.topic} has "
            f"{parts} partitions and every group's place depends on it; set it to {parts}, or name "
            f"another topic by engine.kafka.state.topic{more}"
        )
    return check_configs(wanted, await topic_configs(upstream, wanted.topic, LOOKED_AT))


def state_topic_of(upstream: Upstream, wanted: StateTopicSpec) -> UpstreamTopic:
    seen = upstream.view.topics[wanted.topic]
    return UpstreamTopic(seen.topic_id, len(seen.parts))


async def create_state_topic(upstream: Upstream, wanted: StateTopicSpec, *, validate_only: bool = False) -> None:
    await create_checked_topic(upstream, wanted, CONFIGS, validate_only=validate_only)


async def create_checked_topic(
    upstream: Upstream, wanted: StateTopicSpec, configs: Mapping[str, str], *, validate_only: bool = False
) -> None:
    """validate_only: the upstream says whether it would make it. Raises UnusableUpstream, UpstreamError."""
    configs = {**configs, "min.insync.replicas": str(min(2, wanted.replication))}
    given = wanted.topic, wanted.partitions, wanted.replication, configs
    try:
        await create_topic(upstream, *given, validate_only=validate_only)
    except UpstreamRefused as error:
        if error.code != INVALID_REPLICATION_FACTOR:
            raise
        raise UnusableUpstream(
            f"the topic {wanted.topic} cannot have {wanted.replication} replicas: the upstream has "
            f"{len(upstream.view.brokers)} brokers; add brokers, or set engine.kafka.state.replication.factor to less, "
            "so that the loss of that many brokers loses the groups"
        ) from error


async def wait_for_leaders(upstream: Upstream, wanted: StateTopicSpec) -> None:
    """A topic that was just made has none for a moment."""
    deadline_s = asyncio.get_running_loop().time() + LEADERS_S
    while True:
        view = upstream.view
        topic = view.topics.get(wanted.topic)
        parts = () if topic is None or topic.code else topic.parts
        if parts and all(view.leader(wanted.topic, part) >= 0 for part in parts):
            return
        if asyncio.get_running_loop().time() > deadline_s:
            # What has a leader is served; the rest is taken when it has one.
            if parts:
                return
            raise UpstreamError(f"the upstream tells of no partitions of {wanted.topic}; look at it with Kafka's tools")
        await pause_and_refresh(upstream, wanted.topic)


def check_configs(wanted: StateTopicSpec, configs: Mapping[str, str]) -> int:
    """Raises UnusableUpstream for settings under which the topic would lose groups."""
    topic = wanted.topic
    policy = configs.get("cleanup.policy", "")
    if policy != "compact":
        raise UnusableUpstream(
            f"cleanup.policy of the upstream's {topic} is {policy!r}: groups would be deleted with old segments; "
            "expected compact, set it with Kafka's tools"
        )
    least = configs.get("min.insync.replicas", "1")
    if least == "1" and wanted.replication > 1:
        raise UnusableUpstream(
            f"min.insync.replicas of the upstream's {topic} is 1: what is acknowledged may be lost with one broker; "
            "set it to 2 with Kafka's tools, or engine.kafka.state.replication.factor to 1 and know that"
        )
    most = int(configs.get("max.message.bytes") or MAX_MESSAGE_BYTES)
    return most - most // 10


# muster engine init --again
# --------------------------

WRITE_MS: Final = 30_000


async def accept_state_topic(upstream: Upstream, wanted: StateTopicSpec) -> int:
    """As `usable`, of a topic that need not be the one it was: it is made where there is none, and what its logs lack
    is given up. Nodes that run hear of it within seconds. Raises UnusableUpstream, and UpstreamError."""
    await check_upstream(upstream, wanted)
    if not topic_exists(upstream, wanted):
        await create_state_topic(upstream, wanted)
    await wait_for_leaders(upstream, wanted)
    most = await check_partitions_and_configs(upstream, wanted, grown=True)
    await write_acceptance(upstream, wanted)
    await TopicMarks(upstream, wanted.cluster, wanted.topic).write(state_topic_of(upstream, wanted))
    return most


async def write_acceptance(upstream: Upstream, wanted: StateTopicSpec) -> None:
    """Write into each shard's log that it counts as it is."""
    token = uuid4().hex
    for shard in range(wanted.partitions):
        place = wanted.topic, shard
        leader = upstream.leader(*place)
        start = (await record_requests.list_offsets(upstream, leader, [place], record_requests.EARLIEST))[place]
        word = [encode_accepted_loss(AcceptedLoss(start.offset, token))]
        said = start
        if not said.code:
            batch = encode_turn(word, int(time.time() * 1000))
            said = (await record_requests.produce(upstream, leader, {place: batch}, WRITE_MS))[place]
        if said.code:
            raise UpstreamRefused(f"saying that {wanted.topic}-{shard} counts as it is", said.code, said.detail)


# Checks while a node runs
# ------------------------

log = structlog.get_logger("muster.engine")

AGAIN: Final = "`muster engine init --again` says that it counts, once you have looked"


class StateTopicWatch:
    """`start` once the start checks are passed; `stop` ends it. That the topic is gone, or another one, says
    `UpstreamTopics`
    (KB-T4); `tell` hears of it as `TopicLost` and `TopicFound`."""

    def __init__(
        self,
        upstream: Upstream,
        topics: UpstreamTopics,
        wanted: StateTopicSpec,
        *,
        tell: Callable[[ev.TopicLost | ev.TopicFound], None],
        now_ms: Callable[[], int],
        refresh_ms: int,
        mark_ms: int,
        on_bug: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """refresh_ms: how often it is looked, at least. mark_ms: how often it is remembered anew."""
        self._topics, self._wanted, self._tell = topics, wanted, tell
        self._marks = TopicMarks(upstream, wanted.cluster, wanted.topic)
        self._now_ms, self._refresh_ms, self._mark_ms = now_ms, refresh_ms, mark_ms
        self._mine: UpstreamTopic | None = None
        self._marked_ms: int | None = None
        self._lost = self._refused = ""
        self._changed = asyncio.Event()
        self._running = BackgroundTask(on_bug)

    def start(self) -> None:
        self._mine = self._topics.topic(self._wanted.topic)
        self._topics.on_change(lambda change: self._changed.set())
        self._running.start(self._run())

    async def stop(self) -> None:
        await self._running.stop()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._check_topic()
            except UpstreamError as error:  # asked again
                self._tell_refusal(error)
            else:
                self._refused = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_ms / 1_000):
                    await self._changed.wait()

    def _tell_refusal(self, error: UpstreamError) -> None:
        """That nobody answers is told elsewhere; that a right is missing is not, where shards have theirs. Once."""
        if (
            isinstance(error, UpstreamRefused)
            and error.code not in WAIT_FOR_COORDINATOR
            and str(error) != self._refused
        ):
            self._refused = str(error)
            log.warning(
                f"the upstream does not remember the state topic {self._wanted.topic}: where it is deleted, a node "
                "that starts would make it anew, empty; `muster engine acls` prints what Muster's login has to be "
                "allowed",
                why=self._refused,
            )

    async def _check_topic(self) -> None:
        found = self._topics.topic(self._wanted.topic)
        if found is not None and found != self._mine and await self._marks.knows(found):
            another = self._mine is None or found.id != self._mine.id
            self._mine, self._marked_ms, self._lost = found, None, ""
            self._tell(ev.TopicFound(another))
        why = self._explain_mismatch(found)
        if why != self._lost:
            self._lost = why
            self._tell(ev.TopicLost(why) if why else ev.TopicFound())
        if found is not None and not why:
            await self._mark(found)

    def _explain_mismatch(self, found: UpstreamTopic | None) -> str:
        """Why nothing may be served from it; "": it may."""
        name, mine = self._wanted.topic, self._mine
        if mine is None or found == mine:
            return ""
        was = f"the state topic {name} (id {id_text(mine.id)})"
        if found is None:
            return (
                f"{was} is deleted, and groups and positions with it; `muster engine init --again` makes it anew, empty"
            )
        if found.id != mine.id:
            return f"{was} is deleted, and another one of that name (id {id_text(found.id)}) is there; {AGAIN}"
        return f"{was} has {found.partitions} partitions, and had {mine.partitions}; {AGAIN}"

    async def _mark(self, found: UpstreamTopic) -> None:
        if self._marked_ms is None or self._now_ms() - self._marked_ms >= self._mark_ms:
            await self._marks.write(found)
            self._marked_ms = self._now_ms()
