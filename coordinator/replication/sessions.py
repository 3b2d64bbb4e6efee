"""Fetch sessions (KIP-227): a fetch names what changed since the one before, and its answer tells what is new.

A session is of one follower at one leader, over all that it fetches there. A request with epoch 0 names everything and
begins one; the next ones have epochs 1, 2, ... If either side loses count, the follower begins anew. Pure: moments are
arguments, in milliseconds of any clock that does not go back.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from muster.coordinator.edge.limits import MAX_ENTRIES
from muster.coordinator.errors import ErrorCode

Place: TypeAlias = tuple[bytes, int]
"""A topic's id and the partition's number."""

FULL: Final = 0
"""The epoch of a request that begins a session."""

NO_SESSION: Final = -1
"""The epoch of a request that is about this once."""

FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
"""Kafka's numbers for a follower that has to begin anew. Nobody else ever hears them."""

LAST_EPOCH: Final = 2**31 - 1
UNTOLD: Final = -2
"""Of a partition of which nothing was told, or nothing but an error, since it was named first."""


def following(epoch: int) -> int:
    """
    >>> following(0), following(2**31 - 1)
    (1, 1)
    """
    return 1 if epoch == LAST_EPOCH else epoch + 1


# -- the leader's side ------------------------------------------------------------------------------------------------


class Part:
    """One partition in a session: what its follower last asked for, and what it was last told.

    offset: the follower's kept end (F3); last_epoch: of its batch before that; leader_epoch: which it believes in;
    log_start: of its log. `desk` is for whoever answers, to keep what this partition is to him.
    """

    __slots__ = (
        "desk",
        "last_epoch",
        "leader_epoch",
        "log_start",
        "max_bytes",
        "offset",
        "partition",
        "told",
        "told_start",
        "topic_id",
    )

    def __init__(self, topic_id: bytes, partition: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.told = self.told_start = UNTOLD
        self.desk: Any = None

    @property
    def place(self) -> Place:
        return self.topic_id, self.partition

    def asked(self, row: Any) -> None:
        """Take over what a request says of it."""
        self.leader_epoch = row.current_leader_epoch
        self.offset = row.fetch_offset
        self.last_epoch = row.last_fetched_epoch
        self.log_start = row.log_start_offset
        self.max_bytes = row.partition_max_bytes

    def is_news(self, code: int, high_watermark: int, log_start: int) -> bool:
        """Whether the follower has not been told so; from now on it has. What comes with records is told anyway."""
        before = self.told, self.told_start
        self.told, self.told_start = (UNTOLD, UNTOLD) if code else (high_watermark, log_start)
        return bool(code) or before != (high_watermark, log_start)


class Session:
    """A follower's session at this node. id: 0 if it is about one request. parts: in the order in which they are read;
    what had records goes to the end, so that each has its turn where an answer has not room for all."""

    __slots__ = ("busy", "epoch", "id", "node", "parts", "used_ms")

    def __init__(self, session_id: int, node: int) -> None:
        self.id = session_id
        self.node = node
        self.epoch = FULL
        self.parts: dict[Place, Part] = {}
        self.busy = False
        """A request is being answered."""
        self.used_ms = 0

    def took_its_turn(self, parts: Iterable[Part]) -> None:
        """These had records in the answer."""
        for part in parts:
            if self.parts.pop(part.place, None) is not None:
                self.parts[part.place] = part


class Opened(NamedTuple):
    """A request, within its session. anew: it names everything; what else it named changed since the one before."""

    session: Session
    anew: bool
    named: list[Part]
    forgotten: list[Part]


class Sessions:
    """The sessions at this node: at most one of each follower, and of at most `slots` followers.

    Where all are taken, one that was not used for `evict_ms` makes room; if there is none, a request is answered
    without a session, as in Kafka. `draw` gives ids at random: an id from before a restart should be nobody's.
    """

    def __init__(self, slots: int, evict_ms: int, draw: Callable[[], int]) -> None:
        self._slots = slots
        self._evict_ms = evict_ms
        self._draw = draw
        self._of: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._of)

    def take(self, request: Any, now_ms: int) -> Opened | int:
        """A FetchRequest that names its replica. The session is busy until `done`. INVALID_REQUEST: it lists more than
        a session may have; FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH: the follower has to begin anew."""
        node, epoch = request.replica_state.replica_id, request.session_epoch
        if epoch in (FULL, NO_SESSION):
            session = self._begun(node, now_ms, lasting=epoch == FULL)
        else:
            known = self._of.get(node)
            if known is None or known.id != request.session_id:
                return FETCH_SESSION_ID_NOT_FOUND
            if known.busy or epoch != following(known.epoch):
                return INVALID_FETCH_SESSION_EPOCH
            session = known
            session.epoch = epoch
        forgotten = self._forget(session, request)
        named = self._name(session, request)
        if len(session.parts) > MAX_ENTRIES:
            self._end(session)
            return ErrorCode.INVALID_REQUEST
        session.busy = True
        session.used_ms = now_ms
        return Opened(session, epoch in (FULL, NO_SESSION), named, forgotten)

    def done(self, session: Session, now_ms: int) -> None:
        """The request was answered, or nobody wants the answer any more."""
        session.busy = False
        session.used_ms = now_ms

    def _begun(self, node: int, now_ms: int, *, lasting: bool) -> Session:
        """A new session takes the place of the follower's former one; one that is not lasting ends it."""
        self._of.pop(node, None)
        if not lasting or not self._has_room(now_ms):
            return Session(0, node)
        taken = {0, *(each.id for each in self._of.values())}
        while (drawn := self._draw()) in taken:
            pass
        session = self._of[node] = Session(drawn, node)
        return session

    def _has_room(self, now_ms: int) -> bool:
        if len(self._of) < self._slots:
            return True
        oldest = min(self._of.values(), key=lambda each: (each.busy, each.used_ms), default=None)
        if oldest is None or oldest.busy or now_ms - oldest.used_ms < self._evict_ms:
            return False
        self._end(oldest)
        return True

    def _end(self, session: Session) -> None:
        if self._of.get(session.node) is session:
            del self._of[session.node]

    def _forget(self, session: Session, request: Any) -> list[Part]:
        places = [(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions]
        return [part for place in places if (part := session.parts.pop(place, None)) is not None]

    def _name(self, session: Session, request: Any) -> list[Part]:
        named: dict[Place, Part] = {}
        for topic in request.topics:
            for row in topic.partitions:
                place = topic.topic_id, row.partition
                part = session.parts.get(place)
                if part is None:
                    part = session.parts[place] = Part(*place)
                part.asked(row)
                named[place] = part
        return list(named.values())


# -- the follower's side ----------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """What a follower wants of a partition; see `Part`."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    max_bytes: int


class Fetch(NamedTuple):
    """What the next request says: of all partitions, or of those that changed."""

    session_id: int
    epoch: int
    named: dict[Place, Asked]
    forgotten: list[Place]


class Following:
    """A follower's session at one leader. `want` and `drop` say what is to be fetched from now on; what that means for
    the next request, `next` says. Each request is followed by `answered` or `lost` before the next one."""

    __slots__ = ("_changed", "_epoch", "_gone", "_id", "_told", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[Place, Asked] = {}
        self._told: dict[Place, Asked] = {}
        self._changed: dict[Place, None] = {}
        self._gone: dict[Place, None] = {}
        self._id = 0
        self._epoch = FULL

    def want(self, place: Place, asked: Asked) -> None:
        self.wanted[place] = asked
        self._gone.pop(place, None)
        if self._told.get(place) != asked:
            self._changed[place] = None
        else:
            self._changed.pop(place, None)

    def drop(self, place: Place) -> None:
        self.wanted.pop(place, None)
        self._changed.pop(place, None)
        if place in self._told:
            self._gone[place] = None

    @property
    def begins(self) -> bool:
        """Whether the next request begins a session, and names everything."""
        return self._epoch == FULL

    def next(self) -> Fetch:
        """The next request. From now on the leader counts as told."""
        if self.begins:
            self._told = dict(self.wanted)
            named, forgotten = self.wanted.copy(), []
        else:
            named = {place: self.wanted[place] for place in self._changed}
            forgotten = list(self._gone)
            self._told |= named
            for place in forgotten:
                del self._told[place]
        self._changed.clear()
        self._gone.clear()
        return Fetch(self._id, self._epoch, named, forgotten)

    def answered(self, code: int, session_id: int) -> bool:
        """The answer's code and session id; whether it is one to what was asked. If not, the next request begins a
        session."""
        if code or (not self.begins and session_id != self._id):
            self._begin_anew(0 if code == FETCH_SESSION_ID_NOT_FOUND else self._id)
            return False
        self._id = session_id
        if session_id:
            self._epoch = following(self._epoch)
        else:
            self._begin_anew(0)  # The leader has no room for a session.
        return True

    def lost(self) -> None:
        """No answer came, or none will: whether the leader counted the request is not known."""
        self._begin_anew(self._id)

    def _begin_anew(self, session_id: int) -> None:
        self._id = session_id
        self._epoch = FULL
        self._told = {}
        self._changed = dict.fromkeys(self.wanted)
        self._gone.clear()
