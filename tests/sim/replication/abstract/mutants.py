"""Machines of leader, follower and lease that break one rule each; a checker that catches none proves nothing."""

from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.follower import Follower, FollowerStep
from muster.coordinator.replication.protocol.leader import (
    FetchDivergence,
    FetchRefusal,
    FollowerProgress,
    IsrAnswer,
    IsrProposal,
    Leader,
    UnitLog,
)
from muster.coordinator.replication.protocol.lease import NEVER, Peer, SilencePromise
from tests.sim.replication.abstract.controller import Rules
from tests.sim.replication.abstract.node import Machines
from tests.sim.replication.logs import LogModel


class HastyLeader(Leader):
    """CL-L3: counts what it has not flushed."""

    def appended(self, half: int, end: int) -> None:
        super().appended(half, end)
        self.halves[half].kept = end


class HastyFollower(Follower):
    """CL-F3: fetches on before what came is flushed."""

    def appended(self, end: int, last_epoch: int) -> None:
        super().appended(end, last_epoch)
        self.kept = end


class GenerousLeader(Leader):
    """CL-L3: commits with fewer than min in sync."""

    def _advance(self, log: UnitLog, now_ms: int) -> bool:
        enough, self.in_sync.min_size = self.in_sync.min_size, 1
        moved = super()._advance(log, now_ms)
        self.in_sync.min_size = enough
        return moved


class ForgetfulLeader(Leader):
    """CL-L3: does not count with those whom it asked to let in, until it is answered; and waits for nobody else."""

    def _advance(self, log: UnitLog, now_ms: int) -> bool:
        largest, self.in_sync.largest = self.in_sync.largest, self.in_sync.committed
        moved = super()._advance(log, now_ms)
        self.in_sync.largest = largest
        return moved

    def _is_awaited(self, log: UnitLog, seen: FollowerProgress, now_ms: int) -> bool:
        return False


class WelcomingLeader(Leader):
    """CL-L5: lets in who has not yet all that there was when its epoch began."""

    def _may_join(self, node: int, now_ms: int) -> bool:
        starts = [log.epoch_start for log in self.halves]
        for log in self.halves:
            log.epoch_start = 0
        joins = super()._may_join(node, now_ms)
        for log, start in zip(self.halves, starts, strict=True):
            log.epoch_start = start
        return joins


class ShrinkingLeader(Leader):
    """CL-L5: counts without those whom it asked to take out, before it is confirmed."""

    def wants(self, now_ms: int) -> IsrProposal | None:
        asked = super().wants(now_ms)
        if asked is not None:
            stay = self.in_sync
            stay.committed = tuple(node for node in stay.committed if node in asked.nodes)
            stay.largest = tuple(node for node in stay.largest if node in asked.nodes)
        return asked


class TrustingLeader(Leader):
    """CL-L5: takes the refusal of a later question for one of an earlier one that nobody answered."""

    def altered(self, question: IsrProposal, answer: IsrAnswer, now_ms: int) -> bool:
        if answer.code == ErrorCode.INELIGIBLE_REPLICA:
            self.in_sync.doubtful = frozenset()
        return super().altered(question, answer, now_ms)


class BlindLeader(Leader):
    """CL-L4: takes the fetch of a former life for one of the present."""

    def fetched(self, half: int, peer: Peer, node_epoch: int, *more: Any) -> FetchRefusal | FetchDivergence | None:
        return super().fetched(half, peer, peer.epoch, *more)


class CredulousLeader(Leader):
    """CL-L4: counts the offset of a log that has parted from its own."""

    def _parted(self, log: UnitLog, seen: FollowerProgress, offset: int, *more: Any) -> FetchDivergence | None:
        parted = super()._parted(log, seen, offset, *more)
        if parted is not None and offset <= log.end:
            seen.node_epoch = seen.peer.epoch
            seen.end = offset
        return parted


class BoldLeader(Leader):
    """CL-G4: rests on its lease with fewer than min in sync."""

    def lease_until(self, lease_ms: int) -> int:
        enough, self.in_sync.min_size = self.in_sync.min_size, 1
        until = super().lease_until(lease_ms)
        self.in_sync.min_size = enough
        return until


class LiteralLeader(Leader):
    """CL-G4 for the committed ISR only: asks no proof of those who were asked to join, and may have."""

    def lease_until(self, lease_ms: int) -> int:
        largest, self.in_sync.largest = self.in_sync.largest, self.in_sync.committed
        until = super().lease_until(lease_ms)
        self.in_sync.largest = largest
        return until


class HardOfHearingLeader(Leader):
    """CL-L9: goes on though it was shown a later epoch."""

    def shown(self, epoch: int) -> bool:
        return False


class UpToDatePeer(Peer):
    """CL-G4: counts the lease from when a fetch came."""

    __slots__ = ()

    def asks(self, now_ms: int, *, anew: bool) -> int:
        number = super().asks(now_ms, anew=anew)
        self.proven, self.base_ms = number, now_ms
        return number


class ImpatientPromise(SilencePromise):
    """CL-G5: answers as soon as it leads."""

    def answers_from(self, session_ms: int) -> int:
        return NEVER


class BornYesterdayPromise(SilencePromise):
    """CL-G5: does not count with what its former life may have promised."""

    def __init__(self, started_ms: int) -> None:
        super().__init__(started_ms)
        self._past.clear()


class ShortPromise(SilencePromise):
    """CL-G5 for the last leader only: the node it last fetched from is the only one that it asks to let go."""

    def let_go(self, node: int) -> None:
        last = max((heard for each, heard in self._past.items() if each >= 0), default=NEVER)
        if self._past.get(node) == last:
            for each in [each for each in self._past if each >= 0]:
                super().let_go(each)


class UnmarkedLog(LogModel):
    """CL-L1: an epoch is known from its first record on."""

    __slots__ = ()

    def become_leader(self, epoch: int) -> None:
        pass


class ForgettingLog(LogModel):
    """CL-L1: records of an epoch that is older than the latest one, in which nothing was written, begin it anew. Our
    own storage did so, and Kafka's would, but that its followers ask by the latest epoch they have noted."""

    __slots__ = ()

    def _assign(self, epoch: int, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs = [entry for entry in self.epochs if entry[0] < epoch and entry[1] < offset]
            self.epochs.append((epoch, offset))


class SuspiciousFollower(Follower):
    """CL-F5: cuts to its own high watermark."""

    def _diverged(self, diverging: tuple[int, int], end_for_epoch: Any, epoch_at: Any) -> FollowerStep:
        return self._cut(self.high_watermark, epoch_at)


def whole_session(session_ms: int) -> int:
    """CL-G4: a lease as long as a session, whatever the clocks do."""
    return session_ms


MUTANTS: dict[str, tuple[Machines, Rules]] = {
    "leader counts before the flush": (Machines(leader=HastyLeader), Rules()),
    "follower fetches on before the flush": (Machines(follower=HastyFollower), Rules()),
    "watermark moves below min": (Machines(leader=GenerousLeader), Rules()),
    "watermark without those asked to join": (Machines(leader=ForgetfulLeader), Rules()),
    "join before the epoch's start": (Machines(leader=WelcomingLeader), Rules()),
    "shrink before it is confirmed": (Machines(leader=ShrinkingLeader), Rules()),
    "a later refusal settles an earlier question": (Machines(leader=TrustingLeader), Rules()),
    "the committed set is no question": (Machines(), Rules(settles=False)),
    "node epoch ignored in fetch": (Machines(leader=BlindLeader), Rules()),
    "diverged offset counts": (Machines(leader=CredulousLeader), Rules()),
    "lease below min": (Machines(leader=BoldLeader), Rules()),
    "lease without those asked to join": (Machines(leader=LiteralLeader), Rules()),
    "a later epoch shown is ignored": (Machines(leader=HardOfHearingLeader), Rules()),
    "lease from the receipt of a fetch": (Machines(peer=UpToDatePeer), Rules()),
    "new leader does not wait": (Machines(promise=ImpatientPromise), Rules()),
    "own start does not count": (Machines(promise=BornYesterdayPromise), Rules()),
    "only the last leader is to let go": (Machines(promise=ShortPromise), Rules()),
    "lease as long as a session": (Machines(lease_of=whole_session), Rules()),
    "epoch not marked before the first record": (Machines(log=UnmarkedLog), Rules()),
    "an older epoch begins anew": (Machines(log=ForgettingLog), Rules()),
    "cut to the own watermark": (Machines(follower=SuspiciousFollower), Rules()),
    "directory id ignored": (Machines(), Rules(directories_count=False)),
    "directories rewritten on return": (Machines(), Rules(directories_stay=False)),
    "bounced node not dead first": (Machines(), Rules(bounced_is_dead_first=False)),
    "node epochs in AlterPartition ignored": (Machines(), Rules(node_epochs_count=False)),
}
