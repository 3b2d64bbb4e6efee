"""The follower: what it asks a leader for and what it makes of the answer (CL-F1 to CL-F8).

`Follower` is one partition in one leader epoch. It knows no log: facts about the log are arguments, what is to be
done to it is the return value, and the caller reports when that is done (`appended`, `keep`, `was_cut`, `began`).

`LeaderFetcher` makes one fetch at a time to a leader's node, over everything that the node leads and this one
copies. Records are appended, then flushed, and the next request says how far. So a node is asked again only when all
that it sent is kept here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, TopicPartition
from muster.coordinator.replication.protocol.lease import FetchSource
from muster.coordinator.replication.protocol.replica_fetch import (
    ANSWER_BYTES,
    NO_SUCH_SESSION,
    PART_BYTES,
    WRONG_SESSION_EPOCH,
    DamagedBatches,
    FetchAnswer,
    FetchedPartition,
    FetchItem,
    FetchRequest,
    ForgottenPartition,
    LogBroken,
    ReplicaLog,
    ThrottleBucket,
    next_session_epoch,
)

# One partition (CL-F2 to CL-F8)
# ------------------------------

UNDEFINED = (NO_EPOCH, -1)

MAX_DAMAGED_FETCHES = 3
"""So often are damaged batches asked for again."""


class FetchPosition(NamedTuple):
    """What a fetch names: the kept end, the epoch of the batch before it, and the leader epoch it believes in."""

    offset: int
    last_epoch: int
    epoch: int


class FetchOutcome(NamedTuple):
    """A leader's answer for one partition, but for its records.

    diverging: (epoch, end offset) of the largest epoch that both know, or None. bytes: how many of records came.
    """

    code: int = 0
    high_watermark: int = -1
    start: int = 0
    diverging: tuple[int, int] | None = None
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append what came, flush it, and say so: `appended`, `kept`."""


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log to this end and flush the cut, the epochs first; then `was_cut`."""

    to: int


@dataclass(frozen=True, slots=True)
class RestartLog:
    """Drop all, and begin anew at this offset; then `began`."""

    at: int


@dataclass(frozen=True, slots=True)
class RetryFetch:
    """Nothing to do but to ask again: after a back-off, or when the image tells something new of the unit."""

    image: bool = False


@dataclass(frozen=True, slots=True)
class StopReplica:
    """The unit stops here with an error; the node tells the controller that it is offline (CL-F9). stays: no disk that
    is mended makes it go on."""

    reason: str
    stays: bool = False


@dataclass(frozen=True, slots=True)
class StaleAnswer:
    """An answer to something that is not asked any more."""


FollowerStep = AppendRecords | TruncateLog | RestartLog | RetryFetch | StopReplica | StaleAnswer
APPEND, WAIT, WAIT_FOR_IMAGE, STALE_ANSWER = AppendRecords(), RetryFetch(), RetryFetch(image=True), StaleAnswer()

AWAITS_IMAGE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class Follower:
    """One partition that another node leads, in one leader epoch.

    end: where the log ends; kept: how far it is flushed; last_epoch: the epoch of its last batch, NO_EPOCH where it is
    empty. high_watermark: what is known to be committed, never above the end. unclean_epoch: the leader epoch of the
    unit's last unclean election, as the image tells it.
    """

    __slots__ = (
        "_cut_in_vain",
        "_damaged",
        "_told_high_watermark",
        "_told_start",
        "end",
        "epoch",
        "high_watermark",
        "kept",
        "last_epoch",
        "leader",
        "place",
        "start",
        "stopped",
        "unclean_epoch",
    )

    def __init__(
        self,
        place: TopicPartition,
        epoch: int,
        leader: int,
        *,
        end: int,
        kept: int | None = None,
        last_epoch: int,
        high_watermark: int,
        start: int = 0,
        unclean_epoch: int = NO_EPOCH,
    ) -> None:
        self.place = place
        self.epoch = epoch
        self.leader = leader
        self.end = end
        self.kept = end if kept is None else kept
        self.last_epoch = last_epoch
        self.start = start
        self.high_watermark = max(start, min(high_watermark, end))
        self.unclean_epoch = unclean_epoch
        self.stopped = ""
        self._damaged = 0
        self._cut_in_vain = False
        self._told_high_watermark = -1
        self._told_start = -1

    @property
    def lag(self) -> int:
        """How many of the records that its leader calls committed are not here yet, as of the last answer."""
        return max(0, self._told_high_watermark - self.end)

    def next_fetch(self) -> FetchPosition | None:
        """What to ask for; None while something of the log is not flushed yet (CL-F3), or once the unit has stopped."""
        if self.stopped or self.kept != self.end:
            return None
        return FetchPosition(self.kept, self.last_epoch, self.epoch)

    def learn(self, epoch: int, leader: int, unclean_epoch: int) -> None:
        """The image names a newer leader epoch. What was asked in the one before is void; the log stays as it is."""
        self.epoch = epoch
        self.leader = leader
        self.unclean_epoch = unclean_epoch
        self._told_high_watermark = self._told_start = -1

    def answered(
        self,
        asked: FetchPosition,
        told: FetchOutcome,
        end_for_epoch: Callable[[int], tuple[int, int]],
        epoch_at: Callable[[int], int],
    ) -> FollowerStep:
        """What to do about an answer.

        end_for_epoch: (epoch, end offset) of the own log's largest epoch not above the one given, (-1, -1) if unknown.
        epoch_at: the epoch of the batch that has the offset, in the own log.
        """
        if self.stopped or asked.epoch != self.epoch or asked.offset != self.kept or self.kept != self.end:
            return STALE_ANSWER
        if told.code:
            return self._refused(told, epoch_at)
        if told.diverging is not None:
            return self._diverged(told.diverging, end_for_epoch, epoch_at)
        self._told_high_watermark = told.high_watermark
        self._told_start = told.start
        if not told.bytes:
            self._commit()
        return APPEND

    def appended(self, end: int, last_epoch: int) -> None:
        """What came is in the log, which ends there now, and may not be flushed yet."""
        self.end = end
        self.last_epoch = last_epoch
        self._damaged = 0
        self._cut_in_vain = False
        self._commit()

    def keep(self, kept: int) -> None:
        """The log is flushed up to there."""
        self.kept = kept

    def damaged(self, what: str) -> FollowerStep:
        """The batches that came are not what was written (CL-F2)."""
        self._damaged += 1
        if self._damaged < MAX_DAMAGED_FETCHES:
            return WAIT
        return self.stop(
            f"What node {self.leader} sends for {self.place} from offset {self.end} on came {self._damaged} times "
            f"damaged: {what}. Look at its disk, and at the network in between."
        )

    def was_cut(self, end: int, last_epoch: int) -> None:
        """The log was cut: it ends there, and is flushed."""
        self.end = self.kept = end
        self.last_epoch = last_epoch
        self.high_watermark = min(self.high_watermark, end)

    def began(self, at: int) -> None:
        """The log was dropped: it begins and ends there."""
        self.start = self.end = self.kept = self.high_watermark = at
        self.last_epoch = NO_EPOCH

    def stop(self, reason: str, *, stays: bool = False) -> StopReplica:
        """The unit goes no further here: an error of the disk, or of the log (CL-F9)."""
        self.stopped = reason
        return StopReplica(reason, stays)

    def _commit(self) -> None:
        """CL-F4: what the leader says is committed, as far as it is here; never back. CL-F8: the log begins where his
        does; whoever has the log moves it, too."""
        if self.start < self._told_start <= self.end:
            self.start = self._told_start
        self.high_watermark = max(self.high_watermark, min(self._told_high_watermark, self.end))

    def _refused(self, told: FetchOutcome, epoch_at: Callable[[int], int]) -> FollowerStep:
        """CL-F7. What the leader's log ends before is a divergence, and is answered as one where epochs are known."""
        if told.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.end < told.start:
                return RestartLog(told.start)
            return self._cut(self.high_watermark, epoch_at)
        return WAIT_FOR_IMAGE if told.code in AWAITS_IMAGE else WAIT

    def _diverged(
        self,
        diverging: tuple[int, int],
        end_for_epoch: Callable[[int], tuple[int, int]],
        epoch_at: Callable[[int], int],
    ) -> FollowerStep:
        """CL-F5: cut to where both logs are the same; where that takes several questions, each cuts further
        (KIP-279)."""
        epoch, end = diverging
        if epoch == NO_EPOCH:
            return self._cut(self.high_watermark, epoch_at)
        own_epoch, own_end = end_for_epoch(epoch)
        if (own_epoch, own_end) == UNDEFINED:
            return self._cut(self.high_watermark, epoch_at)
        return self._cut(min(own_end, end) if own_epoch == epoch else own_end, epoch_at)

    def _cut(self, to: int, epoch_at: Callable[[int], int]) -> FollowerStep:
        """CL-F6: what is committed is cut only where an unclean election since may have undone it."""
        if to >= self.end:
            # What there is to cut is an epoch without records, that the log may have noted at its end; and it may not.
            in_vain, self._cut_in_vain = self._cut_in_vain, True
            return WAIT if in_vain else TruncateLog(self.end)
        if to < self.high_watermark and self.unclean_epoch <= epoch_at(max(to, self.start)):
            return self.stop(
                f"{self.place}: node {self.leader} parts from this log at offset {to}, and what lies below "
                f"{self.high_watermark} is committed. Two logs disagree about committed records; keep both, and "
                "compare them.",
                stays=True,
            )
        return TruncateLog(to) if to >= self.start else RestartLog(to)


# One fetch for each leader's node (CL-F1, CL-F3)
# -----------------------------------------------

ReplicaCopies: TypeAlias = Mapping[TopicPartition, "ReplicaCopy"]


class TruncatedRecords(NamedTuple):
    """Records that an unclean election has cost this copy: from one offset up to another, written in these epochs.
    elected: the leader epoch that the election began."""

    place: TopicPartition
    start: int
    end: int
    epochs: tuple[int, ...]
    elected: int


class ReplicaCopy:
    """A partition that this node copies: the follower's machine, and its log."""

    __slots__ = ("follower", "log", "topic_id")

    def __init__(self, follower: Follower, log: ReplicaLog, topic_id: bytes) -> None:
        self.follower = follower
        self.log = log
        self.topic_id = topic_id


class LeaderFetcher:
    """The fetches to one node. `busy`: a request is under way, or what came of the last one is not flushed yet.

    What a request costs goes with what has changed since the one before, not with how much is copied.
    """

    def __init__(
        self,
        me: int,
        source: FetchSource,
        copies: ReplicaCopies,
        backoff_ms: int,
        *,
        throttle: ThrottleBucket | None = None,
        is_throttled: Callable[[TopicPartition], bool] = lambda place: False,
        part_bytes: int = PART_BYTES,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        """throttle: what all fetchers of this node take from together. is_throttled: whether a copy of this node is
        listed, and not in sync (CL-A9)."""
        self._me = me
        self.source = source
        self._copies = copies
        self._backoff_ms = backoff_ms
        self._throttle = throttle or ThrottleBucket()
        self._is_throttled = is_throttled
        self._sizes = part_bytes, answer_bytes
        self.places: set[TopicPartition] = set()
        self.unkept: set[TopicPartition] = set()
        self._session = 0
        self._session_epoch = 0
        self._told: dict[TopicPartition, FetchItem] = {}
        """What the leader's session knows of each partition."""
        self._changed: dict[TopicPartition, None] = {}
        self._waiting: dict[TopicPartition, int] = {}
        """Not to be asked for before."""
        self._forgotten: dict[TopicPartition, bytes] = {}
        self._under_way: FetchRequest | None = None
        self._not_before_ms = 0
        self.undone: list[TruncatedRecords] = []
        """What was cut since somebody looked, and took it away."""

    @property
    def busy(self) -> bool:
        return self._under_way is not None or bool(self.unkept)

    def add(self, place: TopicPartition) -> None:
        """Copy it from the next request on; from when it is flushed, where something of it is not."""
        self.places.add(place)
        follower = self._copies[place].follower
        if follower.kept != follower.end:
            self.unkept.add(place)
        self._changed[place] = None

    def drop(self, place: TopicPartition) -> None:
        """It is led elsewhere, or in another epoch: what is under way for it is void."""
        self.places.discard(place)
        self.unkept.discard(place)
        self._changed.pop(place, None)
        self._waiting.pop(place, None)
        self._let_go(place)

    def request(self, node_epoch: int, now_ms: int) -> FetchRequest | None:
        """The next fetch, if it is time for one: whoever performs it sends it, and says `answered` or `failed`."""
        if self._under_way is not None or self.unkept or now_ms < self._not_before_ms:
            return None
        if self._waiting:
            for place in [place for place, until_ms in self._waiting.items() if until_ms <= now_ms]:
                del self._waiting[place]
                self._changed[place] = None
        if self._throttle.is_limited and not self._throttle.may(now_ms):
            self._put_off(now_ms)
        items = tuple(self._items())
        gone: tuple[ForgottenPartition, ...] = ()
        if self._forgotten:
            gone = tuple(ForgottenPartition(*each) for each in self._forgotten.items())
            self._forgotten = {}
        elif not self._told:
            return None
        session = self._session, self._session_epoch
        self._under_way = FetchRequest(self._me, node_epoch, *session, items, gone, *self._sizes)
        return self._under_way

    def failed(self, request: FetchRequest, now_ms: int) -> None:
        """No answer came: the session may have gone on without us, so a new one is begun."""
        if request is self._under_way:
            self.begin_anew()
            self._not_before_ms = now_ms + self._backoff_ms

    def answered(
        self, request: FetchRequest, answer: FetchAnswer, now_ms: int
    ) -> list[tuple[TopicPartition, StopReplica]]:
        """Take what came into the logs. What is in `unkept` then is to be flushed, and told by `kept`. Returned: what
        stopped, and why; it is offline here from now on (CL-F9)."""
        if request is not self._under_way:
            return []
        self._under_way = None
        if answer.code:
            self.begin_anew()
            if answer.code not in (NO_SUCH_SESSION, WRONG_SESSION_EPOCH):
                self._not_before_ms = now_ms + self._backoff_ms
            return []
        self.source.received_ms = now_ms
        self._session, self._session_epoch = answer.session, next_session_epoch(request.session_epoch)
        return [(part.place, stop) for part in answer.parts if (stop := self._apply_part(part, now_ms)) is not None]

    def kept(self, places: Iterable[TopicPartition]) -> None:
        """These have been flushed, as far as they went when the flush began: what was written since, as a leader,
        takes another one."""
        for place in places:
            if place in self.unkept:
                copy = self._copies[place]
                copy.follower.keep(copy.log.kept)
                if copy.follower.kept == copy.follower.end:
                    self.unkept.discard(place)
                    self._changed[place] = None

    def next_ms(self) -> int | None:
        """When a request is due, at the latest; None while there is nothing to ask, or nothing may be asked."""
        if self._under_way is not None or self.unkept or not self.places:
            return None
        if self._told or self._changed:
            return self._not_before_ms
        return max(self._not_before_ms, min(self._waiting.values(), default=self._not_before_ms))

    def begin_anew(self) -> None:
        """Name everything in the next request. What is under way is void.

        After a new registration, too: a leader takes in the node epoch of a request for what it names only.
        """
        self._under_way = None
        self._session = self._session_epoch = 0
        self._told, self._forgotten = {}, {}
        self._changed = dict.fromkeys(sorted(self.places - self._waiting.keys()))

    def look_again(self, places: Iterable[TopicPartition]) -> None:
        """They may be in sync now, or come as fast as others: what was put off is asked for."""
        for place in places:
            if self._waiting.pop(place, None) is not None:
                self._changed[place] = None

    def _put_off(self, now_ms: int) -> None:
        """CL-A9: leave out of the session what is to go slowly, until the bucket has filled."""
        until_ms = self._throttle.ready_ms(now_ms)
        for place in self.places - self._waiting.keys():
            if self._is_throttled(place):
                self._let_go(place)
                self._changed.pop(place, None)
                self._waiting[place] = until_ms

    def _let_go(self, place: TopicPartition) -> None:
        """Have it taken out of the leader's session: it is not asked for, for now."""
        told = self._told.pop(place, None)
        if told is not None:
            self._forgotten[place] = told.topic_id

    def _items(self) -> Iterator[FetchItem]:
        changed, self._changed = self._changed, {}
        for place in changed:
            copy = self._copies[place]
            ask = copy.follower.next_fetch()
            if ask is None:
                continue  # it has stopped
            item = FetchItem(place, copy.topic_id, ask.epoch, ask.offset, ask.last_epoch, copy.log.start)
            if self._forgotten.get(place) == copy.topic_id:
                del self._forgotten[place]
            if self._told.get(place) != item:
                self._told[place] = item
                yield item

    def _apply_part(self, part: FetchedPartition, now_ms: int) -> StopReplica | None:
        """One partition's part of an answer; why it stopped, if it did."""
        asked = self._told.get(part.place)
        copy = self._copies.get(part.place) if part.place in self.places else None
        if asked is None or copy is None or part.topic_id != asked.topic_id:
            return None
        follower = copy.follower
        told = FetchOutcome(part.code, part.high_watermark, part.start, part.diverging, len(part.records))
        try:
            verdict = follower.answered(
                FetchPosition(asked.offset, asked.last_epoch, asked.epoch),
                told,
                copy.log.end_for_epoch,
                copy.log.epoch_at,
            )
            if isinstance(verdict, AppendRecords) and len(part.records):
                verdict = self._append(part, copy, now_ms)
            return self._do(verdict, part, copy, now_ms)
        except LogBroken as error:
            self._let_go(part.place)
            return follower.stop(str(error))

    def _append(self, part: FetchedPartition, copy: ReplicaCopy, now_ms: int) -> FollowerStep:
        try:
            copy.log.append_as_follower(part.records)
        except DamagedBatches as error:
            return copy.follower.damaged(str(error))
        copy.follower.appended(copy.log.end, copy.log.last_epoch)
        if self._throttle.is_limited and self._is_throttled(part.place):
            self._throttle.charge_bytes(len(part.records), now_ms)
        self.unkept.add(part.place)
        return AppendRecords()

    def _do(self, verdict: FollowerStep, part: FetchedPartition, copy: ReplicaCopy, now_ms: int) -> StopReplica | None:
        follower, log = copy.follower, copy.log
        match verdict:
            case AppendRecords():
                if log.start < part.start <= log.end:
                    log.advance_start(part.start)
                    self._changed[part.place] = None
            case TruncateLog(to):
                self._undo(copy, to)
                log.cut(to)
                follower.was_cut(log.end, log.last_epoch)
                self._changed[part.place] = None
            case RestartLog(at):
                self._undo(copy, at)
                log.restart_at(at)
                follower.began(at)
                self._changed[part.place] = None
            case RetryFetch():
                self._let_go(part.place)
                self._waiting[part.place] = now_ms + self._backoff_ms
            case StopReplica():
                self._let_go(part.place)
                return verdict
            case StaleAnswer():
                return None
        log.tell_high_watermark(follower.high_watermark)
        return None

    def _undo(self, copy: ReplicaCopy, to: int) -> None:
        """What is cut now is lost if an unclean election came after it was written: without one it was never promised
        to anybody (CL-F6). Whoever begins anew behind its own end has not kept up, and has lost nothing by that."""
        start, log = max(to, copy.log.start), copy.log
        if start < log.end and log.epoch_at(start) < copy.follower.unclean_epoch:
            epochs = epochs_between(log, start)
            self.undone.append(
                TruncatedRecords(copy.follower.place, start, log.end, epochs, copy.follower.unclean_epoch)
            )


def epochs_between(log: ReplicaLog, offset: int) -> tuple[int, ...]:
    """The leader epochs of the batches from an offset on, in order."""
    found = []
    while offset < log.end and (epoch := log.epoch_at(offset)) != NO_EPOCH:
        found.append(epoch)
        end = log.end_for_epoch(epoch)[1]
        if end <= offset:
            break
        offset = end
    return tuple(found)
