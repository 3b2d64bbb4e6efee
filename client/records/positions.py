"""What a consumer subscribes to, where it starts, how it moves, and what it commits.

Patterns begin with ^. A new partition starts at the committed offset, or where auto.offset.reset says. Commits run
one after another, so that a later commit is never overtaken by an earlier one.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from muster.client.calls.topic_calls import (
    EARLIEST,
    LATEST,
    PartitionCounts,
    list_offsets,
    match_topics,
)
from muster.client.calls.transport import Transport
from muster.client.config import ZNODE_NAME, ConsumerConfig, is_znode_name
from muster.client.errors import ClientError, CommitFailed, IllegalState, NoOffset, Refused, refusal
from muster.client.members.zookeeper_assignment import compile_pattern as compiled_re2
from muster.client.membership.ports import Interest, OffsetStore
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.records.partition_state import UNKNOWN_EPOCH, ConsumedPartition
from muster.client.twins import BackgroundTasks
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition

# Subscription
# ------------

MAX_TOPICS = 10_000
NAMES_SHOWN = 5
WARNED_ELSEWHERE = ("zookeeper", "central")

log = logging.getLogger("muster.client")


class TopicSubscription:
    """Names and patterns as they were given last. `resolved_there`: somebody else finds a pattern's topics."""

    def __init__(self, catalog: PartitionCounts, config: ConsumerConfig, resolved_there: bool) -> None:
        self._catalog = catalog
        self._config = config
        self._resolved_there = resolved_there
        self._names: frozenset[str] = frozenset()
        self._patterns: tuple[re.Pattern[str], ...] = ()
        self._black_list = False
        self._missed: set[str] = set()

    @property
    def looks_for_topics(self) -> bool:
        """Whether new topics may change what is subscribed to, and it is for the consumer to look."""
        return bool(self._patterns) and not self._resolved_there

    @property
    def _in_zookeeper(self) -> bool:
        return self._config.group_protocol == "zookeeper"

    def change(self, topics: Sequence[str], black_list: bool = False) -> None:
        if len(topics) > MAX_TOPICS:
            raise IllegalState(f"{len(topics)} topics are too many; at most {MAX_TOPICS} can be subscribed to")
        names = frozenset(topic for topic in topics if not topic.startswith("^"))
        patterns = tuple(compile_topic_pattern(topic) for topic in topics if topic.startswith("^"))
        if black_list and (names or not patterns or not self._in_zookeeper):
            raise IllegalState(
                "black_list=True takes patterns that begin with ^ and nothing else, with group.protocol=zookeeper; "
                f"got {', '.join(map(repr, topics)) or 'no topics'} with {self._config.group_protocol}"
            )
        if names and patterns and self._in_zookeeper:
            raise IllegalState(
                "a consumer of the ZooKeeper era subscribes by names or by patterns, not by both: "
                f"{', '.join(map(repr, topics))}; give one kind"
            )
        if self._in_zookeeper:
            if strange := [name for name in topics if name in names and not is_znode_name(name)]:
                raise IllegalState(f"a topic is a znode in ZooKeeper, {ZNODE_NAME}; got {strange[0]!r}")
            check_shared_patterns(patterns)
        self._names, self._patterns, self._black_list = names, patterns, black_list

    def given(self) -> set[str]:
        """Names and patterns, as they were given."""
        return {*self._names, *(pattern.pattern for pattern in self._patterns)}

    async def tell_what_is_missing(self) -> None:
        """Say in the log which topics do not exist, of each once: a consumer that reads nothing looks like an idle one.

        Not where another node than the one that is asked may have the topic, or where the coordinator tells it.
        """
        if self._config.group_protocol in WARNED_ELSEWHERE or not (names := self._names - self._missed):
            return
        try:
            missing = sorted(names - (await self._catalog.fetch(names)).keys())
        except ClientError as error:
            log.warning("%s", error)
            return
        self._missed.update(missing)
        if missing:
            log.warning("%s", describe_missing_topics(missing))

    async def interest(self) -> Interest:
        """What it comes to now: names alone where the consumer itself resolves patterns."""
        if not self.looks_for_topics:
            return Interest(tuple(sorted(self._names)), self._regex, self._black_list)
        everything = await self._catalog.fetch_all(include_internal=not self._config.exclude_internal_topics)
        return Interest(tuple(sorted(self._names | match_topics(self._patterns, everything))))

    @property
    def _regex(self) -> str:
        """The patterns as one expression that matches whole names."""
        return "|".join(f"(?:{pattern.pattern}).*" for pattern in self._patterns)


def describe_missing_topics(missing: Sequence[str]) -> str:
    """
    >>> describe_missing_topics(["orders"])
    "no such topic: 'orders'; nothing can be read of it before it is created (muster topics create orders)"
    """
    names = ", ".join(map(repr, missing[:NAMES_SHOWN]))
    more = f" and {len(missing) - NAMES_SHOWN} more" if len(missing) > NAMES_SHOWN else ""
    them, are = ("it", "it is") if len(missing) == 1 else ("them", "they are")
    create = f"muster topics create {missing[0]}"
    return f"no such topic: {names}{more}; nothing can be read of {them} before {are} created ({create})"


def check_shared_patterns(patterns: Iterable[re.Pattern[str]]) -> None:
    """Every consumer of a group in ZooKeeper resolves the patterns of all others, so what one cannot read stops all."""
    for pattern in patterns:
        try:
            compiled_re2(pattern.pattern)
        except ValueError as error:
            raise IllegalState(f"{pattern.pattern!r} is not a regular expression in RE2 syntax: {error}") from None
        if strange := [each for each in ", '\"" if each in pattern.pattern]:
            raise IllegalState(
                f"{pattern.pattern!r} contains {strange[0]!r}: consumers of the ZooKeeper era read a comma as | and "
                "drop spaces and quotes; write the pattern without them (x{1,2} as xx?)"
            )


def compile_topic_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise IllegalState(f"{pattern!r} is not a regular expression: {error}") from None


# Commits
# -------

UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH = 25, 113
NOT_A_MEMBER = "this consumer is not a member right now; poll, and commit what it owns then"
EPOCH_CHECK_S, EPOCH_CHECKS = 0.02, 150
"""How often, and how many times, to look whether a heartbeat has brought the epoch that a commit was missing."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class ConsumerCommits:
    """`identity` says who commits (None: a simple consumer); `on_refused` hears what it means for the membership."""

    def __init__(
        self,
        store: OffsetStore | None,
        config: ConsumerConfig,
        fetcher: ConsumerFetcher,
        identity: Callable[[], GroupMetadata | None],
        on_refused: Callable[[Refused, int], None],
    ) -> None:
        self._store = store
        self._config = config
        self._fetcher = fetcher
        self._identity = identity
        self._on_refused = on_refused
        self._lock = asyncio.Lock()

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that are done and not committed yet, of these partitions or of all."""
        chosen = self._fetcher.states if partitions is None else partitions
        states = [self._fetcher.states[tp] for tp in chosen if tp in self._fetcher.states]
        return {
            state.tp: OffsetAndMetadata(state.stored, leader_epoch=state.epoch_before(state.stored))
            for state in states
            if state.stored is not None and state.stored != state.committed
        }

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commit exactly these, one commit after the other."""
        if self._store is None:
            raise IllegalState("commit() needs a group.id to commit for")
        if not offsets:
            return
        async with self._lock:
            while True:
                identity = self._identity()
                if identity is not None and identity.generation < 0:
                    # The group would take it for the commit of a simple consumer, if nobody else is a member.
                    raise refusal(UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", NOT_A_MEMBER, identity.group_id)
                try:
                    await self._store.commit(offsets, identity, timeout_ms)
                    break
                except Refused as error:
                    if identity is None:
                        raise
                    # No need to wait for the next heartbeat to learn the same.
                    self._on_refused(error, identity.generation)
                    if error.code != STALE_MEMBER_EPOCH or not await self._newer_epoch(identity):
                        raise
        self.were_committed(offsets)

    def were_committed(self, offsets: Offsets) -> None:
        """The group has these, whichever way it heard of them."""
        for tp, offset in offsets.items():
            if (state := self._fetcher.states.get(tp)) is not None:
                state.committed = offset.offset

    async def _newer_epoch(self, before: GroupMetadata) -> bool:
        """KIP-848: the member is still one, under a newer epoch that its next heartbeat brings; False if it is not."""
        for _ in range(EPOCH_CHECKS):
            identity = self._identity()
            if identity is None or identity.generation < 0:
                return False
            if identity.generation > before.generation:
                return True
            await asyncio.sleep(EPOCH_CHECK_S)
        return False

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self._store is None:
            raise IllegalState("committed() needs a group.id to ask about")
        return await self._store.committed(partitions)

    async def commit_quietly(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        try:
            await self.commit(offsets, timeout_ms)
        except CommitFailed as error:
            # Nothing is lost: whoever owns the partitions next reads on from the last commit.
            log.info("automatic commit: %s", error)
        except ClientError as error:
            log.warning("automatic commit: %s", error)

    async def commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            await self.commit_quietly(self.to_commit())


# Initial positions
# -----------------


class PositionResolver:
    """Finds positions in the background; `on_failure` hears of what only the application can decide."""

    def __init__(
        self,
        transport: Transport,
        store: OffsetStore | None,
        config: ConsumerConfig,
        fetcher: ConsumerFetcher,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._transport = transport
        self._store = store
        self._config = config
        self._fetcher = fetcher
        self._on_failure = on_failure
        self._background = BackgroundTasks(on_failure)
        self._resolving: asyncio.Task[None] | None = None

    def resolve_soon(self) -> None:
        """Not before the application polls or asks: until then it may still seek."""
        if self._unplaced() and (self._resolving is None or self._resolving.done()):
            self._resolving = self._background.start(self._resolve())

    def _unplaced(self) -> list[ConsumedPartition]:
        return [s for s in self._fetcher.states.values() if s.fetch_offset is None and not s.stuck and not s.revoking]

    async def _resolve(self) -> None:
        """Find out where to begin; try again for as long as the partitions are ours."""
        backoff = self._transport.backoff()
        while missing := self._unplaced():
            try:
                await self._find_positions(missing)
            except (NoOffset, Refused) as error:
                if isinstance(error, Refused) and error.retriable:
                    log.warning("%s", error)
                    await asyncio.sleep(backoff.next_ms() / 1000)
                    continue
                for state in missing:
                    state.stuck = state.fetch_offset is None
                self._on_failure(error)
                return
            except ClientError as error:
                log.warning("%s", error)
                await asyncio.sleep(backoff.next_ms() / 1000)
        self._fetcher.changed()

    async def _find_positions(self, missing: Sequence[ConsumedPartition]) -> None:
        epochs = {state.tp: state.epoch for state in missing}
        found: dict[TopicPartition, int] = {}
        written: dict[TopicPartition, int] = {}
        if self._store is not None:
            # Where the log did not hold the committed offset, it is of no use.
            asked = [state.tp for state in missing if not state.reset]
            for tp, committed in (await self._store.committed(asked)).items() if asked else ():
                if committed is not None:
                    found[tp], written[tp] = committed.offset, committed.leader_epoch
        on_record = set(found)
        # Whoever sought in the meantime has decided for himself.
        if rest := [s.tp for s in missing if s.tp not in found and s.epoch == epochs[s.tp]]:
            found |= await self._reset_positions(rest)
        for state in missing:
            # Another search may have been under way.
            if state.epoch == epochs[state.tp] and state.fetch_offset is None and state.tp in found:
                state.fetch_offset = state.position = found[state.tp]
                if self._transport.leaders.shared:
                    state.begin_history(found[state.tp], written.get(state.tp, UNKNOWN_EPOCH))
                state.reset = False
                state.committed = found[state.tp] if state.tp in on_record else None
                # So that the next owner begins here too, even if nothing is read before it takes over.
                state.stored = state.position if self._config.enable_auto_offset_store else None

    async def _reset_positions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        reset = self._config.auto_offset_reset
        if reset == "none":
            named = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
            raise NoOffset(f"no offset is committed for {named} and auto.offset.reset=none; seek, or choose a reset")
        where = EARLIEST if reset == "earliest" else LATEST
        found = await list_offsets(
            self._transport, dict.fromkeys(partitions, where), committed=self._config.reads_committed
        )
        return {tp: at.offset for tp, at in found.items()}

    async def find_committed(self, states: Sequence[ConsumedPartition]) -> None:
        """Begin again at the committed positions. Raises what stands in the way; a later search tries again then."""
        if self._store is None:
            raise IllegalState("seek_to_committed() needs a group.id whose committed offsets it goes back to")
        self._store.forget_start()
        for state in states:
            state.move_to(None)
            state.reset = False
            state.stored = None
        try:
            await self._find_positions(states)
        finally:
            self._fetcher.changed()

    async def resolved(self) -> None:
        """Wait for the search under way."""
        self.resolve_soon()
        if self._resolving is not None:
            await asyncio.wait([self._resolving])

    async def stop(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
            await asyncio.gather(self._resolving, return_exceptions=True)


# Seek, pause and resume
# ----------------------


class PositionControl:
    """`handed` are the partitions with records handed over and not yet done; `wake` says that more may be ready."""

    def __init__(
        self,
        transport: Transport,
        config: ConsumerConfig,
        fetcher: ConsumerFetcher,
        positions: PositionResolver,
        handed: dict[TopicPartition, ConsumedPartition],
        wake: Callable[[], None],
        raise_failure: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._config = config
        self._fetcher = fetcher
        self._positions = positions
        self._handed = handed
        self._wake = wake
        self._raise_failure = raise_failure

    def state_of(self, tp: TopicPartition) -> ConsumedPartition:
        state = self._fetcher.states.get(TopicPartition(*tp))
        if state is None:
            owned = ", ".join(f"{topic}-{number}" for topic, number in sorted(self._fetcher.states)) or "nothing"
            raise IllegalState(f"{tp[0]}-{tp[1]} is not assigned to this consumer; assigned: {owned}")
        return state

    async def position(self, tp: TopicPartition) -> int:
        """The offset of the next record to be handed over, found out first if need be."""
        state = self.state_of(tp)
        while state.position is None:
            self._raise_failure()
            if state.stuck:
                raise NoOffset(f"{tp[0]}-{tp[1]} has no position; seek first")
            await self._positions.resolved()
        return state.position

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        if offset < 0:
            raise IllegalState(f"cannot seek to {offset}; 0 or more is expected (or seek_to_beginning, seek_to_end)")
        self._move(self.state_of(tp), offset)

    async def seek_to_edge(self, partitions: Iterable[TopicPartition], *, end: bool) -> None:
        wanted = [TopicPartition(*tp) for tp in partitions] or sorted(self._fetcher.states)
        states = [self.state_of(tp) for tp in wanted]
        found = await list_offsets(
            self._transport,
            dict.fromkeys(wanted, LATEST if end else EARLIEST),
            committed=self._config.reads_committed,
        )
        for state in states:
            self._move(state, found[state.tp].offset)

    async def seek_to_committed(self) -> None:
        """All partitions that are not about to be given up; what was handed over of them counts as never read."""
        states = [state for state in self._fetcher.states.values() if not state.revoking]
        for state in states:
            self._handed.pop(state.tp, None)
        await self._positions.find_committed(states)

    def _move(self, state: ConsumedPartition, offset: int) -> None:
        state.move_to(offset)
        self._handed.pop(state.tp, None)
        state.stored = offset if self._config.enable_auto_offset_store else state.stored
        self._fetcher.changed()

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state_of(tp) for tp in partitions]:
            if not state.paused:
                state.paused = True
                state.move_to(state.position)
        self._fetcher.changed()

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state_of(tp) for tp in partitions]:
            state.paused = False
        self._wake()
        self._fetcher.changed()

    def paused(self) -> set[TopicPartition]:
        return {state.tp for state in list(self._fetcher.states.values()) if state.paused}
