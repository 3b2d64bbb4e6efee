"""An engine that shares its shards with other nodes: it serves the shards it was given, as long as it may.

A shard is UNLOADED until `load_shard`, and again after `leave`. A driver uses this engine as it does any other; its
`LeaseAuthority` also calls

    engine.committed(shard, position, now_ms)    the shard's first `position` appends count from now on
    engine.opened(shard, now_ms)                 its answers may leave and its timers fire, after they might not
    engine.moved(shard, by_ms, now_ms)           before that, by how much its deadlines come later
    engine.starve(shard, why, now_ms)            nothing can be written for now; `feed` once it can
    engine.late(now_ms)                          every now and then: requests that have waited too long are answered
    engine.take_over(shard, warm, now_ms)        as load_shard, from what was kept ready of it
    engine.load_shard(shard, now_ms), leave(shard, why, now_ms)

in the driver's thread, and makes the driver look for answers to release then. Only what is committed is answered
(CL-G3), and only while no other node answers for the shard (CL-G4 to CL-G6).

A `WarmShard` keeps a shard ready that another node leads (CL-G8): its core takes in what is committed, as it comes.
Applying each record as it comes gives what a replay gives, which takes only the newest of each key: it is what the
leader's own core does. The two topics of a shard speak of different things, so it makes no difference how far one is
ahead of the other. What a replay can pass over and this cannot (damage, a record that says nothing, facts that an
older version kept elsewhere) makes the core useless: the shard is then loaded from its log.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeAlias

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import (
    ConsumerHeartbeatReply,
    Effects,
    HeartbeatReply,
    PushReply,
    Reply,
)
from muster.coordinator.core.model.events import Event, StoodStill, TimerFired, TopicsChanged, Unload
from muster.coordinator.core.model.ledger import SharedEntries
from muster.coordinator.core.model.records import CentralStored, DelayStored, OwnRecord
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.deadlines import Deadlines
from muster.coordinator.runtime.engine import NO_OPTIONS, Engine, EngineOptions, MakeShard
from muster.coordinator.runtime.node_status import Metrics
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import GroupLog, KeyValue, LogDamage, LogFailed, Read
from muster.coordinator.runtime.replay import (
    FORGOTTEN,
    GROUPS_TOPIC,
    LEDGER_TOPIC,
    TOMBSTONES,
    LoadReport,
    decode_records,
    group_offsets,
)
from muster.coordinator.runtime.shards import (
    GROUPS,
    Answers,
    HeldAnswers,
    Notices,
    Replies,
    ShardCore,
    ShardKind,
    ShardSlot,
    ShardStatus,
    loading_excuse,
    refusal_of,
)
from muster.coordinator.runtime.stepper import FlushJob, FlushQueue, LoadJob, Reports, Stepper, script_line
from muster.coordinator.values import frozen_value

# The authority
# -------------


class LeaseAuthority(Protocol):
    """Who decides, and knows what of a shard's log counts. Called by the engine's thread.

    It calls back (see `LeasedEngine`) from within `flushed`, and from none of the others.
    """

    def may_answer(self, shard: int) -> bool:
        """Whether an answer of the shard may leave at this very moment. If not, `LeasedEngine.opened` follows when it
        may."""

    def may_fire(self, shard: int) -> bool:
        """Whether the shard's timers may fire now. If not, `LeasedEngine.opened` follows when they may."""

    def wrote(self, shard: int, position: int) -> None:
        """The shard's log as it is now has its first `position` appends: `LeasedEngine.committed` follows once all of
        that counts."""

    def flushed(self, shards: Collection[int]) -> None:
        """What had been appended to these shards' logs when the flush began is on this node's disk."""

    def broke(self, shard: int, why: str) -> None:
        """The shard's log cannot be flushed."""

    def leads(self, shard: int) -> bool:
        """Whether the shard is this node's to answer for, be it that it cannot do so now."""


# Answers
# -------

AWAY_CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE

TOO_LATE = (
    "the coordinator could not make sure within offsets.commit.timeout.ms that enough nodes have what this rests on; "
    "it may come to be yet, try again"
)
NOT_SURE = "the coordinator is not sure at the moment to be the only one, try again later"


def away_answer(kind: type[Event], why: str) -> Reply:
    """Who asks for positions looks for the coordinator anew: consumers of Kafka's libraries (aiokafka, kafka-python)
    take 15 there for the end of all, and 16 in their stride."""
    return refusal_of(kind, ErrorCode.NOT_COORDINATOR if kind is events.OffsetFetch else AWAY_CODE, why)


@frozen_value
class HeldAnswersSince(HeldAnswers):
    """since_ms: when it was decided."""

    since_ms: int


def is_unchanged_heartbeat(request: Event | None, reply: Reply) -> bool:
    """Whether it is a heartbeat's answer that has nothing new in it."""
    if isinstance(request, events.SessionHeartbeat) and isinstance(reply, PushReply) and reply.consumer is not None:
        request, reply = request.heartbeat, reply.consumer
    if isinstance(reply, ConsumerHeartbeatReply):
        same = isinstance(request, events.ConsumerHeartbeat) and request.member_epoch == reply.member_epoch > 0
        return same and not reply.code and reply.assignment is None and reply.coming is None
    return isinstance(reply, HeartbeatReply) and not reply.code


class LeasedAnswers(Answers):
    """Answers wait for `Engine.committed`, and for the authority's leave, which is asked for when they go.

    A heartbeat's answer that says that all is as before waits for the leave alone: it rests on what the member was told
    before, which is on record. While a follower stands still, a commit would else keep every member of its shard from
    hearing anything for as long as `offsets.commit.timeout.ms`, and members with short sessions would give up.
    """

    def __init__(self, metrics: Metrics, authority: LeaseAuthority, clock_ms: Callable[[], int]) -> None:
        """clock_ms: the engine's time, as it was told last."""
        super().__init__(metrics)
        self._authority = authority
        self._clock_ms = clock_ms

    def deliver_answers(self, slot: ShardSlot, replies: Replies, notices: Notices, *, wrote: bool) -> None:
        position = slot.position
        if not slot.held and position <= slot.durable and self._authority.may_answer(slot.index):
            self.release(slot, replies, notices)
            return
        if not wrote:
            replies = self._release_unchanged(slot, replies)
        if replies or notices:
            slot.held.append(HeldAnswersSince(position, [*replies], [*notices], self._clock_ms()))
            self._metrics.held += len(replies)

    def _release_unchanged(self, slot: ShardSlot, replies: Replies) -> Replies:
        """Tell heartbeats that all is as before; what is left has to wait."""
        told = [each for each in replies if is_unchanged_heartbeat(slot.unanswered.get(each[0]), each[1])]
        if not told or not self._authority.may_answer(slot.index):
            return replies
        self.release(slot, told, ())
        return [each for each in replies if each not in told]

    def reached(self, slot: ShardSlot, position: int) -> None:
        slot.durable = max(slot.durable, position)
        self.go(slot)

    def go(self, slot: ShardSlot) -> None:
        """Tell what may be told by now, in order."""
        if not slot.held or slot.held[0].position > slot.durable or not self._authority.may_answer(slot.index):
            return
        while slot.held and slot.held[0].position <= slot.durable:
            held = slot.held.popleft()
            self._metrics.held -= len(held.replies)
            self.release(slot, held.replies, held.notices)

    def give_up(self, slot: ShardSlot, until_ms: int) -> bool:
        """Who has waited since `until_ms` or longer hears that it takes too long (CL-G3). Whether there was anybody.

        What is told to watchers has time."""
        late = False
        for at, held in enumerate(slot.held):
            if not isinstance(held, HeldAnswersSince) or held.since_ms > until_ms:
                break
            if not held.replies:
                continue
            late = True
            self._metrics.held -= len(held.replies)
            for request_id, _ in held.replies:
                request = slot.unanswered.pop(request_id, None)
                if request is not None:
                    self.answer(type(request), request_id, away_answer(type(request), TOO_LATE))
            slot.held[at] = HeldAnswersSince(held.position, [], held.notices, held.since_ms)
        while slot.held and not slot.held[0].replies and not slot.held[0].notices:
            slot.held.popleft()
        return late

    def excuse(self, slot: ShardSlot, kind: type[Event]) -> Reply:
        """While it is loaded nobody is told that all is well: another may still answer for the shard (CL-G5)."""
        if slot.status is ShardStatus.LOADING and kind is events.Heartbeat:
            return refusal_of(kind, AWAY_CODE)
        if slot.status is ShardStatus.UNLOADED and self._authority.leads(slot.index):
            return away_answer(kind, NOT_SURE)
        return loading_excuse(slot, kind)


# Stepper
# -------

CatalogBeyondOrphans: TypeAlias = Callable[[ShardCore, Collection[tuple[str, bytes]]], TopicsChanged]
"""Gets a shard that was read, and topics with their ids in which it has positions and which are not in the catalog."""


class LeasedDeadlines(Deadlines):
    """A shard's timers fire by the authority's leave. Those that have none yet are kept by their slot (`patient`)."""

    def __init__(self, slots: Sequence[ShardSlot], authority: LeaseAuthority) -> None:
        super().__init__(slots)
        self._authority = authority

    def may_fire(self, slot: ShardSlot) -> bool:
        return self._authority.may_fire(slot.index)

    def fire(
        self, heard_ms: int, now_ms: int, step: Callable[[ShardSlot, Event, int], None], is_full: Callable[[], bool]
    ) -> int:
        def by_leave(slot: ShardSlot, event: Event, now_ms: int) -> None:
            if self.may_fire(slot):
                step(slot, event, now_ms)
            else:
                assert isinstance(event, TimerFired), "nothing else comes due"
                slot.patient.add(event.key)

        return super().fire(heard_ms, now_ms, by_leave, is_full)


class LeasedFlushQueue(FlushQueue):
    """The authority hears of each append: it knows where the log ends then."""

    def __init__(self, log: GroupLog, authority: LeaseAuthority) -> None:
        super().__init__(log)
        self._authority = authority

    def wrote(self, slot: ShardSlot, now_ms: int) -> None:
        super().wrote(slot, now_ms)
        self._authority.wrote(slot.index, slot.appended)


class LeasedStepper(Stepper):
    answers: LeasedAnswers
    tells = LeasedAnswers
    """What kind of them."""
    waits = LeasedDeadlines
    """The same."""

    def __init__(
        self,
        log: GroupLog,
        slots: Sequence[ShardSlot],
        reports: Reports,
        metrics: Metrics,
        written_at_once: int,
        authority: LeaseAuthority,
        clock_ms: Callable[[], int],
        on_orphans: CatalogBeyondOrphans | None = None,
        kind: ShardKind = GROUPS,
    ) -> None:
        super().__init__(log, slots, reports, metrics, written_at_once, kind)
        self._on_orphans = on_orphans
        self.answers = self.tells(metrics, authority, clock_ms)
        self.deadlines = self.waits(slots, authority)
        self.flushing = LeasedFlushQueue(log, authority)

    def activate(self, slot: ShardSlot, core: ShardCore, topics: TopicsChanged | None, now_ms: int) -> None:
        slot.durable = slot.appended  # what former lives appended has been read, or is gone
        if topics is not None and self._on_orphans is not None:
            orphans = [each for each in slot.report.committed_to if each[0] not in topics.partitions]
            topics = self._on_orphans(core, orphans) if orphans else topics
        super().activate(slot, core, topics, now_ms)

    def leave(self, slot: ShardSlot, why: str, now_ms: int) -> None:
        """Give the shard up at once: whoever waits hears NOT_COORDINATOR, and so does who was promised an answer that
        rests on what is not committed. It may be cut away by whoever leads next, and is never told as done (CL-G1)."""
        self.loads.forget(slot.index)
        self.answers.forget_held(slot)
        farewell = self._farewell(slot, now_ms)
        slot.life += 1
        slot.records.clear()
        self._no_draft(slot)
        self._close_queue(slot)
        self.starved.forget(slot.index)
        slot.status = ShardStatus.UNLOADED
        slot.why = ""
        self.deadlines.forget(slot)
        self.answers.release(slot, farewell.replies, farewell.notices)
        slot.core = None
        self.answers.refuse(slot, list(slot.unanswered))
        self._reports.status(slot.index, slot.status, why)

    def _farewell(self, slot: ShardSlot, now_ms: int) -> Effects:
        """What the core answers those who are parked."""
        if slot.core is None:
            return Effects()
        event = Unload()
        try:
            return slot.core.step(event, now_ms)
        except Exception as error:  # a bug stops nobody from leaving
            self._reports.bug(script_line(slot.index, event, now_ms), error)
            return Effects()

    def starve(self, slot: ShardSlot, why: str, now_ms: int) -> None:
        """Its log takes nothing for now, as if it had no room; no step has to be undone for it."""
        self.starved.refused(slot.index, why, now_ms)

    def feed(self, slot: ShardSlot, now_ms: int) -> None:
        """It takes records again."""
        if slot.index in self.starved.by_shard:
            self.starved.looked_at(slot.index)
            self.probe(slot, now_ms)

    def move(self, slot: ShardSlot, by_ms: int, now_ms: int) -> None:
        """Its deadlines come later by that much."""
        self.step(slot, StoodStill(0, by_ms), now_ms)


# Warm shards
# -----------

SLICE: Final = 400
"""Records of each topic between two pauses: some 5 ms of work."""


class CommittedTail(Protocol):
    """One topic of a shard, read from its first record on. All of it from any thread, one at a time."""

    def more(self, *, committed: bool) -> Iterator[Read | LogDamage] | None:
        """The records that follow what was given before, a portion of them; None: that was all, for now. With
        `committed`, no record above the high watermark. Raises LogFailed."""

    @property
    def behind(self) -> bool:
        """Whether more is committed than was given. It takes no time."""

    def stands(self) -> bool:
        """Whether the log still has all that was given: nothing of it was cut away, and nothing begun anew."""


class WarmLog(Protocol):
    def tail(self, topic: str, shard: int) -> CommittedTail:
        """Raises LogFailed where this node has no such log."""

    def flush(self, shards: Sequence[int]) -> None:
        """See `GroupLog`."""


TakeRecords: TypeAlias = Callable[[list[Read]], None]
"""Takes records of one topic in, in their order. Raises UnfitForWarming."""


class UnfitForWarming(Exception):
    """What the log has cannot be taken in as it comes; the sentence says what it is."""


class WarmShard:
    """The core of a shard of groups, and how far it is. `why` says, once it is of no use, what made it so."""

    def __init__(
        self,
        shard: int,
        core: ShardCore,
        log: WarmLog,
        lock: AbstractContextManager[object],
        tell: Callable[[int, str], None],
    ) -> None:
        """core: a new one. lock: keeps two threads from taking records in at once. tell: hears why the core is of no
        use, in any thread. Raises LogFailed where there is nothing to read."""
        self.shard = shard
        self.core = core
        self.report = LoadReport()
        self._shared = SharedEntries()
        self.why = ""
        self.cut = False
        """The log was cut below what was taken in, or begins anew (CL-F6): so must this."""
        self._log = log
        self._tell = tell
        self._halves = [(log.tail(topic, shard), take) for topic, take in self._takers()]
        self._coming: dict[CommittedTail, Iterator[Read | LogDamage]] = {}
        self._more = False
        self._lock = lock

    @property
    def useless(self) -> bool:
        return self.cut or bool(self.why)

    @property
    def behind(self) -> bool:
        """Whether more is committed than was taken in, as far as can be told at once."""
        return self._more or any(tail.behind for tail, _ in self._halves)

    def take_some(self) -> bool:
        """A slice of what is committed, in any thread. Whether there may be more already."""
        with self._lock:
            self._more = self._guarded(lambda: self._slice(committed=True))
            return self._more

    def take_the_rest(self, given_up: Callable[[], bool]) -> bool:
        """All that there is (CL-G2), in any thread. False: it cannot be done, or nobody wants it any more."""
        with self._lock:
            return self._guarded(lambda: self._rest(given_up)) and not self.useless

    def _guarded(self, work: Callable[[], bool]) -> bool:
        """A mistake here costs no more than the time of a load."""
        if self.useless:
            return False
        try:
            return work()
        except (UnfitForWarming, LogFailed) as error:
            self.why = str(error)
        except Exception as error:
            self.why = f"a record cannot be applied: {error!r}"
        self._tell(self.shard, self.why)
        return False

    def _rest(self, given_up: Callable[[], bool]) -> bool:
        self._log.flush([self.shard])  # as before any replay
        while self._slice(committed=False):
            if given_up():
                return False
        return self._stands()

    def _stands(self) -> bool:
        self.cut = not all(tail.stands() for tail, _ in self._halves)
        return not self.cut

    def _takers(self) -> tuple[tuple[str, TakeRecords], ...]:
        """The shard's topics, and what takes in the records of each."""
        return (GROUPS_TOPIC, self._keep), (LEDGER_TOPIC, self._explain)

    def _slice(self, *, committed: bool) -> bool:
        if not self._stands():
            return False
        found = False
        for tail, take in self._halves:
            some = self._next(tail, committed)
            take(some)
            found = found or bool(some)
        return found

    def _next(self, tail: CommittedTail, committed: bool) -> list[Read]:
        """Some records that follow; none: that was all, for now."""
        while True:
            some = list(islice(self._coming.get(tail, iter(())), SLICE))
            if some:
                return [require_sound(item) for item in some]
            portion = tail.more(committed=committed)
            if portion is None:
                return []
            self._coming[tail] = portion

    def _keep(self, items: list[Read]) -> None:
        for record in group_offsets(items, f"{GROUPS_TOPIC}-{self.shard}", self.report):
            self.core.apply(record)
            self.report.tombstones += isinstance(record, TOMBSTONES)
        self._must_make_sense()

    def _explain(self, items: list[Read]) -> None:
        entries = [item for item in items if isinstance(item, KeyValue)]
        for record in decode_records(entries, decode_ledger, f"{LEDGER_TOPIC}-{self.shard}", self.report):
            if isinstance(record, CentralStored | DelayStored):
                raise UnfitForWarming(f"{LEDGER_TOPIC}-{self.shard} has facts that an older version kept there")
            self.report.ledger += 1
            if isinstance(record, OwnRecord):
                continue  # it ends what is not there
            self.core.apply(self._shared.share_decided(record))
            self.report.tombstones += isinstance(record, FORGOTTEN)
        self._must_make_sense()

    def _must_make_sense(self) -> None:
        if self.report.malformed:
            raise UnfitForWarming(self.report.complaints[0])


def require_sound(item: Read | LogDamage) -> Read:
    if isinstance(item, LogDamage):
        raise UnfitForWarming(f"offset {item.offset}: {item.sentence}")
    return item


@dataclass(eq=False, slots=True)
class WarmJob(LoadJob):
    """Takes the shard that was kept ready to the log's end; where that cannot be done, it is replayed into `core`."""

    warm: WarmShard | None = None

    def run(self) -> None:
        warm = self.warm
        if warm is not None and warm.take_the_rest(lambda: self.given_up):
            self.core, self.report = warm.core, warm.report
            self.report.committed_to = self.core.committed_to()
        else:
            LoadJob.run(self)


# Engine
# ------

COMMIT_TIMEOUT_MS = 5_000
"""The default of `offsets.commit.timeout.ms`."""


class LeasedEngine(Engine):
    """See `Engine`; what it takes beside is named there."""

    _stepper: LeasedStepper
    steps: type[LeasedStepper] = LeasedStepper
    """What makes its stepper."""

    def __init__(
        self,
        log: GroupLog,
        shards: int,
        limits: Limits,
        make_shard: MakeShard = Shard,
        options: EngineOptions = NO_OPTIONS,
        *,
        authority: LeaseAuthority,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        on_orphans: CatalogBeyondOrphans | None = None,
    ) -> None:
        """on_orphans: where a topic that is not in the catalog may be there nevertheless: asked for the catalog to go
        by when a shard is loaded that has positions in such topics. None: those positions are dropped."""
        self._authority = authority
        self._commit_timeout_ms = commit_timeout_ms
        self._on_orphans = on_orphans
        self._now_ms = 0
        self._thin: set[int] = set()
        self._warm: dict[int, WarmShard] = {}
        super().__init__(log, shards, limits, make_shard, options)
        for slot in self._slots:
            slot.status = ShardStatus.UNLOADED

    def _make_stepper(
        self, log: GroupLog, slots: list[ShardSlot], reports: Reports, metrics: Metrics, written_at_once: int
    ) -> LeasedStepper:
        return self.steps(
            log,
            slots,
            reports,
            metrics,
            written_at_once,
            self._authority,
            lambda: max(self._now_ms, self._turned_ms),
            self._on_orphans,
            self._kind,
        )

    @property
    def starved(self) -> Mapping[int, str]:
        """Of want of room. Who is in sync is told elsewhere."""
        return {shard: why for shard, why in super().starved.items() if shard not in self._thin}

    # -- what a driver calls ------------------------------------------------------------------------------

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        self._now_ms = now_ms
        super().loaded(job, now_ms)

    def beat(
        self, shard: int, group_id: str, member_id: str, generation: int, now_ms: int, rights: Rights = None
    ) -> bool:
        """Without leave it takes its place behind what is held; behind that it goes the long way."""
        slot = self._slots[shard]
        if slot.held or not self._authority.may_answer(shard):
            return False
        return super().beat(shard, group_id, member_id, generation, now_ms, rights)

    def flushed(self, job: FlushJob, now_ms: int = 0) -> None:
        """The job's `run` returned. What waits for it waits for other nodes, too."""
        self._now_ms = max(self._now_ms, now_ms)
        self._finished(job, now_ms)
        self._authority.flushed(job.positions)

    def flush_failed(self, job: FlushJob, error: Exception, now_ms: int = 0) -> None:
        self._now_ms = max(self._now_ms, now_ms)
        self._flushing.finish(job)
        failed = set(error.shards if isinstance(error, LogFailed) and error.shards is not None else job.positions)
        for shard in failed & job.positions.keys():
            if self._slots[shard].status is not ShardStatus.UNLOADED:
                self._stepper.drop(self._slots[shard], f"its log cannot be flushed: {error}")
                self._authority.broke(shard, str(error))
        self._authority.flushed(job.positions.keys() - failed)

    # -- what the authority calls -------------------------------------------------------------------------

    def committed(self, shard: int, position: int, now_ms: int) -> None:
        """The shard's first `position` appends are committed: tell what rests on them (CL-G3)."""
        self._now_ms = now_ms
        self._reached(self._slots[shard], position, now_ms)

    def opened(self, shard: int, now_ms: int) -> bool:
        """Answers of the shard may leave, and its timers fire (CL-G4, CL-G6). Whether anything waited for it."""
        self._now_ms = now_ms
        slot = self._slots[shard]
        if not slot.held and not slot.patient:
            return False
        self._reached(slot, 0, now_ms)
        return True

    def moved(self, shard: int, by_ms: int, now_ms: int) -> None:
        """Nobody could be heard for so long: the shard's deadlines move by it (CL-G6)."""
        self._now_ms = now_ms
        self._stepper.move(self._slots[shard], by_ms, now_ms)

    def starve(self, shard: int, why: str, now_ms: int) -> None:
        """The shard's log takes no records for now (CL-G3): who would write is refused, timers stand still."""
        self._thin.add(shard)
        self._stepper.starve(self._slots[shard], why, now_ms)

    def feed(self, shard: int, now_ms: int) -> None:
        """The shard's log takes records again."""
        self._now_ms = now_ms
        self._thin.discard(shard)
        self._stepper.feed(self._slots[shard], now_ms)

    def late(self, now_ms: int) -> bool:
        """Answer who waits for longer than `offsets.commit.timeout.ms` (CL-G3). Whether there was anybody."""
        self._now_ms = now_ms
        late = False
        for slot in self._slots:
            if slot.held and self._stepper.answers.give_up(slot, now_ms - self._commit_timeout_ms):
                late = True
                self._deadlines.answered(slot, now_ms)
        return late

    def take_over(self, shard: int, warm: WarmShard, now_ms: int) -> None:
        """As `load_shard`, and nobody else may use `warm` from here on. A shard that falls is loaded from its log."""
        self._warm[shard] = warm
        try:
            self.load_shard(shard, now_ms)
        finally:
            self._warm.pop(shard, None)

    def leave(self, shard: int, why: str, now_ms: int) -> None:
        """The shard is another's, or may be: nothing more is said of it (CL-G1)."""
        slot = self._slots[shard]
        self._thin.discard(shard)
        if slot.status is not ShardStatus.UNLOADED or slot.unanswered or slot.held or slot.draft is not None:
            self._now_ms = now_ms
            self._stepper.leave(slot, why, now_ms)

    def _load_of(self, shard: int) -> LoadJob:
        warm = self._warm.pop(shard, None)
        if warm is None:
            return super()._load_of(shard)
        return WarmJob(shard, self.new_core(shard), self._log, self._kind, warm=warm)

    def _excuse(self, slot: ShardSlot, kind: type[Event]) -> Reply:
        return self._stepper.answers.excuse(slot, kind)
