"""The leader of a unit in one leader epoch: follower progress, ISR, high watermark, lease (CL-L1 to CL-L10).

A unit has one ISR and one or two logs (`halves_of`). The leader knows no log: the code that writes one reports it
(`appended`, `kept`), and the code that serves a follower's fetch asks it first (`fetched`). When a leader begins at
an epoch, the log has already recorded that the epoch begins at its end (CL-L1); `epoch_start` is that end.

`IsrState` is how the leader agrees with the controller on the ISR (CL-L5): one question at a time, and what may have
come of questions without an answer.

`fetched` runs thousands of times a second. It builds nothing where nothing has changed, and reports in `moved` and
`wishes` what there is to look at afterwards.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, PartitionState, TopicPartition
from muster.coordinator.replication.protocol.lease import FOREVER, NEVER, Peer

# How far followers are
# ---------------------


class FollowerProgress:
    """What a follower's fetches of one log have shown in this epoch. `end` is its kept end, -1 before it has fetched.

    caught_up_ms: the last moment at which it had all that there was (Kafka's). base_ms, session, first: how far its
    fetches prove that it takes us for the leader; see `Leader.lease_until`.
    """

    __slots__ = (
        "agreed_end",
        "agreed_epoch",
        "base_ms",
        "caught_up_ms",
        "end",
        "end_then",
        "fetched_ms",
        "first",
        "node_epoch",
        "peer",
        "session",
        "start",
    )

    def __init__(self, peer: Peer, caught_up_ms: int) -> None:
        self.peer = peer
        self.node_epoch = NO_EPOCH
        self.end = -1
        self.start = -1
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = NEVER
        self.end_then = FOREVER
        self.agreed_epoch = NO_EPOCH
        self.agreed_end = -1
        self.session = -1
        self.first = 0
        self.base_ms = NEVER

    def proved_ms(self) -> int:
        """When the latest answer was sent of which it is known that it was received, in this epoch (CL-G4)."""
        peer = self.peer
        return peer.base_ms if self.session == peer.session and peer.proven >= self.first else self.base_ms

    def enters(self) -> None:
        """Its session names this log for the first time. What was proved in the session before stays so, if this one
        goes on from it: a request that begins a session names all that the follower still follows."""
        peer = self.peer
        goes_on = self.session == peer.session or (self.session == peer.session - 1 and peer.asked == peer.began)
        if goes_on and peer.proven >= self.first:
            self.base_ms = peer.base_ms
        self.session, self.first = peer.session, peer.asked

    def leaves(self) -> None:
        """Its session lets go of this log."""
        self.base_ms = self.proved_ms()
        self.session = -1

    def rests(self) -> None:
        """It has all there is, and more comes now: its session's latest request was a fetch at the end."""
        if self.session == self.peer.session:
            self.caught_up_ms = self.fetched_ms = self.peer.heard_ms

    def caught_up(self, end: int) -> int:
        """The last moment at which it had all there was. A session names what changed only: where nothing has, each
        of its requests is a fetch of this log, too."""
        if self.end >= end and self.session == self.peer.session:
            return self.peer.heard_ms
        return self.caught_up_ms


class UnitLog:
    """One log of a unit as its leader knows it: offsets of its end, of what is flushed, of what is committed."""

    __slots__ = ("end", "epoch_start", "high_watermark", "kept", "seen", "start")

    def __init__(self, *, end: int, high_watermark: int, kept: int | None = None, start: int = 0) -> None:
        self.start = start
        self.end = end
        self.kept = end if kept is None else kept
        self.high_watermark = max(start, high_watermark)
        self.epoch_start = end
        self.seen: dict[int, FollowerProgress] = {}


def is_live_follower(seen: FollowerProgress) -> bool:
    """What it has shown is of the life in which it is registered, and it is not about to go."""
    peer = seen.peer
    return seen.node_epoch == peer.epoch != NO_EPOCH and not peer.leaving


# The in-sync replicas, and what the controller is asked for (CL-L5)
# ------------------------------------------------------------------

RETRY_MS = 100
"""After a controller that could not be asked, or refused for the moment."""

AWAITS_IMAGE = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What the controller is asked for: these in-sync replicas instead of those of `partition_epoch`.

    isr: (node id, node epoch) in order of assignment; the epoch is the one by which the replica was found in sync.
    """

    unit: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(node for node, _ in self.isr)


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """What the controller says to that. NONE: these are the replicas in sync as of `partition_epoch`. REQUEST_TIMED_OUT
    stands for every answer that did not come: the controller may have done it, and may do it yet."""

    code: ErrorCode
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()


class IsrState:
    """The in-sync replicas of a unit, as its leader knows them in one leader epoch.

    committed: as of partition_epoch. largest: besides them those whom the controller was asked to let in, and may have
    let in. It tells answers of this question from late ones by `asked`, the very object.

    A question that nobody answered may still be done, as long as the partition epoch it names is the present one. So
    those it would let in are counted with (`doubtful`) until an answer or the image names a later partition epoch. A
    refusal of a later question proves nothing of an earlier one; the controller is then asked for the committed set
    as it is, which makes a new partition epoch, and thereby voids what is under way (`settle`).
    """

    __slots__ = (
        "_wait_until",
        "_waits_for_image",
        "asked",
        "committed",
        "doubtful",
        "largest",
        "min_size",
        "partition_epoch",
        "settle",
    )

    def __init__(self, committed: tuple[int, ...], partition_epoch: int, min_size: int) -> None:
        self.committed = committed
        self.largest = committed
        self.partition_epoch = partition_epoch
        self.min_size = min_size
        self.asked: IsrProposal | None = None
        self.doubtful: frozenset[int] = frozenset()
        self.settle = False
        self._waits_for_image = False
        self._wait_until = NEVER

    @property
    def enough(self) -> bool:
        return len(self.committed) >= self.min_size

    @property
    def open(self) -> bool:
        """Whether another question may be asked, some time."""
        return self.asked is None and not self._waits_for_image

    def may_ask(self, now_ms: int) -> bool:
        return self.open and now_ms >= self._wait_until

    def begin_proposal(self, question: IsrProposal) -> IsrProposal:
        """The question is under way from here on."""
        self.asked = question
        self._measure()
        return question

    def answered(self, answer: IsrAnswer, leader_epoch: int, now_ms: int) -> None:
        """The answer to `asked`, or that there was none."""
        asked, self.asked = self.asked, None
        assert asked is not None
        code = answer.code
        if code == ErrorCode.NONE and answer.leader_epoch != leader_epoch:
            code = ErrorCode.REQUEST_TIMED_OUT
        if code == ErrorCode.NONE:
            self.commit(answer.isr, answer.partition_epoch)
            return
        self._wait_until = now_ms + RETRY_MS
        if code == ErrorCode.REQUEST_TIMED_OUT:
            self.doubtful |= set(asked.nodes).difference(self.committed)
        elif code == ErrorCode.INELIGIBLE_REPLICA:
            self.settle = bool(self.doubtful)
        elif code in AWAITS_IMAGE:
            self.doubtful |= set(asked.nodes).difference(self.committed)
            self._waits_for_image = True
        self._measure()

    def commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """These are in sync as of that partition epoch; what was asked for under an older one will not be done."""
        self.committed = isr
        self.partition_epoch = partition_epoch
        self.asked = None
        self.doubtful = frozenset()
        self.settle = False
        self._waits_for_image = False
        self._measure()

    def _measure(self) -> None:
        more = set(self.doubtful)
        if self.asked is not None:
            more.update(self.asked.nodes)
        self.largest = self.committed + tuple(sorted(more.difference(self.committed)))


# The leader of a unit (CL-L1 to CL-L10)
# --------------------------------------

ALL = -1
"""acks=all."""


class FetchRefusal(NamedTuple):
    """A follower's fetch, or an append, that is refused."""

    code: ErrorCode


class FetchDivergence(NamedTuple):
    """The follower's log parts from ours: the largest epoch not above its last one that we know, and its end."""

    epoch: int
    end: int


NOT_LEADING = FetchRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
FENCED = FetchRefusal(ErrorCode.FENCED_LEADER_EPOCH)
UNKNOWN_EPOCH = FetchRefusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
OUT_OF_RANGE = FetchRefusal(ErrorCode.OFFSET_OUT_OF_RANGE)


class Leader:
    """This node leads a unit in one leader epoch. `over` once it has seen a later one (CL-L9).

    passed_by: others may lead by now, and nobody could tell (see `look_around`).
    seen_epoch: the highest leader epoch that it was shown: the node leads the unit again only by an image of that one,
    or of a later one. in_sync: who is, and whom the controller was asked to let in. moved: the high watermark of a half
    has moved since somebody set it to False; wishes: `wants` may have something to say. lets_in: whether others may
    join those in sync; a shard's term holds them back as long as it owes silence to former leaders
    (`CoordinatorTerm`).
    """

    __slots__ = (
        "_began_ms",
        "epoch",
        "halves",
        "in_sync",
        "lag_time_ms",
        "lets_in",
        "me",
        "moved",
        "over",
        "passed_by",
        "replicas",
        "seen_epoch",
        "unit",
        "wishes",
    )

    def __init__(
        self,
        me: Peer,
        unit: TopicPartition,
        state: PartitionState,
        replicas: Sequence[Peer],
        halves: Sequence[UnitLog],
        *,
        min_isr: int,
        lag_time_ms: int,
        now_ms: int,
    ) -> None:
        """me and replicas: the one object per node that everything on this node shares. state: of the image.
        min_isr: min.insync.replicas of the unit; more than it has replicas count as so many."""
        self.me = me
        self.unit = unit
        self.epoch = state.leader_epoch
        self.halves = tuple(halves)
        self.lag_time_ms = lag_time_ms
        self.over = False
        self.passed_by = False
        self.seen_epoch = self.epoch
        self._began_ms = now_ms
        self.moved = False
        self.wishes = False
        self.lets_in = True
        self.in_sync = IsrState(state.isr, state.partition_epoch, min_isr)
        self.replicas: tuple[int, ...] = ()
        self._assign(replicas, min_isr, now_ms)
        self._advance_all(now_ms)

    @property
    def high_watermark(self) -> int:
        """Of the half that names the unit."""
        return self.halves[0].high_watermark

    @property
    def isr(self) -> tuple[int, ...]:
        return self.in_sync.committed

    # What the log's writer tells and asks.

    def may_append(self, acks: int) -> ErrorCode:
        """CL-L2: whether records may be written at all, asked before they are."""
        if self.over:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == ALL and not self.in_sync.enough:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def appended(self, half: int, end: int) -> None:
        """The log ends there now; where the topic does not flush record by record, `kept` follows at once."""
        log = self.halves[half]
        for seen in log.seen.values():
            if seen.end >= log.end:
                seen.rests()
        log.end = end

    def kept(self, half: int, kept: int, now_ms: int) -> bool:
        """The log is flushed up to there. Whether the high watermark moved."""
        log = self.halves[half]
        before, log.kept = log.kept, kept
        return self._held(log, before) and self._advance(log, now_ms)

    def begins(self, half: int, start: int) -> None:
        """The log begins there now: retention took what lies before, or DeleteRecords; never what is not committed."""
        self.halves[half].start = start

    def parked(self, half: int, end: int) -> ErrorCode | None:
        """CL-L2: what to answer an acks=all append that ends at `end`; None: not decided yet."""
        if self.over or self.passed_by:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.halves[half].high_watermark < end:
            return None
        return ErrorCode.NONE if self.in_sync.enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def latest(self, half: int) -> int | None:
        """CL-L8: the latest offset as consumers are told; None: OFFSET_NOT_AVAILABLE, for what earlier leaders had
        committed may lie above the high watermark that is known here."""
        log = self.halves[half]
        return log.high_watermark if log.high_watermark >= log.epoch_start else None

    def low_watermark(self, half: int) -> int:
        """CL-A3b: the smallest start of the in-sync replicas' logs; -1 while one of them has not told its own."""
        log = self.halves[half]
        return min([log.start, *(log.seen[node].start for node in self.isr if node in log.seen)])

    # What followers ask.

    def shown(self, epoch: int) -> bool:
        """CL-L9: somebody on the door between nodes names this leader epoch. Whether that ends this leader."""
        if epoch <= self.epoch:
            return False
        ends, self.over = not self.over, True
        self.seen_epoch = max(self.seen_epoch, epoch)
        return ends

    def fetched(
        self,
        half: int,
        peer: Peer,
        node_epoch: int,
        epoch: int,
        offset: int,
        last_epoch: int,
        start: int,
        end_for_epoch: Callable[[int], tuple[int, int]],
        now_ms: int,
    ) -> FetchRefusal | FetchDivergence | None:
        """A follower's fetch of one log (CL-L4 to CL-L6); `peer.asks` was told of the request before. None: give it
        records from `offset` on, up to our end.

        node_epoch: what the request says of the sender; epoch: the leader epoch it believes in; last_epoch: of the
        batch before `offset`; start: of its log. end_for_epoch: (epoch, end offset) of the largest epoch of our log
        that is not above the one given, (-1, -1) if unknown.
        """
        if epoch != self.epoch or self.over:
            ended = self.over
            self.shown(epoch)
            if ended:
                return NOT_LEADING
            return FENCED if epoch < self.epoch else UNKNOWN_EPOCH
        log = self.halves[half]
        seen = log.seen.get(peer.id)
        if seen is None:
            return UNKNOWN_EPOCH
        if node_epoch < peer.epoch:
            return NOT_LEADING
        if offset < log.start:
            return OUT_OF_RANGE
        if (last_epoch != seen.agreed_epoch or offset > seen.agreed_end) and last_epoch != NO_EPOCH:
            parted = self._parted(log, seen, offset, last_epoch, end_for_epoch)
            if parted is not None:
                return parted
        if offset > log.end:
            return OUT_OF_RANGE
        if node_epoch == peer.epoch:
            self._count(log, seen, peer, offset, start, now_ms)
        return None

    def _parted(
        self,
        log: UnitLog,
        seen: FollowerProgress,
        offset: int,
        last_epoch: int,
        end_for_epoch: Callable[[int], tuple[int, int]],
    ) -> FetchDivergence | None:
        """CL-L6's last check. What both agree on is remembered: our own epochs' ends stay, but for the present
        one's."""
        pair = (last_epoch, log.end) if last_epoch == self.epoch else end_for_epoch(last_epoch)
        if pair[0] != last_epoch or pair[1] < offset:
            return FetchDivergence(*pair)
        seen.agreed_epoch, seen.agreed_end = pair
        return None

    def _count(self, log: UnitLog, seen: FollowerProgress, peer: Peer, offset: int, start: int, now_ms: int) -> None:
        """CL-L4: what the fetch shows of the follower."""
        if seen.session != peer.session or seen.node_epoch != peer.epoch:
            seen.enters()
            seen.node_epoch = peer.epoch
        if offset >= log.end:
            seen.caught_up_ms = now_ms
        elif offset >= seen.end_then and seen.fetched_ms > seen.caught_up_ms:
            seen.caught_up_ms = seen.fetched_ms
        seen.fetched_ms = now_ms
        seen.end_then = log.end
        seen.start = start
        before = seen.end
        if offset != before:
            seen.end = offset
            if offset > log.high_watermark and self._held(log, before):
                self._advance(log, now_ms)
        if peer.id not in self.in_sync.committed and not self.wishes and self._may_join(peer.id, now_ms):
            self.wishes = True

    def forgotten(self, half: int, peer: Peer) -> None:
        """The follower's session lets go of this log; to be told before `peer.asks` of the request that says so."""
        seen = self.halves[half].seen.get(peer.id)
        if seen is not None:
            seen.leaves()

    def may_park(self, half: int, peer: Peer) -> bool:
        """CL-L7: whether the fetch just taken may wait for records. The first one in an epoch, or in a session, is not
        to: the lease waits for the one after it."""
        seen = self.halves[half].seen.get(peer.id)
        return seen is not None and seen.session == peer.session and seen.first < peer.asked

    # The high watermark (CL-L3).

    def _held(self, log: UnitLog, before: int) -> bool:
        """Whether an end that was there until now can have held it. Who is not in sync holds it, or does not any more,
        for reasons of his own: then it is looked at in any case."""
        return before <= log.high_watermark or len(log.seen) >= len(self.in_sync.largest)

    def _advance_all(self, now_ms: int) -> bool:
        moved = [self._advance(log, now_ms) for log in self.halves]
        return True in moved

    def _advance(self, log: UnitLog, now_ms: int) -> bool:
        """CL-L3: the smallest of what is flushed here and in each replica that is in sync, or is about to be."""
        in_sync = self.in_sync
        if len(in_sync.committed) < in_sync.min_size or self.over:
            return False
        to, largest = log.kept, in_sync.largest
        for node, seen in log.seen.items():
            if seen.end < to and (node in largest or self._is_awaited(log, seen, now_ms)):
                to = seen.end
        if to <= log.high_watermark:
            return False
        log.high_watermark = to
        self.moved = True
        return True

    def _is_awaited(self, log: UnitLog, seen: FollowerProgress, now_ms: int) -> bool:
        """A live follower that was caught up just now is waited for, or it could never join."""
        return now_ms - seen.caught_up_ms <= self.lag_time_ms and is_live_follower(seen)

    def waits_for(self, half: int, node: int, now_ms: int) -> bool:
        """Whether what is written is committed only when this follower has it, too."""
        log = self.halves[half]
        seen = log.seen.get(node)
        return node in self.in_sync.largest or (seen is not None and self._is_awaited(log, seen, now_ms))

    # Who is in sync (CL-L5).

    def check_followers(self, now_ms: int) -> bool:
        """What time brings: who has fallen behind, and who is waited for no more. Whether a high watermark moved."""
        if self.over:
            return False
        asked = self.in_sync
        self.wishes = asked.open and (bool(asked.doubtful) or self._proposal(now_ms) != asked.committed)
        return self._advance_all(now_ms)

    def look_around(self, session_ms: int, now_ms: int, *, in_touch: bool) -> bool:
        """CL-L10: whether this node may have been passed by, as far as it can tell: whether that is otherwise than
        before.

        So it is where ZooKeeper is out of reach (not `in_touch`), and none of the others that are in sync has asked for
        anything within a session: one of them may lead, and clients would wait here for what cannot be committed. With
        one of them it goes on (CL-Z9), and so it does where nobody else is in sync: nobody else could be elected.
        """
        before, seen, me = self.passed_by, self.halves[0].seen, self.me.id
        others = [node for node in self.in_sync.committed if node != me]
        heard_ms = max([self._began_ms, *(seen[node].peer.heard_ms for node in others if node in seen)])
        self.passed_by = bool(others) and not in_touch and heard_ms + session_ms <= now_ms
        return self.passed_by is not before

    def wants(self, now_ms: int) -> IsrProposal | None:
        """What to ask the controller for now, if anything. It is under way from here on: `altered` is to follow."""
        asked = self.in_sync
        if self.over or not asked.may_ask(now_ms):
            return None
        self.wishes = False
        nodes = asked.committed if asked.settle else self._proposal(now_ms)
        if nodes == asked.committed and not asked.doubtful:
            return None
        members = tuple((node, self._epoch_of(node)) for node in nodes)
        return asked.begin_proposal(IsrProposal(self.unit, self.epoch, asked.partition_epoch, members))

    def altered(self, question: IsrProposal, answer: IsrAnswer, now_ms: int) -> bool:
        """The controller's answer, or that there was none. Whether a high watermark moved."""
        if question is not self.in_sync.asked or self.over:
            return False
        self.in_sync.answered(answer, self.epoch, now_ms)
        self.wishes = True
        return self._advance_all(now_ms)

    def learn(self, state: PartitionState, replicas: Sequence[Peer], min_isr: int, now_ms: int) -> bool:
        """The image has the unit anew, in the same leader epoch. Whether a high watermark moved."""
        if self.over or state.leader_epoch != self.epoch:
            return False
        if state.partition_epoch > self.in_sync.partition_epoch:
            self.in_sync.commit(state.isr, state.partition_epoch)
        self._assign(replicas, min_isr, now_ms)
        self.wishes = True
        return self._advance_all(now_ms)

    def _assign(self, replicas: Sequence[Peer], min_isr: int, now_ms: int) -> None:
        """Who has copies. Who is in sync, or may be, is followed up even where it is assigned no more."""
        self.replicas = tuple([peer.id for peer in replicas])
        self.in_sync.min_size = min(min_isr, len(self.replicas))
        for log in self.halves:
            before, committed, me = log.seen, self.in_sync.committed, self.me.id
            log.seen = {
                peer.id: before.get(peer.id) or FollowerProgress(peer, now_ms if peer.id in committed else NEVER)
                for peer in replicas
                if peer.id != me
            }
            if before:
                log.seen.update({node: before[node] for node in self.in_sync.largest if node in before})

    def _proposal(self, now_ms: int) -> tuple[int, ...]:
        """Who ought to be in sync now, in order of assignment; this node always."""
        return tuple(
            node
            for node in self.replicas
            if node == self.me.id
            or (self._keeps_up(node, now_ms) if node in self.in_sync.committed else self._may_join(node, now_ms))
        )

    def _keeps_up(self, node: int, now_ms: int) -> bool:
        return all(now_ms - log.seen[node].caught_up(log.end) <= self.lag_time_ms for log in self.halves)

    def _may_join(self, node: int, now_ms: int) -> bool:
        """Whether a follower may be asked for: in both halves it has what is committed, and this epoch's beginning."""
        return self.lets_in and all(
            (seen := log.seen[node]).end >= log.high_watermark
            and seen.end >= log.epoch_start
            and now_ms - seen.caught_up(log.end) <= self.lag_time_ms
            and is_live_follower(seen)
            for log in self.halves
        )

    def _epoch_of(self, node: int) -> int:
        """The node epoch by which a replica was found in sync; what the image says of one that has not fetched yet."""
        if node == self.me.id:
            return self.me.epoch
        seen = self.halves[0].seen[node]
        return seen.node_epoch if seen.node_epoch != NO_EPOCH else seen.peer.epoch

    # The lease (CL-G4).

    def lease_until(self, lease_ms: int) -> int:
        """Until when answers of this unit may leave, in this node's ms; see `lease.lease_of`.

        Those who were asked to join count as those who are in sync: they may lead next, and owe us no silence yet.
        """
        if self.over or not self.in_sync.enough:
            return NEVER
        me, base_ms = self.me.id, FOREVER
        for log in self.halves:
            for node in self.in_sync.largest:
                if node != me:
                    proved_ms = log.seen[node].proved_ms() if node in log.seen else NEVER
                    if proved_ms < base_ms:
                        base_ms = proved_ms
        return base_ms + lease_ms if base_ms != FOREVER else FOREVER


def shared_peers(nodes: Iterable[int], known: dict[int, Peer]) -> tuple[Peer, ...]:
    """The shared object of each node, made where there is none yet."""
    return tuple([known.get(node) or known.setdefault(node, Peer(node)) for node in nodes])
