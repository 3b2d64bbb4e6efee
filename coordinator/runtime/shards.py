"""Which shard a group belongs to, and a shard's slot in the engine: its core, parked requests and held answers.

`partition_for` is Kafka's rule, so that tools and clients that know it agree with the coordinator.

An answer is released when everything that was decided before it is durable. `refusal_of` gives the reply of the right
type to a request whose shard cannot take it.

An `AppendDraft` encodes what a turn decided, a portion at a time where it is long, so that other shards have turns in
between. However long it takes, it is one append: what one event brought is in the log as a whole, or not at all. Only
positions of one commit that are more than Kafka itself takes in a request (`WHOLE_BYTES`) come into it as several
batches, and a crash in between leaves the first ones.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeGuard

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.effects import (
    REPLY_TYPES,
    Effects,
    GroupChanged,
    MeasureLoad,
    OffsetCommitReply,
    Reply,
    ResolveRegex,
    refusal_reply,
)
from muster.coordinator.core.model.events import (
    NO_PRODUCER,
    ConsumerHeartbeat,
    Event,
    JoinGroup,
    OffsetCommit,
    Request,
    TxnEnded,
    TxnOffsetCommit,
)
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.records import (
    CentralStored,
    OffsetsStored,
    RebalanceDecided,
    RebalanceSettled,
    Record,
    TxnMarked,
    TxnOffsetsStored,
)
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.model.types import RequestId, TimerKey
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.kafka_records import EncodedTurn, encode, encode_in_portions
from muster.coordinator.runtime.node_status import FENCING, Metrics
from muster.coordinator.runtime.own_records import room_probe_record
from muster.coordinator.runtime.ports import Entry, GroupLog, TxnProducer
from muster.coordinator.runtime.replay import LoadReport, Replayable, replay_shard
from muster.coordinator.transactions.effects import TRANSACTION_REPLIES
from muster.coordinator.values import frozen_value

# The shard of a group
# --------------------

REMEMBERED_GROUPS = 16_384
"""How many answers are kept: heartbeats ask for the same few thousand groups again and again."""


@lru_cache(maxsize=REMEMBERED_GROUPS)
def partition_for(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that keeps the group. Raises ValueError without partitions.

    >>> partition_for("group-id", 50), partition_for("consumers-of-orders", 1)
    (13, 0)
    """
    if partitions < 1:
        raise ValueError(f"cannot route group {group_id!r} over {partitions} partitions; at least 1 is needed")
    code = java_hash(group_id)
    # Kafka's Utils.abs: the smallest integer has no positive twin and counts as 0.
    return 0 if code == -(2**31) else abs(code) % partitions


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: h = 31 * h + unit over the UTF-16 code units, in 32 bits with sign.

    >>> java_hash("polygenelubricants")
    -2147483648
    """
    # A lone surrogate is one unit in Java too, so it passes here.
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code - 2**32 if code >= 2**31 else code


# Kinds of shards
# ---------------

EncodeRecords: TypeAlias = Callable[[Sequence[Any]], EncodedTurn]
"""Makes bytes of what a step decided. Raises ValueError for what the format cannot hold."""

EncodeInPortions: TypeAlias = Callable[[Any, int], Generator[None, None, EncodedTurn]]
"""Makes the same bytes of one record that lists very many, with a pause behind each so many of its rows."""

ReplayShard: TypeAlias = Callable[[GroupLog, int, Replayable, LoadReport, Callable[[], bool]], object]
"""Applies a shard's facts to a core, and says in a report what it met. Raises LogFailed."""


Writer: TypeAlias = TxnProducer | TxnMarked | None
"""What a batch is of: a producer's transaction, or its end; None: the shard's own facts."""

TxnRequest: TypeAlias = TxnOffsetCommit | TxnEnded


@dataclass(frozen=True, slots=True)
class ShardKind:
    """How facts of a kind of core become bytes of its log, and come back. In all else the engine runs them alike."""

    encode: EncodeRecords
    replay: ReplayShard
    room_probe: Callable[[], Entry]
    """A record that says nothing: a log that takes it has room."""
    of_transactions: frozenset[type[Event]] = frozenset()
    """Requests of which the log is asked first whether it takes what they write."""
    contents: str = "groups"
    """What a shard of this kind has, in sentences."""
    encode_in_portions: EncodeInPortions | None = None
    """None: of each record the bytes are made in one piece."""


GROUPS: Final = ShardKind(
    encode,
    replay_shard,
    room_probe_record,
    frozenset({TxnOffsetCommit, TxnEnded}),
    encode_in_portions=encode_in_portions,
)


def writer_asked_for(request: TxnRequest) -> Writer:
    """What the log will be asked to write of the request; None: nothing of a transaction, others write it."""
    if isinstance(request, TxnEnded):
        return TxnMarked(request.producer_id, request.epoch, request.commit, request.coordinator_epoch, request.level)
    if request.producer_id == NO_PRODUCER:
        return None
    return TxnProducer(request.producer_id, request.producer_epoch)


# Drafts
# ------


class LogPart(NamedTuple):
    """Records of the groups' topic that come into it as a batch of their own."""

    writer: Writer
    groups: Sequence[Entry]


WHOLE_BYTES: Final = 1 << 20
"""Keys and values of a commit that are one batch, whatever happens: Kafka 4.1 refuses a larger one, by default."""


class AppendDraft:
    """Records of one shard on their way into one append; `draft` gives the log's place for a batch (`GroupLog.draft`).

    What belongs to transactions has batches of its own, in the order in which all was decided (TX-G3).
    """

    def __init__(
        self,
        records: Sequence[Record],
        at_once: int,
        draft: Callable[[], list[Entry]],
        kind: ShardKind = GROUPS,
    ) -> None:
        self.records = records
        self.parts: list[LogPart] = []
        self.ledger = draft()
        self._draft = draft
        self._kind = kind
        self._long: Generator[None, None, EncodedTurn] | None = None
        """What is left of a record that lists very many."""
        self._open: list[Entry] = []
        self._open_bytes = 0
        self._before: tuple[str, Writer] | None = None
        self._full: list[LogPart] = []
        self._portions = split_into_portions(records, at_once)

    def write_on(self) -> bool:
        """Make bytes of the next portion; False: there is none. Raises ValueError for what the format cannot hold."""
        if self._long is not None:
            self._write_rows(self._long)
            return True
        portion = next(self._portions, None)
        if portion is None:
            return False
        writer, commit = writer_of(portion[0]), commit_of(portion)
        if commit is not None and commit == self._before and self._open_bytes >= WHOLE_BYTES:
            self._full += self.parts
            self.parts = []
        self._before = commit
        if not self.parts or self.parts[-1].writer != writer:
            self._open, self._open_bytes = self._draft(), 0
            self.parts.append(LogPart(writer, self._open))
        in_portions = self._kind.encode_in_portions
        if in_portions is not None and len(portion) == 1 and lists_very_many(portion[0]):
            self._long = in_portions(portion[0], ROWS_AT_ONCE)
            self._write_rows(self._long)
        else:
            self._add(self._kind.encode(portion))
        return True

    def _write_rows(self, long: Generator[None, None, EncodedTurn]) -> None:
        """Make bytes of the next rows of a record that lists very many."""
        try:
            next(long)
        except StopIteration as end:
            self._long = None
            self._add(end.value)

    def _add(self, encoded: EncodedTurn) -> None:
        self._open.extend(encoded.groups)
        self._open_bytes += sum(len(key) + len(value or b"") for key, value, _ in encoded.groups)
        self.ledger.extend(encoded.ledger)

    def take_full(self) -> LogPart | None:
        """The first part, if it is a batch of its own in any case. The append has begun with it."""
        return self._full.pop(0) if self._full else None


def commit_of(portion: Sequence[Record]) -> tuple[str, Writer] | None:
    """Whose positions they are, in a portion that has nothing else and may be one of several of a commit."""
    record = portion[0]
    if len(portion) > 1 or not isinstance(record, OffsetsStored | TxnOffsetsStored):
        return None
    return record.group_id, writer_of(record)


def writer_of(record: Record) -> Writer:
    if isinstance(record, TxnOffsetsStored):
        return TxnProducer(record.producer_id, record.epoch)
    return record if isinstance(record, TxnMarked) else None


ROWS_AT_ONCE = 1_000
"""Rows of a record that lists very many of which one turn makes bytes, in a millisecond or two."""

LISTED: Final = frozenset({RebalanceDecided, RebalanceSettled, CentralStored})
"""Records that may list very many."""


def lists_very_many(record: Record) -> bool:
    """Whether it has more rows than one turn makes bytes of."""
    return type(record) in LISTED and take_several_turns((record,), 1)


def take_several_turns(records: Sequence[Record], at_once: int) -> bool:
    """Whether they come to more entries of the log than this, about, or one of them lists very many."""
    count = len(records)
    for record in records:
        if (
            type(record) is OffsetsStored or type(record) is TxnOffsetsStored
        ):  # cheaper than isinstance: every turn asks
            count += len(record.offsets)
        elif type(record) is RebalanceDecided:
            if len(record.entry.members) + len(record.entry.moves) > ROWS_AT_ONCE:
                return True
        elif type(record) is RebalanceSettled:
            if len(record.settlement.unowned) + len(record.settlement.synced) > ROWS_AT_ONCE:
                return True
        elif type(record) is CentralStored and len(record.owners) > ROWS_AT_ONCE:
            return True
    return count > at_once


def split_into_portions(records: Sequence[Record], at_once: int) -> Iterator[list[Record]]:
    """The records in their order, in lists of at most so many entries of the log, and each of one writer.

    One that lists very many has a portion of its own.
    """
    portion, room, of = list[Record](), at_once, None
    for record in split_commits(records, at_once):
        if isinstance(record, OffsetsStored | TxnOffsetsStored):
            size = len(record.offsets)
        else:
            size = at_once if lists_very_many(record) else 1
        writer = writer_of(record)
        if portion and (size > room or writer != of):
            yield portion
            portion, room = [], at_once
        portion.append(record)
        room -= size
        of = writer
    if portion:
        yield portion


def split_commits(records: Sequence[Record], at_once: int) -> Iterator[Record]:
    """The records in their order; what one commit brought as several, where it is more than so many positions."""
    for record in records:
        if isinstance(record, OffsetsStored | TxnOffsetsStored) and len(record.offsets) > at_once:
            left = iter(record.offsets.items())
            while some := dict(islice(left, at_once)):
                yield replace(record, offsets=some)
        else:
            yield record


# Slots
# -----

FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 10_000
CALM_MS = 60_000
"""A shard that went this long without failing starts over with an immediate reload."""


Replies: TypeAlias = Sequence[tuple[RequestId, Reply]]
Notices: TypeAlias = Sequence[GroupChanged]


def not_served_sentence(shard: int, why: str, contents: str = GROUPS.contents) -> str:
    """What is told of a shard that failed: in the node's log, by its health, to whoever asks for its contents."""
    return f"the {contents} of shard {shard} are not served: {why}; the shard is loaded again after a pause"


class ShardCore(Protocol):
    """What the engine runs: `muster.coordinator.core.shard.Shard`, or a test's stand-in."""

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        """When each timer is due, ms; kept here and nowhere else. A step says of which it made, moved or cancelled."""

    def writes_nothing(self, event: Any) -> bool:
        """Whether a request can be told in advance to leave no record."""

    def knows(self, group_id: str, member_id: str | None) -> bool:
        """Whether there is such a group, and such a member in it (None: whoever). Names in requests are anybody's."""

    def step(self, event: Any, now_ms: int) -> Effects:
        """Take an event of its kind, or of those that the engine has for all. An exception is a bug: the shard is
        dropped and replayed."""

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        """Take a heartbeat that pushes a session's deadline back and does nothing else; False: it has to be stepped."""

    def apply(self, record: Any) -> None:
        """Take in one fact of the log."""

    def committed_to(self) -> Mapping[tuple[str, bytes], int]:
        """How many positions there are of each topic, by name and id. May take its time."""


class ShardStatus(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """Dropped; it is loaded again, at once or after a pause."""
    UNLOADED = "unloaded"
    """Given up on request; only `load_shard` brings it back."""


@frozen_value
class HeldAnswers:
    """What steps want to say once the first `position` appends of their shard are durable."""

    position: int
    replies: list[tuple[RequestId, Reply]]
    notices: list[GroupChanged]


@dataclass(slots=True)
class ShardSlot:
    index: int
    status: ShardStatus = ShardStatus.LOADING
    core: ShardCore | None = None
    life: int = 0
    """Counts the drops: events queued in an earlier life have been answered and are void."""
    unanswered: dict[RequestId, Request] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    """What this turn decided and has not appended yet; behind a draft, what later turns did."""
    in_transactions: bool = False
    """Whether some of these belong to transactions."""
    guard: object | None = None
    """Leave to begin a transaction in the shard's log, for what is not appended yet: of one producer at a time."""
    draft: AppendDraft | None = None
    """What an earlier turn decided, and what is so long that its append is still being made."""
    rest: Event | None = None
    """What is left of an event that takes several steps."""
    sliced: list[Record] = field(default_factory=list)
    """What these have decided: it is kept as a whole once nothing is left."""
    behind: deque[Event] | None = None
    """What has come since for the shard, and waits; None where nothing has to."""
    overdue: set[TimerKey] = field(default_factory=set)
    """Timers that came due meanwhile."""
    held: deque[HeldAnswers] = field(default_factory=deque)
    patient: set[TimerKey] = field(default_factory=set)
    """Timers that came due while their members' answers were held back."""
    appended: int = 0
    """Counts appends, and replays: what a replay read may not be durable either."""
    durable: int = 0
    why: str = ""
    """Why it failed the last time."""
    failures: int = 0
    failed_at_ms: int | None = None
    report: LoadReport = field(default_factory=LoadReport)

    @property
    def position(self) -> int:
        """How many appends must be durable before anything stepped now may be told."""
        return self.appended + (self.draft is not None) + bool(self.records)

    def held_back(self) -> set[tuple[str, ...]]:
        """Whose answers are held back, as (group, member): what they said next may wait behind these, unheard."""
        asked = (self.unanswered.get(request_id) for held in self.held for request_id, _ in held.replies)
        return {(str(getattr(each, "group_id", "")), str(getattr(each, "member_id", ""))) for each in asked if each}

    def pause_ms(self, now_ms: int) -> int:
        """How long to wait before the next load; doubles while failures follow each other."""
        calm = self.failed_at_ms is None or now_ms - self.failed_at_ms > CALM_MS
        self.failures = 1 if calm else self.failures + 1
        self.failed_at_ms = now_ms
        if self.failures == 1:
            return 0
        return min(FIRST_PAUSE_MS << min(self.failures - 2, 16), LONGEST_PAUSE_MS)


# Answers that wait for the disk
# ------------------------------

# Refusals
# --------

REPLIES: Final[Mapping[type[Any], type[Any]]] = {**REPLY_TYPES, **TRANSACTION_REPLIES}
"""Request -> its type of reply, of every kind of shard."""


def is_request(event: Any) -> TypeGuard[Request]:
    return type(event) in REPLIES


def refuse_request(request: Any, code: ErrorCode, why: str) -> Reply:
    """As `refusal_of`, with what the request itself has to say in it."""
    kind = type(request)
    return refusal_of(kind, code, why) if kind in TRANSACTION_REPLIES else refusal_reply(request, code, why)


def refusal_of(kind: type[Event], code: ErrorCode, why: str = "") -> Reply:
    if kind in REPLY_TYPES:
        return effects.refusal_of(kind, code, why)
    reply: Reply = REPLIES[kind](code=code, message=why or code.meaning)
    return reply


def refusal_while_loading(kind: type[Event]) -> Reply:
    """The answer of a shard that is not yet replayed.

    A heartbeat is answered as if all were well: a failover must not send members into a rejoin.
    """
    if kind is events.Heartbeat:
        return effects.HeartbeatReply()
    return refusal_of(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


BY_INSTANCE = (JoinGroup, ConsumerHeartbeat)
"""Requests by which an instance id may change hands. A tuple: a union would be made anew for each answer."""


@dataclass(frozen=True, slots=True)
class ShardWork:
    """Something a shard wants computed off the loop; its answer goes back with `Engine.answer_work`."""

    shard: int
    life: int
    request: PlanRequest | ResolveRegex | ShadowRequest


@dataclass(frozen=True, slots=True)
class LoadMeasurementWork:
    """A measurement that a shard wants taken; what comes of it goes back with `Engine.answer_work`, in pieces."""

    shard: int
    life: int
    request: MeasureLoad


@dataclass(slots=True)
class ReleasedAnswers:
    """What may be told now, in the order it was decided, and what is to be computed meanwhile."""

    replies: list[tuple[RequestId, Reply]] = field(default_factory=list)
    notices: list[GroupChanged] = field(default_factory=list)
    work: list[ShardWork] = field(default_factory=list)
    loads: list[LoadMeasurementWork] = field(default_factory=list)


NOTHING_RELEASED: Final = ReleasedAnswers()
"""Of most turns that wrote something: its answers wait for the flush."""


class Answers:
    """Keeps what may be told until the driver takes it. What may not be told yet is kept by its slot."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._released = ReleasedAnswers()

    def take_released(self) -> ReleasedAnswers:
        released = self._released
        if not (released.replies or released.notices or released.work or released.loads):
            return NOTHING_RELEASED
        self._released = ReleasedAnswers()
        return released

    def request_work(self, slot: ShardSlot, request: PlanRequest | ResolveRegex | ShadowRequest) -> None:
        """Have something computed for a shard. It is no fact yet, so it waits for nothing."""
        self._released.work.append(ShardWork(slot.index, slot.life, request))

    def measure(self, slot: ShardSlot, request: MeasureLoad) -> None:
        """Have the load of one of its groups measured."""
        self._released.loads.append(LoadMeasurementWork(slot.index, slot.life, request))

    def answer(self, kind: type[Event], request_id: RequestId, reply: Reply) -> None:
        self._metrics.requests[kind.__name__, reply.code] += 1
        self._released.replies.append((request_id, reply))

    def refuse(self, slot: ShardSlot, request_ids: Iterable[RequestId], why: str = "") -> None:
        for request_id in request_ids:
            kind = type(slot.unanswered.pop(request_id))
            self.answer(kind, request_id, refusal_of(kind, ErrorCode.NOT_COORDINATOR, why))

    def deliver_answers(self, slot: ShardSlot, replies: Replies, notices: Notices, *, wrote: bool) -> None:
        """Release at once what rests on durable facts only; hold the rest. wrote: the step left records of its own."""
        position = slot.position
        if position <= slot.durable:
            self.release(slot, replies, notices)
            return
        self._metrics.held += len(replies)
        if slot.held and slot.held[-1].position == position:
            # What a turn says of one shard goes together.
            slot.held[-1].replies.extend(replies)
            slot.held[-1].notices.extend(notices)
        else:
            slot.held.append(HeldAnswers(position, [*replies], [*notices]))

    def reached(self, slot: ShardSlot, position: int) -> None:
        """The shard's first `position` appends are durable: tell what rests on them."""
        slot.durable = max(slot.durable, position)
        while slot.held and slot.held[0].position <= slot.durable:
            held = slot.held.popleft()
            self._metrics.held -= len(held.replies)
            self.release(slot, held.replies, held.notices)

    def forget_held(self, slot: ShardSlot) -> None:
        """What was held back will never be durable."""
        self._metrics.held -= sum(len(held.replies) for held in slot.held)
        slot.held.clear()

    def release(self, slot: ShardSlot, replies: Replies, notices: Notices) -> None:
        anybody_refused, counts = self._metrics.refused_commits, self._metrics.requests
        for request_id, reply in replies:
            request = slot.unanswered.pop(request_id, None)
            if request is not None:  # None: its client is gone
                counts[type(request).__name__, reply.code] += 1
                self._released.replies.append((request_id, reply))
                if reply.code in FENCING and knows_member(slot, group_id := getattr(request, "group_id", "")):
                    self._metrics.fence(group_id, reply.code)
                if isinstance(request, BY_INSTANCE) and request.group_instance_id:
                    self._metrics.instance_answered(request, reply)
                if isinstance(reply, OffsetCommitReply) and (reply.code or reply.partitions or anybody_refused):
                    assert isinstance(request, OffsetCommit), "this is what is answered to commits"
                    if knows_member(slot, request.group_id, request.member_id):
                        self._metrics.commit_answered(request, reply)
        self._released.notices += notices


def knows_member(slot: ShardSlot, group_id: str, member_id: str | None = None) -> bool:
    """Strangers invent names: what is counted by name is counted of those who are there."""
    return slot.core is not None and slot.core.knows(group_id, member_id)


def loading_excuse(slot: ShardSlot, kind: type[Event]) -> Reply:
    """The answer of a shard that is not active."""
    if slot.status is ShardStatus.LOADING:
        return refusal_while_loading(kind)
    return refusal_of(kind, ErrorCode.NOT_COORDINATOR, slot.why if slot.status is ShardStatus.FAILED else "")
