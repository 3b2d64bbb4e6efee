"""Followers' fetches, as the leader's node serves them: sessions, their news, parked fetches (CL-L6, CL-L7).

A session remembers what its follower asked last of each partition. A request that changes nothing costs nothing per
partition: an event of a log is noted in the sessions that copy the log (`news`), and only these partitions are
looked at.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.leader import FetchDivergence, FetchRefusal, Leader
from muster.coordinator.replication.protocol.lease import FOREVER, NEVER, Peer
from muster.coordinator.replication.protocol.replica_fetch import (
    ANSWER_BYTES,
    NO_SUCH_SESSION,
    PART_BYTES,
    STORAGE_ERROR,
    WRONG_SESSION_EPOCH,
    FetchAnswer,
    FetchedPartition,
    FetchItem,
    FetchRequest,
    LogBroken,
    Records,
    ReplicaLog,
    ThrottleBucket,
    next_session_epoch,
)

FetchReply: TypeAlias = Callable[[FetchAnswer], None]
LedPartitions: TypeAlias = Mapping[TopicPartition, "LedPartition"]
KnownLeader: TypeAlias = Callable[[TopicPartition], tuple[int, int]]
"""Who leads a partition, and in which epoch, as far as this node knows."""

NO_HURRY_MS = 20
"""How long a follower that waits is not told of a high watermark alone: where more is written meanwhile, it goes along
with that, and the follower asks half as often."""

GATHER_MS = 2
"""How long a follower that keeps up waits, where it finds records when it asks again: what it has kept lets producers
go on, and what they send goes along. It asks, and flushes, half as often under load. Who finds nothing, and waits, is
told of records at once."""

COMING_MS = 20
"""How long a follower waits that is to ask for more than it does: it may not have heard of that yet."""

COMING_FOR_MS = 1_000
"""After that it is not expected any more."""

MAX_SESSION_PARTITIONS = 100_000
"""In one session."""


class LedPartition:
    """A partition that this node leads: its leader's machine, which half of the unit it is, its log."""

    __slots__ = ("half", "leader", "log", "topic_id")

    def __init__(self, leader: Leader, half: int, log: ReplicaLog, topic_id: bytes) -> None:
        self.leader = leader
        self.half = half
        self.log = log
        self.topic_id = topic_id


class FollowerPosition:
    """What a follower asked last of a partition. known: the high watermark and the start that it was told, by the
    answer to this or to what it had asked before in this epoch. end: where the log ended when it was last given
    records, -1 if it was not."""

    __slots__ = ("end", "item", "known")

    def __init__(self, item: FetchItem) -> None:
        self.end = -1
        self.item = item
        self.known = (-1, -1)


class ParkedReplicaFetch:
    """A fetch that waits for something to tell."""

    __slots__ = ("number", "reply", "until_ms")

    def __init__(self, reply: FetchReply, number: int, until_ms: int) -> None:
        self.reply = reply
        self.number = number
        self.until_ms = until_ms


class FollowerSession:
    """One follower's session. `news`: partitions to look at before the next answer, in order: what had records goes to
    the end, so that each has its turn where an answer has not room for all. Sizes in bytes. withheld: partitions with
    records that the follower is to get later (CL-A9). hurry_ms: when a high watermark is told that is all there is to
    tell. gather_ms: until when records are waited for that may go along with others. coming: what the follower is to
    ask for, too, expected until coming_ms. unseen: something has happened since the news were looked at last."""

    __slots__ = (
        "answer_bytes", "coming", "coming_ms", "copied", "epoch", "gather_ms", "hurry_ms", "id", "min_bytes", "news",
        "node_epoch", "parked", "part_bytes", "peer", "unseen", "withheld",
    )  # fmt: skip

    def __init__(self, session_id: int, peer: Peer) -> None:
        self.id = session_id
        self.epoch = 0
        self.peer = peer
        self.part_bytes = PART_BYTES
        self.answer_bytes = ANSWER_BYTES
        self.min_bytes = 1
        self.node_epoch = NO_EPOCH
        self.copied: dict[TopicPartition, FollowerPosition] = {}
        self.news: dict[TopicPartition, None] = {}
        self.withheld: dict[TopicPartition, None] = {}
        self.parked: ParkedReplicaFetch | None = None
        self.hurry_ms = FOREVER
        self.gather_ms = NEVER
        self.coming: set[TopicPartition] = set()
        self.coming_ms = NEVER
        self.unseen = False


def exceeds_session_limit(session: FollowerSession, items: Sequence[FetchItem]) -> bool:
    """Whether the session would have more than MOST_PLACES with these."""
    if len(session.copied) + len(items) <= MAX_SESSION_PARTITIONS:
        return False
    return len(session.copied.keys() | {item.place for item in items}) > MAX_SESSION_PARTITIONS


class FollowerSessions:
    """The sessions of all followers of this node's partitions; one for each other node."""

    def __init__(
        self,
        led: LedPartitions,
        known: KnownLeader,
        peer: Callable[[int], Peer],
        stirred: Callable[[Leader], None],
        broke: Callable[[TopicPartition, LogBroken], None],
        is_throttled: Callable[[TopicPartition], bool] = lambda place: False,
    ) -> None:
        """stirred: told of a leader whose high watermark a fetch has moved, who has something to ask, or who leads no
        more. broke: told of a log that cannot be read. is_throttled: whether this node's replica of a partition is
        listed among those that `throttle` holds for leaders (CL-A9)."""
        self._led = led
        self._known = known
        self._peer = peer
        self._stirred = stirred
        self._broke = broke
        self._is_throttled = is_throttled
        self.throttle = ThrottleBucket()
        self._sessions: dict[int, FollowerSession] = {}
        self._made = 0

    def fetch(self, request: FetchRequest, reply: FetchReply, wait_ms: int, now_ms: int, *, min_bytes: int = 1) -> None:
        """Take a follower's request; `reply` is called once, now or when there is something to tell: so many bytes of
        records, or anything else."""
        peer = self._peer(request.node)
        session = self._session_of(request, peer)
        if isinstance(session, int):
            reply(FetchAnswer(session))
            return
        self._end_parked(session)
        for gone in request.forgotten:
            self._forget(session, gone.place, gone.topic_id)
        if exceeds_session_limit(session, request.items):
            del self._sessions[request.node]
            reply(FetchAnswer(ErrorCode.INVALID_REQUEST))
            return
        session.part_bytes = min(request.part_bytes, PART_BYTES)
        session.answer_bytes = min(request.answer_bytes, ANSWER_BYTES)
        session.min_bytes = min_bytes
        session.node_epoch = request.node_epoch
        number = peer.asks(now_ms, anew=request.session_epoch == 0)
        refused: list[FetchedPartition] = []
        may_wait, gathers = True, False
        for item in request.items:
            before = session.copied.get(item.place)
            part = self._apply_item(session, item, request.node_epoch, now_ms)
            if part is not None:
                refused.append(part)
            else:
                led = self._led[item.place]
                may_wait = may_wait and led.leader.may_park(led.half, peer)
                gathers = gathers or (before is not None and item.offset == before.end < led.log.end)
        if session.withheld:
            self._release(session, now_ms)
        if session.coming:
            wait_ms = self._coming(session, request.items, wait_ms, now_ms)
        at_once = bool(refused) or not may_wait or min(wait_ms, min_bytes) <= 0
        session.gather_ms, session.unseen = NEVER, True
        if gathers and not at_once and min_bytes <= 1:
            session.gather_ms = now_ms + GATHER_MS
            session.parked = ParkedReplicaFetch(reply, number, now_ms + wait_ms)
        elif not self._answer(session, reply, number, refused, now_ms, now=at_once):
            session.parked = ParkedReplicaFetch(reply, number, now_ms + wait_ms)

    def expects(self, nodes: Collection[int], place: TopicPartition, now_ms: int) -> None:
        """This node leads a partition, and these copy it, or are about to. Who waits for something else is answered,
        so that it can say so: what it proves by that is waited for (CL-G4)."""
        for node in nodes:
            session = self._sessions.get(node)
            if session is not None:
                session.coming.add(place)
                session.coming_ms = now_ms + COMING_FOR_MS
                if session.parked is not None:
                    session.parked.until_ms = min(session.parked.until_ms, now_ms)

    def _coming(self, session: FollowerSession, items: Sequence[FetchItem], wait_ms: int, now_ms: int) -> int:
        """How long this request may wait."""
        session.coming.difference_update(item.place for item in items)
        if now_ms >= session.coming_ms:
            session.coming.clear()
        return min(wait_ms, COMING_MS) if session.coming else wait_ms

    def registered(self, node: int) -> None:
        """The image has caught up with a registration by which a node had asked already. That counted for nothing
        (CL-L4), and where nothing changes it is not said again: so it counts now, as of when it was said."""
        session = self._sessions.get(node)
        if session is None or session.node_epoch != session.peer.epoch:
            return
        for copied in list(session.copied.values()):
            self._apply_item(session, copied.item, session.node_epoch, session.peer.heard_ms)

    def grew(self, place: TopicPartition) -> None:
        """Records came: with them goes what was waiting for them."""
        for session in self._sessions.values():
            if place in session.copied:
                session.news[place] = None
                session.gather_ms, session.unseen = NEVER, True

    def happened(self, place: TopicPartition) -> None:
        """The high watermark or the start moved, or this node leads no more: followers are to know."""
        for session in self._sessions.values():
            if place in session.copied:
                session.news[place] = None
                session.unseen = True

    def wake(self, now_ms: int) -> None:
        """Answer the parked fetches that something has happened for, and those that have waited long enough."""
        for session in self._sessions.values():
            parked = session.parked
            if parked is None:
                continue
            if session.withheld:
                self._release(session, now_ms)
            late = now_ms >= parked.until_ms
            due = session.unseen or now_ms >= session.hurry_ms  # What was left for later is not looked at till then.
            if late or (session.news and due and now_ms >= session.gather_ms):
                session.parked = None
                if not self._answer(session, parked.reply, parked.number, [], now_ms, now=late):
                    session.parked = parked

    def next_ms(self, now_ms: int) -> int | None:
        """When the next parked fetch has waited long enough, or may have what was withheld from it."""
        due = None
        for session in self._sessions.values():
            if session.parked is not None:
                until_ms = min(session.parked.until_ms, session.hurry_ms)
                if session.gather_ms != NEVER:
                    until_ms = min(until_ms, session.gather_ms)
                if session.withheld:
                    until_ms = min(until_ms, self.throttle.ready_ms(now_ms))
                due = until_ms if due is None else min(due, until_ms)
        return due

    def _release(self, session: FollowerSession, now_ms: int) -> None:
        """What was withheld is looked at again as soon as something may go."""
        if self.throttle.may(now_ms):
            session.news.update(session.withheld)
            session.withheld, session.unseen = {}, True

    def _withholds(self, session: FollowerSession, place: TopicPartition, now_ms: int) -> bool:
        """CL-A9: whether records are for later."""
        return not self.throttle.may(now_ms) and self._is_slow(session, place, now_ms)

    def _is_slow(self, session: FollowerSession, place: TopicPartition, now_ms: int) -> bool:
        led = self._led.get(place)
        waits = led is None or led.leader.waits_for(led.half, session.peer.id, now_ms)
        return not waits and self._is_throttled(place)

    def _pay(self, session: FollowerSession, parts: list[FetchedPartition], now_ms: int) -> None:
        for part in parts:
            if len(part.records) and self._is_slow(session, part.place, now_ms):
                self.throttle.charge_bytes(len(part.records), now_ms)

    def _session_of(self, request: FetchRequest, peer: Peer) -> FollowerSession | int:
        if request.session_epoch == 0:
            self._made += 1
            if (old := self._sessions.get(request.node)) is not None:
                self._end_parked(old)
            session = self._sessions[request.node] = FollowerSession(self._made, peer)
            return session
        known = self._sessions.get(request.node)
        if known is None or known.id != request.session:
            return NO_SUCH_SESSION
        if request.session_epoch != next_session_epoch(known.epoch):
            return WRONG_SESSION_EPOCH
        known.epoch = request.session_epoch
        return known

    def _end_parked(self, session: FollowerSession) -> None:
        """Its follower has asked anew, so it has given up the request before."""
        if session.parked is not None:
            parked, session.parked = session.parked, None
            parked.reply(FetchAnswer(WRONG_SESSION_EPOCH))

    def _forget(self, session: FollowerSession, place: TopicPartition, topic_id: bytes) -> None:
        copied = session.copied.get(place)
        if copied is None or copied.item.topic_id != topic_id:
            return  # it is of a former topic of this name; the present one is copied on
        del session.copied[place]
        session.news.pop(place, None)
        session.withheld.pop(place, None)
        if (led := self._led.get(place)) is not None:
            led.leader.forgotten(led.half, session.peer)

    def _apply_item(
        self, session: FollowerSession, item: FetchItem, node_epoch: int, now_ms: int
    ) -> FetchedPartition | None:
        """What a fetch of one partition shows its leader; a part where it is refused or parted from."""
        before, copied = session.copied.get(item.place), FollowerPosition(item)
        session.copied[item.place] = copied
        if before is not None and before.item[:3] == item[:3]:
            copied.known = before.known
        session.news[item.place], session.unseen = None, True
        led = self._led.get(item.place)
        if led is None or led.topic_id != item.topic_id:
            del session.news[item.place]
            return self._not_led(copied, led)
        found = led.leader.fetched(
            led.half,
            session.peer,
            node_epoch,
            item.epoch,
            item.offset,
            item.last_epoch,
            item.start,
            led.log.end_for_epoch,
            now_ms,
        )
        if led.leader.over:
            self._stirred(led.leader)
        if found is not None:
            session.news.pop(item.place, None)
            return self._refusal(item, led, found)
        if led.leader.moved or led.leader.wishes:
            self._stirred(led.leader)
        return None

    def _not_led(self, copied: FollowerPosition, led: LedPartition | None) -> FetchedPartition:
        place, topic_id = copied.item[:2]
        leader, epoch = self._known(place)
        if led is not None or (leader == NO_NODE_ID and epoch == NO_EPOCH):
            return FetchedPartition(place, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return FetchedPartition(place, topic_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=leader, leader_epoch=epoch)

    def _refusal(self, item: FetchItem, led: LedPartition, found: FetchRefusal | FetchDivergence) -> FetchedPartition:
        place, topic_id = item[:2]
        start, high_watermark = led.log.start, led.leader.halves[led.half].high_watermark
        if isinstance(found, FetchDivergence) and found.epoch == NO_EPOCH:
            # Kafka's way to say that where they part is not known: on the wire such a pair would be none.
            return FetchedPartition(place, topic_id, ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark, start)
        if isinstance(found, FetchDivergence):
            return FetchedPartition(place, topic_id, ErrorCode.NONE, high_watermark, start, (found.epoch, found.end))
        leader, epoch = self._known(place)
        return FetchedPartition(place, topic_id, found.code, high_watermark, start, leader=leader, leader_epoch=epoch)

    def _answer(
        self,
        session: FollowerSession,
        reply: FetchReply,
        number: int,
        parts: list[FetchedPartition],
        now_ms: int,
        *,
        now: bool,
    ) -> bool:
        """Reply if there is something to tell, or if it has to be `now`; whether it was."""
        session.unseen = False
        news = self._news(session, now_ms)
        parts += news
        if not now and (
            not parts
            or self._has_time(session, parts, now_ms)
            or (session.min_bytes > 1 and self._is_too_little(session, parts))
        ):
            for part in news:
                session.news[part.place] = None
            return False
        session.hurry_ms = FOREVER
        if self.throttle.is_limited:
            self._pay(session, news, now_ms)
        for part in parts:
            if (copied := session.copied.get(part.place)) is not None and not part.code and part.diverging is None:
                copied.known = part.high_watermark, part.start
        session.peer.answered(number, now_ms)
        reply(FetchAnswer(0, session.id, tuple(parts)))
        return True

    def _has_time(self, session: FollowerSession, parts: list[FetchedPartition], now_ms: int) -> bool:
        """Whether it is high watermarks alone, and they may go along with records that come soon."""
        for part in parts:
            copied = session.copied.get(part.place)
            if part.code or part.diverging is not None or len(part.records) or copied is None:
                return False
            if part.start != copied.known[1] or copied.known[0] < 0:
                return False
        session.hurry_ms = min(session.hurry_ms, now_ms + NO_HURRY_MS)
        return now_ms < session.hurry_ms

    def _news(self, session: FollowerSession, now_ms: int) -> list[FetchedPartition]:
        """What is new, as much of it as an answer has room for."""
        left, parts = session.answer_bytes, []
        limited = self.throttle.is_limited
        for place in list(session.news):
            if left <= 0:
                break  # the others come first the next time
            del session.news[place]
            most = min(session.part_bytes, left)
            if limited and self._withholds(session, place, now_ms):
                most, session.withheld[place] = 0, None
            part = self._part(session.copied[place], most)
            if part is not None:
                left -= len(part.records)
                parts.append(part)
        return parts

    @staticmethod
    def _is_too_little(session: FollowerSession, parts: list[FetchedPartition]) -> bool:
        """Records that are fewer bytes than the follower wants, and nothing else that it does not know."""
        return sum(len(part.records) for part in parts) < session.min_bytes and all(
            not part.code and session.copied[part.place].known == (part.high_watermark, part.start) for part in parts
        )

    def _part(self, copied: FollowerPosition, most: int) -> FetchedPartition | None:
        """What is new of a partition for who asked; None if nothing is."""
        item = copied.item
        place, topic_id = item[:2]
        led = self._led.get(place)
        if led is None or led.topic_id != item.topic_id or led.leader.over or led.leader.epoch != item.epoch:
            leader, epoch = self._known(place)
            return FetchedPartition(
                place, topic_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=leader, leader_epoch=epoch
            )
        log, half = led.log, led.leader.halves[led.half]
        if item.offset < log.start:
            return FetchedPartition(place, topic_id, ErrorCode.OFFSET_OUT_OF_RANGE, half.high_watermark, log.start)
        try:
            records: Records = log.read(item.offset, most) if most and item.offset < log.end else b""
        except LogBroken as error:
            self._broke(place, error)
            return FetchedPartition(place, topic_id, STORAGE_ERROR)
        if len(records):
            copied.end = log.end
        elif copied.known == (half.high_watermark, log.start):
            return None
        return FetchedPartition(place, topic_id, ErrorCode.NONE, half.high_watermark, log.start, records=records)
