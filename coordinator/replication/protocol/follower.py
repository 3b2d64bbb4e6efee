"""A follower of one partition: what it asks its leader for, and what it makes of the answer (docs/design/cluster.md,
"The follower": CL-F1 to CL-F11).

It knows no log: what it has to know of one comes as arguments, what is to be done to it goes back as a value, and is
reported (`appended`, `kept`, `was_cut`, `began`) when it is done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.facts import NO_EPOCH, TopicPartition

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
APPEND, WAIT, WAIT_FOR_IMAGE, VOID = AppendRecords(), RetryFetch(), RetryFetch(image=True), StaleAnswer()

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
            return VOID
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
