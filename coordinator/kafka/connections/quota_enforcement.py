"""Enforces quotas at Kafka's door: charges connections, limits topic changes, and counts group members.

`ConnectionCharges` charges a connection for bytes and request time (KIP-124, KIP-219). A client over its quota is
answered without delay, with the time it has to wait; for that long nothing more is read from the connection. Time is
measured only where a quota on it is set: decoding, what a handler does before and between its waits, and encoding;
not the turn in which the groups work for many requests together.

`RequestQuotas` wraps handlers: changes of topics (KIP-599), and the number of groups and members a user has. A
version of an API that knows THROTTLING_QUOTA_EXCEEDED gets it for what is above the quota; for older versions the
change is made and the client waits.

Imported only on nodes that keep quotas.
"""

import select
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from struct import Struct
from time import perf_counter
from typing import Any, Final, Protocol

from muster.coordinator.edge.overload import LoopTime
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import Buffer, fields_in_version, is_flexible, message_of, struct
from muster.coordinator.kafka.connections.received_requests import RequestSlot
from muster.coordinator.kafka.dispatch import Handler, Immediate, KafkaCall, ThreadedAnswer
from muster.coordinator.kafka.handlers.offset_commit_reader import OffsetCommitRequest
from muster.coordinator.security.quota_rules import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from muster.coordinator.security.quota_usage import NodeQuotas, UserCounts

# Bytes, request time and connections (KIP-124, KIP-219, KIP-612)
# ---------------------------------------------------------------

MOST_MEMBERS: Final = 100
"""Of one connection, whose sessions stand still while it is held; a client has one, a proxy may have some."""

MOST_LINGERING: Final = 1_000
"""Connections that wait to be closed, because their address opens too many."""

EOF_CHECK_S: Final = 5.0
"""While a connection is held nobody reads it, so now and then it is looked whether its client is there at all."""

UNCHARGED: Final = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
"""What comes before anybody knows who it is."""

TIME = Struct(">i")
PERCENT = 100.0

HeldConnections = Callable[[str, str, int], None]
"""What this member of this group says is not read for so many ms."""


class Holdable(Protocol):
    """A connection that can be held."""

    def hold_back(self) -> None: ...

    def release(self) -> None: ...

    def fileno(self) -> int: ...

    def abort(self) -> None: ...


class ConnectionCharges:
    """Of one listener."""

    def __init__(self, quotas: NodeQuotas, held: HeldConnections, loop: Any) -> None:
        self.quotas = quotas
        self.held = held
        self.loop = loop
        self.lingering = 0

    def payer(self, connection: Holdable) -> "ChargedConnection | None":
        """None while nothing is set that a request is charged for: then nobody looks."""
        return ChargedConnection(self, connection) if self.quotas.rates else None

    def turned_away(self, host: str, abort: Callable[[], None]) -> bool | None:
        """Whether a new connection comes too soon after others of its address: None; else it is closed, at once or
        (True) after a while."""
        wait_s = self.quotas.charge_connection(host, self.loop.time()) if self.quotas.connections else 0.0
        if not wait_s:
            return None
        if self.lingering >= MOST_LINGERING:
            return False
        self.lingering += 1

        def close() -> None:
            self.lingering -= 1
            abort()

        self.loop.call_later(wait_s, close)
        return True


class ChargedConnection:
    """One connection's side of it."""

    __slots__ = ("_charges", "_connection", "_members", "_since_s", "_until_s")

    def __init__(self, charges: ConnectionCharges, connection: Holdable) -> None:
        self._charges = charges
        self._connection = connection
        self._members: dict[str, str] = {}
        self._since_s = 0.0
        self._until_s = 0.0

    # -- time ---------------------------------------------------------------------------------------------

    def begin_request(self, begin: Callable[[Any], None], frame: Any, slots: "deque[RequestSlot]") -> None:
        """Begin a request, and note what that took."""
        self.enter()
        begin(frame)
        if slots:
            slots[-1].spent_s += perf_counter() - self._since_s

    def enter(self) -> None:
        """What is done from now on is for one request."""
        self._since_s = perf_counter()

    def timed(self, slot: RequestSlot, answering: Awaitable[Any]) -> Awaitable[Any]:
        return self._timed(slot, answering) if self._charges.quotas.requests else answering

    async def _timed(self, slot: RequestSlot, answering: Awaitable[Any]) -> Any:
        steps = LoopTime(answering)
        answer = await steps
        slot.spent_s += steps.spent_s
        self.enter()
        return answer

    # -- charges ------------------------------------------------------------------------------------------

    def asked(self, slot: RequestSlot, call: KafkaCall, request: Any) -> None:
        """A request was read. What is produced is charged now, so that those behind it are not even begun."""
        slot.call = call
        quotas = self._charges.quotas
        if quotas.producing and slot.form.api.name == "Produce":
            now_s = self._charges.loop.time()
            user = call.identity.principal.name
            slot.wait_s = quotas.charge(quotas.producing, user, call.client_id, slot.size, now_s)
            if slot.wait_s:
                self._hold(to_milliseconds(slot.wait_s), now_s)
        member_id = getattr(request, "member_id", "")
        if member_id and (len(self._members) < MOST_MEMBERS or request.group_id in self._members):
            self._members[request.group_id] = member_id

    def charged(self, slot: RequestSlot, body: list[Buffer]) -> list[Buffer]:
        """The answer with the time to wait in it; the connection is held for so long."""
        call, api = slot.call, slot.form.api.name
        if call is None or api in UNCHARGED:
            return body
        quotas, now_s = self._charges.quotas, self._charges.loop.time()
        user, client = call.identity.principal.name, call.client_id
        wait_s, why = 0.0, ""
        if api == "Produce":
            wait_s, why = slot.wait_s, PRODUCER_BYTE_RATE
        elif api == "Fetch":
            size = sum(map(len, body))
            wait_s, why = quotas.charge(quotas.consuming, user, client, size, now_s), CONSUMER_BYTE_RATE
        if quotas.requests:
            took_s = slot.spent_s + perf_counter() - self._since_s
            if isinstance(slot.task, ThreadedAnswer):
                took_s += slot.task.spent_s
            for_time_s = quotas.charge(quotas.requests, user, client, took_s * PERCENT, now_s)
            if for_time_s > wait_s:
                wait_s, why = for_time_s, REQUEST_PERCENTAGE
        where = throttle_time_position(slot.form.api.name, slot.form.version)
        told_ms = TIME.unpack_from(body[0])[0] if where == 0 and body else 0
        if told_ms > wait_s * 1000:
            wait_s, why = told_ms / 1000, CONTROLLER_MUTATION_RATE
        if not wait_s:
            return body
        quotas.record_throttling(user, why, wait_s)
        wait_ms = to_milliseconds(wait_s)
        self._hold(wait_ms, now_s)
        return body if where is None else set_throttle_time(body, where, wait_ms)

    # -- holding ------------------------------------------------------------------------------------------

    def _hold(self, wait_ms: int, now_s: float) -> None:
        until_s = now_s + wait_ms / 1000
        for group_id, member_id in self._members.items():
            more_ms = round((until_s - max(self._until_s, now_s)) * 1000)
            if more_ms > 0:
                self._charges.held(group_id, member_id, more_ms)
        if until_s <= self._until_s:
            return
        began = self._until_s <= now_s
        self._until_s = until_s
        if began:
            self._connection.hold_back()
            self._charges.loop.call_later(min(EOF_CHECK_S, until_s - now_s), self._check_throttle)

    def _check_throttle(self) -> None:
        """Go on, if it is time; give up, if the client has."""
        left_s = self._until_s - self._charges.loop.time()
        if left_s <= 0:
            self._connection.release()
        elif peer_has_closed(self._connection.fileno()):
            self._connection.abort()
        else:
            self._charges.loop.call_later(min(EOF_CHECK_S, left_s), self._check_throttle)


def to_milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


@cache
def throttle_time_position(api: str, version: int) -> int | None:
    """Where an answer has the time to wait: at its beginning (0), or so many bytes before its end (negative)."""
    name = f"{api}Response"
    fields = [one.name for one in fields_in_version(message_of(name, version).fields, version)]
    if "throttle_time_ms" not in fields:
        return None
    if fields[0] == "throttle_time_ms":
        return 0
    if fields[-1] == "throttle_time_ms":
        return -TIME.size - is_flexible(name, version)
    return None


def set_throttle_time(body: Sequence[Buffer], where: int, wait_ms: int) -> list[Buffer]:
    """The same bytes but for the time."""
    at = 0 if where == 0 else len(body) - 1
    piece = bytearray(body[at])
    if len(piece) < abs(where) or len(piece) < TIME.size:
        return set_throttle_time([b"".join(body)], where, wait_ms)
    TIME.pack_into(piece, where if where >= 0 else len(piece) + where, wait_ms)
    return [*body[:at], bytes(piece), *body[at + 1 :]]


def peer_has_closed(descriptor: int) -> bool:
    """Whether the other side of a socket has closed it."""
    hung_up = getattr(select, "POLLRDHUP", 0)
    if descriptor < 0 or not hung_up:
        return False
    poll = select.poll()
    poll.register(descriptor, hung_up)
    return bool(poll.poll(0))


# Topic changes (KIP-599) and numbers of members
# ----------------------------------------------

THROTTLING_QUOTA_EXCEEDED: Final = 89
TOO_SOON: Final = "more partitions are made or deleted than the quota allows (controller_mutation_rate); wait {:.1f} s"
DEFAULT: Final = -1

CREATED_TOPIC_ROW: Final = "CreateTopicsResponse.topics"

Clock = Callable[[], float]


class TopicOwnership(Protocol):
    """Who made which topic."""

    @property
    def kept(self) -> bool: ...

    def room(self, user: str) -> int | None: ...

    def explain_refusal(self, user: str) -> str: ...

    async def made(self, user: str, names: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class TopicMutation:
    """One API that makes or deletes partitions."""

    strict: int
    """The first version that knows THROTTLING_QUOTA_EXCEEDED."""
    rows: str
    answers: str


MUTATIONS: Final[Mapping[str, TopicMutation]] = {
    "CreateTopics": TopicMutation(6, "topics", "topics"),
    "CreatePartitions": TopicMutation(3, "topics", "results"),
    "DeleteTopics": TopicMutation(5, "topics", "responses"),
}
JOINING_APIS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
COMMITTING_APIS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})
MEMBER_APIS: Final = frozenset({"SyncGroup", "Heartbeat"})


class RequestQuotas:
    """Made once for a Dispatch. `partitions` tells how many a topic has, `default` how many it gets if nobody says."""

    def __init__(
        self,
        quotas: NodeQuotas,
        partitions: Callable[[], Mapping[str, int]],
        default: int,
        counts: UserCounts,
        clock: Clock = time.monotonic,
        owners: TopicOwnership | None = None,
    ) -> None:
        self._owners = owners
        self._quotas = quotas
        self._partitions = partitions
        self._default = default
        self._counts = counts
        self._clock = clock

    def limited(
        self, api: str, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """Both of an API's handlers, within quotas. While nobody is counted nothing stands before a heartbeat."""
        if api in MUTATIONS and handler is not None:
            changing = self._changing(api, MUTATIONS[api], handler)
            return (self._making(changing) if api == "CreateTopics" else changing), immediate
        if api == "Metadata" and handler is not None:
            return self._asking(handler), immediate
        if self._quotas.counts and api in JOINING_APIS | MEMBER_APIS | COMMITTING_APIS:
            return self._counting_slow(api, handler), self._counting(api, immediate)
        return handler, immediate

    def when_changed(self, tell: Callable[[], None]) -> None:
        """See `Limits`."""
        self._quotas.when_counted(tell)

    # -- partitions ---------------------------------------------------------------------------------------

    def _changing(self, api: str, kind: TopicMutation, handler: Handler) -> Handler:
        async def answered(request: Any, call: KafkaCall) -> Any:
            user, client, now_s = call.identity.principal.name, call.client_id, self._clock()
            owed_s = self._quotas.owed_s(user, client, now_s)
            if owed_s is None or getattr(request, "validate_only", False):
                return await handler(request, call)
            place = "topic_names" if api == "DeleteTopics" and call.api_version < 6 else kind.rows
            rows, refused = list(getattr(request, place)), []
            allowed: dict[object, int] = {}
            for row in rows:
                weight = self._weight(api, row)
                if call.api_version >= kind.strict and owed_s > 0:
                    refused.append(row)
                else:
                    owed_s = self._quotas.charge(self._quotas.mutations, user, client, weight, now_s)
                    allowed[topic_key(row)] = weight
            if refused:
                request = copy(request)
                setattr(request, place, [row for row in rows if topic_key(row) in allowed])
            answer = await handler(request, call)
            self._give_back(getattr(answer, kind.answers), allowed, user, client)
            if refused:
                path, why = f"{api}Response.{kind.answers}", TOO_SOON.format(owed_s)
                told = [quota_refusal_row(path, row, THROTTLING_QUOTA_EXCEEDED, why) for row in refused]
                setattr(answer, kind.answers, [*getattr(answer, kind.answers), *told])
            wait_s = self._quotas.owed_s(user, client, now_s) or 0.0
            if call.api_version < kind.strict or refused:
                answer.throttle_time_ms = int(wait_s * 1000)
            return answer

        return answered

    def _weight(self, api: str, row: Any) -> int:
        """How many partitions it is about; none, where it will be refused for what there is."""
        known = self._partitions()
        if api == "DeleteTopics":
            return int(known.get(row if isinstance(row, str) else row.name or "", 0))
        if api == "CreatePartitions":
            return max(0, int(row.count) - int(known.get(row.name, row.count)))
        if row.name in known:
            return 0
        if row.assignments:
            return len(row.assignments)
        return max(0, self._default if row.num_partitions == DEFAULT else int(row.num_partitions))

    def _give_back(self, answers: Any, allowed: Mapping[object, int], user: str, client: str) -> None:
        """What was refused for another reason was not done."""
        for answer in answers:
            weight = allowed.get(answer.name) or allowed.get(getattr(answer, "topic_id", None))
            if answer.error_code and weight:
                self._quotas.charge(self._quotas.mutations, user, client, -weight, self._clock())

    # -- topics -------------------------------------------------------------------------------------------

    def _making(self, handler: Handler) -> Handler:
        owners = self._owners

        async def answered(request: Any, call: KafkaCall) -> Any:
            if owners is None or not owners.kept or request.validate_only:
                return await handler(request, call)
            user, refused = call.identity.principal.name, []
            room, known = owners.room(user), self._partitions()
            if room is not None:
                refused = [row for row in request.topics if row.name not in known][room:]
            if refused:
                request = copy(request)
                gone = {row.name for row in refused}
                request.topics = [row for row in request.topics if row.name not in gone]
            answer = await handler(request, call)
            await owners.made(user, [row.name for row in answer.topics if not row.error_code])
            told = [
                quota_refusal_row(CREATED_TOPIC_ROW, row, ErrorCode.POLICY_VIOLATION, owners.explain_refusal(user))
                for row in refused
            ]
            answer.topics = [*answer.topics, *told]
            return answer

        return answered

    def _asking(self, handler: Handler) -> Handler:
        """Metadata makes topics that are missing, where the node does: they are their asker's, too."""
        owners = self._owners

        async def answered(request: Any, call: KafkaCall) -> Any:
            if owners is None or not owners.kept or not (request.topics and request.allow_auto_topic_creation):
                return await handler(request, call)
            user, known = call.identity.principal.name, set(self._partitions())
            room, missing = owners.room(user), {row.name for row in request.topics if row.name} - known
            if room is not None and len(missing) > room:  # then none is made, and they are unknown topics
                request = copy(request)
                request.allow_auto_topic_creation = False
                return await handler(request, call)
            answer = await handler(request, call)
            if missing:  # a long answer has been written already: what there is now says which were made
                there = self._partitions()
                await owners.made(user, sorted(name for name in missing if name in there))
            return answer

        return answered

    # -- members ------------------------------------------------------------------------------------------

    def _counting(self, api: str, immediate: Immediate | None) -> Immediate | None:
        if immediate is None:
            return None

        def answered(request: Any, call: KafkaCall) -> Any:
            if (refused := self._refused(api, request, call)) is not None:
                return refused
            return immediate(request, call)

        return answered

    def _counting_slow(self, api: str, handler: Handler | None) -> Handler | None:
        if handler is None:
            return None

        async def answered(request: Any, call: KafkaCall) -> Any:
            if (refused := self._refused(api, request, call)) is not None:
                return refused
            return await handler(request, call)

        return answered

    def _refused(self, api: str, request: Any, call: KafkaCall) -> Any:
        """None: go on. The member is known as its user's from now on."""
        user, now_s = call.identity.principal.name, self._clock()
        if api in COMMITTING_APIS:
            return self._refused_commit(api, request, user, now_s)
        if api in JOINING_APIS and (not hasattr(request, "member_epoch") or request.member_epoch == 0):
            why = self._counts.refusal(user, request.group_id, request.member_id, now_s)
            if why is not None:
                made = struct(f"{api}Response")
                told = {"error_message": why.sentence} if api == "ConsumerGroupHeartbeat" else {}
                return made(error_code=ErrorCode(why.code), **told)
        if request.member_id:
            self._counts.note(user, request.group_id, request.member_id, now_s)
        return None

    def _refused_commit(self, api: str, request: Any, user: str, now_s: float) -> Any:
        """None: go on. Who commits as a member has been counted when it joined."""
        asked = request.shape.request if isinstance(request, OffsetCommitRequest) else request
        if asked.member_id:
            return None
        why = self._counts.commit_refusal(user, asked.group_id, now_s)
        if why is None:
            return None
        made, row = struct(f"{api}Response.topics"), struct(f"{api}Response.topics.partitions")
        return struct(f"{api}Response")(
            topics=[
                made(
                    name=topic.name,
                    partitions=[
                        row(partition_index=one.partition_index, error_code=ErrorCode(why.code))
                        for one in topic.partitions
                    ],
                )
                for topic in asked.topics
            ]
        )


def topic_key(row: Any) -> object:
    if isinstance(row, str):
        return row
    return row.name or getattr(row, "topic_id", None)


def quota_refusal_row(path: str, row: Any, code: int, why: str) -> Any:
    made = struct(path)(error_code=code)
    made.error_message = why
    made.name = row if isinstance(row, str) else row.name
    if hasattr(row, "topic_id"):
        made.topic_id = row.topic_id
    if hasattr(made, "configs"):
        made.configs = []
    return made
