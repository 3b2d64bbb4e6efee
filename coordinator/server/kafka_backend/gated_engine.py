"""The engine of a node over an existing Kafka: which requests it refuses before the core sees them.

A shard that is about to move accepts nothing new (KB-F8), and a shard with too much in flight accepts nothing that
would add to it (KB-A3). Requests of an unknown group wait until it is known whether the upstream has it (KB-M2).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Reply, refusal_reply
from muster.coordinator.core.model.events import Event, TurnedAway, TxnWriteOver
from muster.coordinator.core.model.plan import CONSUMER, topics_of
from muster.coordinator.core.model.records import OffsetDeleted, OffsetsStored, OffsetStored, Record
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.offset_migration import ADOPTED
from muster.coordinator.kafka_backend.state_log import RecordTooLarge, StateLog
from muster.coordinator.runtime.engine import NO_OPTIONS, EngineOptions, MakeShard
from muster.coordinator.runtime.leased import (
    COMMIT_TIMEOUT_MS,
    CatalogBeyondOrphans,
    LeaseAuthority,
    LeasedDeadlines,
    LeasedEngine,
    LeasedStepper,
)
from muster.coordinator.runtime.ports import Entry, GroupLog
from muster.coordinator.runtime.shards import ShardSlot, ShardStatus, Writer, is_request
from muster.coordinator.runtime.stepper import LoadJob

SHARD_MOVES: Final = "the group's shard is about to be another node's; look the coordinator up again"
SHARD_FULL: Final = (
    "more waits for the upstream to acknowledge it than engine.kafka.max.unacked.bytes.per.shard; nothing was done, "
    "try again shortly"
)

MAY_BE_LARGE: Final = (
    events.JoinGroup,
    events.SyncGroup,
    events.ConsumerHeartbeat,
    events.OffsetCommit,
)
"""Requests that a record which is too large may be of."""

POSITIONS: Final = (OffsetStored, OffsetsStored, OffsetDeleted)
"""Records by which a group's positions change."""

MOST_HELD: Final = 10_000
"""Requests of one group that wait until it is known."""


class GatedDeadlines(LeasedDeadlines):
    """While nobody may be judged no timer fires: who is refused unread is not silent."""

    may_judge: Callable[[], bool]

    def may_fire(self, slot: ShardSlot) -> bool:
        return self.may_judge() and super().may_fire(slot)


class GatedStepper(LeasedStepper):
    """Tells those whose group's record has no room in the log that it is theirs (KB-S3). The shard goes all the same:
    what was decided is in memory, and nowhere else."""

    waits = GatedDeadlines

    def _keep(
        self,
        slot: ShardSlot,
        records: Sequence[Record],
        parts: Sequence[tuple[Writer, Sequence[Entry]]],
        ledger: Sequence[Entry],
        now_ms: int,
        *,
        whole: bool = True,
    ) -> None:
        try:
            if isinstance(self._log, StateLog):
                for _, groups in parts:
                    self._log.check_room(slot.index, groups)
        except RecordTooLarge as error:
            self._refuse_large_requests(slot, error)
        super()._keep(slot, records, parts, ledger, now_ms, whole=whole)
        if isinstance(self._log, StateLog) and self._log.on_positions is not None:
            self._log.on_positions(slot.index, {record.group_id for record in records if isinstance(record, POSITIONS)})

    def _refuse_large_requests(self, slot: ShardSlot, error: RecordTooLarge) -> None:
        for request_id, request in list(slot.unanswered.items()):
            if isinstance(request, MAY_BE_LARGE) and request.group_id in error.groups:
                del slot.unanswered[request_id]
                refusal = refusal_reply(request, ErrorCode.GROUP_MAX_SIZE_REACHED, str(error))
                self.answers.answer(type(request), request_id, refusal)


class ShardGate(LeaseAuthority, Protocol):
    """An `LeaseAuthority` that is asked before something is stepped, too."""

    def takes(self, shard: int) -> bool:
        """Whether new requests of the shard are this node's to decide."""

    def has_room(self, shard: int) -> bool:
        """Whether more may be decided for the shard by now."""


class AdoptionVerdict(NamedTuple):
    """What becomes of requests of a group that is not known here: NONE, it is served."""

    code: ErrorCode
    message: str = ""


class UnknownGroups(Protocol):
    """Who knows of groups that are not known here (KB-M2)."""

    def verdict_of(self, shard: int, group: str) -> AdoptionVerdict | None:
        """None: it has to be looked for."""

    def look_up_group(self, shard: int, group: str) -> None:
        """Look for it, then call `release_group`."""

    def deleted(self, shard: int, group: str, by: str) -> None:
        """Somebody wants it, or positions of it, deleted here; `by`: who, from where and why."""

    def adopted(self, shard: int, group: str) -> None:
        """Somebody takes it over by hand (KB-M1)."""


class GatedEngine(LeasedEngine):
    """See `LeasedEngine`. newcomers: is asked of groups that are not known, from when it is set. doubts: says why
    nobody may be judged right now by the rights that are known here. on_read: hears which
    topics members subscribe to by name (KB-T1). on_rejoin: hears that a member joins again, perhaps because of a change
    of topics that was not read of yet."""

    _authority: ShardGate
    newcomers: UnknownGroups | None = None
    _held: dict[tuple[int, str], list[Any]]
    steps = GatedStepper

    def __init__(
        self,
        log: GroupLog,
        shards: int,
        limits: Limits,
        make_shard: MakeShard = Shard,
        options: EngineOptions = NO_OPTIONS,
        *,
        authority: ShardGate,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        on_orphans: CatalogBeyondOrphans | None = None,
        on_read: Callable[[Iterable[str]], None] = lambda topics: None,
        on_rejoin: Callable[[], None] = lambda: None,
    ) -> None:
        self._held = {}
        self.doubts: Callable[[], str] = lambda: ""
        self._doubted_ms: int | None = None
        """Since when nobody may be judged; None: they may."""
        self._loaded_ms: dict[int, int] = {}
        self._on_read = on_read
        self._on_rejoin = on_rejoin
        super().__init__(
            log,
            shards,
            limits,
            make_shard,
            options,
            authority=authority,
            commit_timeout_ms=commit_timeout_ms,
            on_orphans=on_orphans,
        )
        assert isinstance(self._deadlines, GatedDeadlines), "it was made by `steps`"
        self._deadlines.may_judge = lambda: not self._in_doubt()

    def flush_job(self) -> None:
        """KB-A5: acknowledgements come on the loop. No thread has a part in it, nor does any answer wait for one."""
        if (job := super().flush_job()) is not None:
            self._flushing.finish(job)
            self._authority.flushed(job.positions)

    def settled(self, shard: int) -> bool:
        """One that is dealt to this node is taken first, and loaded then."""
        status = self._slots[shard].status
        return status is ShardStatus.ACTIVE or (status is ShardStatus.UNLOADED and not self._authority.leads(shard))

    def submit(self, shard: int, event: Event) -> bool:
        slot = self._slots[shard]
        if names := subscribed_topics(event):
            self._on_read(names)
        if isinstance(event, events.JoinGroup) and isinstance(slot.core, Shard) and slot.core.may_follow_topics(event):
            self._on_rejoin()
        if is_request(event) and slot.status is ShardStatus.ACTIVE:
            refusal = self._refusal(slot, event)
            if refusal is None and self.newcomers is not None:
                if self._is_held(slot, event, self.newcomers):
                    return True
                refusal = self._refusal_of_newcomer(slot, event, self.newcomers)
            if refusal is not None:
                self._answers.answer(type(event), event.request_id, refusal)
                self._inbox.append((slot, slot.life, TurnedAway(event)))
                return True
        return super().submit(shard, event)

    def release_group(self, shard: int, group: str) -> None:
        """It is known what becomes of the group: those who waited for it are answered, or go on."""
        for event in self._held.pop((shard, group), ()):
            self.submit(shard, event)

    def _is_held(self, slot: ShardSlot, event: Any, newcomers: UnknownGroups) -> bool:
        """Whether it waits until somebody has looked for its group."""
        if isinstance(event, events.DeleteGroup | events.OffsetDelete):
            newcomers.deleted(slot.index, event.group_id, event.operator)
        elif isinstance(event, events.OffsetCommit) and ADOPTED in event.operator:
            newcomers.adopted(slot.index, event.group_id)
        if not is_first_request(event):
            return False
        place = slot.index, event.group_id
        if place in self._held:
            if len(self._held[place]) >= MOST_HELD:
                return False
            self._held[place].append(event)
            return True
        assert slot.core is not None, "it is active"
        if slot.core.knows(event.group_id, None) or newcomers.verdict_of(*place) is not None:
            return False
        self._held[place] = [event]
        newcomers.look_up_group(*place)
        return True

    def _refusal_of_newcomer(self, slot: ShardSlot, event: Any, newcomers: UnknownGroups) -> Reply | None:
        assert slot.core is not None, "it is active"
        if not is_first_request(event) or slot.core.knows(event.group_id, None):
            return None
        said = newcomers.verdict_of(slot.index, event.group_id) or BUSY
        return refusal_reply(event, said.code, said.message) if said.code else None

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        self._loaded_ms[job.shard] = now_ms
        super().loaded(job, now_ms)

    def late(self, now_ms: int) -> bool:
        """See `LeasedEngine.late`. It is looked whether rights are known, too."""
        if self.doubts():
            self._doubted_ms = now_ms if self._doubted_ms is None else self._doubted_ms
        elif self._doubted_ms is not None:
            self._judges_again(self._doubted_ms, now_ms)
            super().late(now_ms)
            return True
        return super().late(now_ms)

    def _judges_again(self, doubted_ms: int, now_ms: int) -> None:
        """Deadlines come later by as long as rights were not known: who was refused unread could not be heard."""
        self._doubted_ms = None
        for slot in self._slots:
            if slot.status is ShardStatus.ACTIVE:
                self.moved(slot.index, now_ms - max(doubted_ms, self._loaded_ms.get(slot.index, 0)), now_ms)
            self.opened(slot.index, now_ms)

    def _in_doubt(self) -> bool:
        """Whether nobody may be judged, or it has not been seen to yet that they may again."""
        if self._doubted_ms is None and self.doubts():
            self._doubted_ms = self._turned_ms
        return self._doubted_ms is not None

    def beat(
        self, shard: int, group_id: str, member_id: str, generation: int, now_ms: int, rights: Rights = None
    ) -> bool:
        """As its base; refused like all else while rights are not known."""
        return not self.doubts() and super().beat(shard, group_id, member_id, generation, now_ms, rights)

    def _refusal(self, slot: ShardSlot, event: Any) -> Reply | None:
        if (why := self.doubts()) and not isinstance(event, TxnWriteOver):  # which no client asks
            self._in_doubt()
            return refusal_reply(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
        if not self._authority.takes(slot.index):
            return refusal_reply(event, ErrorCode.NOT_COORDINATOR, SHARD_MOVES)
        if self._authority.has_room(slot.index) or slot.core is None or slot.core.writes_nothing(event):
            return None
        return refusal_reply(event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, SHARD_FULL)


BUSY: Final = AdoptionVerdict(
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{MOST_HELD} requests of the group wait until it is known"
)


def is_first_request(event: Any) -> bool:
    """Whether a client begins with it what it does in a group: with its positions, or as a member."""
    if isinstance(event, events.ConsumerHeartbeat):
        return event.member_epoch == 0
    return isinstance(event, events.JoinGroup | events.OffsetFetch)


def subscribed_topics(event: Event) -> Iterable[str]:
    """The topics that a member names as it joins, or changes what it reads."""
    if isinstance(event, events.ConsumerHeartbeat):
        return event.topic_names or ()
    if isinstance(event, events.JoinGroup) and event.protocol_type == CONSUMER and event.protocols:
        return topics_of(event.protocols[0].metadata) or ()
    return ()
