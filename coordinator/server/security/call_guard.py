"""Asks every call for its rights before its handler runs. A call without a row keeps the node from starting.

A right to the whole refuses the request; a right to what it lists refuses those rows, which are taken out before the
handler sees the request and put back into its answer. Calls that go on (watches, sessions) are judged again with
every change of rights: what was lost ends them, and a member that lost its group is fenced with the code.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.message import Message

from muster.coordinator.edge.request_limits import TRANSACTION_KEY
from muster.coordinator.errors import CallDenied, ErrorCode, NotAuthenticated
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import CLUSTER_NAME, WILDCARD, Operation, ResourceType
from muster.coordinator.security.rights import BROKER, GROUPS, RPC_RIGHTS, RequiredRight, WithoutRight
from muster.coordinator.server.rpc_dispatch import FastPath, FastPathHandler, MethodKind, ServiceMethod, fast_path_of
from muster.coordinator.server.security.answer_judges import (
    JUDGED_BY_SENTENCE,
    UNJUDGED,
    judge_answer,
    judge_causes,
    judge_push,
)
from muster.coordinator.server.security.authentication import ENDED
from muster.coordinator.server.security.call_rights import CallRights, IdentifiedCall
from muster.coordinator.server.services.shared_session import SharedSessionHandler

# Refused rows
# ------------

ROWS: Final[Mapping[str, tuple[str, str]]] = {
    "ConsumerGroupDescribe": ("group_ids", "groups"),
    "DescribeGroups": ("groups", "groups"),
    "DeleteGroups": ("groups_names", "results"),
    "OffsetCommit": ("topics", "topics"),
    "TxnOffsetCommit": ("topics", "topics"),
    "OffsetFetch": ("topics", "topics"),
    "OffsetDelete": ("topics", "topics"),
    "Metadata": ("topics", "topics"),
    "CreateTopics": ("topics", "topics"),
    "DeleteTopics": ("topic_names", "topics"),
    "CreatePartitions": ("topics", "results"),
    "DescribeConfigs": ("topics", "results"),
    "AlterConfigs": ("topics", "results"),
    "Produce": ("topic_data", "responses"),
    "Fetch": ("topics", "responses"),
    "MultiFetch": ("fetches", "results"),
    "ListOffsets": ("topics", "topics"),
    "DeleteRecords": ("topics", "topics"),
    "DescribeProducers": ("topics", "topics"),
    "DescribeTransactions": ("transactional_ids", "transactions"),
}
"""By the method's name: where its request has rows, and where its answer has what became of each."""

NAMES: Final = ("name", "topic", "group_id", "transactional_id")
PARTS: Final = ("partitions", "partition_data", "partition_indexes")
INDEXES: Final = ("partition_index", "partition", "index")
NOT_KNOWN: Final = ("offset", "timestamp", "base_offset", "log_append_time_ms", "high_watermark", "last_stable_offset",
                    "log_start_offset", "low_watermark", "committed_offset", "committed_leader_epoch", "coordinator_id",
                    "producer_id", "producer_epoch", "start_time_ms")  # fmt: skip
"""Figures that are -1 in a row that was refused."""

RowVerdict = tuple[ErrorCode, str]


class RefusedRow(NamedTuple):
    at: int
    row: Any
    verdict: RowVerdict


def split_refused_rows(
    request: Any, field: str, judge: Callable[[str], RowVerdict | None]
) -> tuple[Any, list[RefusedRow], int]:
    """The request without the rows that `judge` refuses, those rows, and how many are left. It stays as it is."""
    rows = getattr(request, field)
    refused = []
    for at, row in enumerate(rows):
        name = row if isinstance(row, str) else name_of_row(row)
        if name and (verdict := judge(name)) is not None:
            refused.append(RefusedRow(at, row, verdict))
    if not refused:
        return request, refused, len(rows)
    out = {each.at for each in refused}
    kept = [row for at, row in enumerate(rows) if at not in out]
    smaller = type(request)()
    for descriptor, value in request.ListFields():
        if descriptor.name != field:
            copy_field(smaller, descriptor.name, value)
    getattr(smaller, field).extend(kept)
    return smaller, refused, len(kept)


def copy_field(message: Any, name: str, value: Any) -> None:
    if isinstance(value, Message):
        getattr(message, name).CopyFrom(value)
    elif hasattr(value, "MergeFrom"):
        getattr(message, name).MergeFrom(value)
    else:
        setattr(message, name, value)


def name_of_row(row: Any) -> str:
    return str(next((getattr(row, name) for name in NAMES if hasattr(row, name)), ""))


def merge_refused_rows(answer: Any, field: str, refused: Sequence[RefusedRow], kept: int) -> Any:
    """The answer with the refused rows at their places; behind the others where it has another order."""
    rows = getattr(answer, field)
    answered = list(rows)
    made = [(each.at, fill_refused_row(rows.add(), each)) for each in refused]
    if len(answered) == kept:
        for at, row in made:
            answered.insert(at, row)
    else:
        answered += [row for _, row in made]
    ordered = [type(row).FromString(row.SerializeToString()) for row in answered]
    del rows[:]
    rows.extend(ordered)
    return answer


def fill_refused_row(row: Any, refused: RefusedRow) -> Any:
    """`row` of the answer says no to what the request's row asked for."""
    asked, (code, text) = refused.row, refused.verdict
    fields = row.DESCRIPTOR.fields_by_name
    for name in NAMES:
        if name in fields:
            setattr(row, name, asked if isinstance(asked, str) else name_of_row(asked))
    if "error_code" in fields:
        set_refusal(row, code, text)
    elif "result" in fields:  # of MultiFetch: one partition a row
        row.result.partition_index = asked.partition
        set_refusal(row.result, code, text)
    else:
        listed = row.partitions if "partitions" in fields else row.partition_responses
        for part in next(getattr(asked, name) for name in PARTS if hasattr(asked, name)):
            one = listed.add()
            setattr(one, index_field(one), part if isinstance(part, int) else getattr(part, index_field(part)))
            set_refusal(one, code, text)
    return row


def index_field(part: Any) -> str:
    return next(name for name in INDEXES if name in part.DESCRIPTOR.fields_by_name)


def set_refusal(row: Any, code: ErrorCode, text: str) -> None:
    fields = row.DESCRIPTOR.fields_by_name
    row.error_code = int(code)
    if "error_message" in fields:
        row.error_message = text
    for name in NOT_KNOWN:
        if name in fields and fields[name].containing_oneof is None:
            setattr(row, name, -1)


# What a request names
# --------------------

PATH: Final = re.compile(r"[\w.]+(\[\w+\])?")


def is_path(of: str, request: Any) -> bool:
    """Whether this names fields of the request; what it is said in words otherwise is looked at by hand."""
    return bool(PATH.fullmatch(of)) and of.partition(".")[0].partition("[")[0] in request.fields_by_name


def is_field(of: str, request: Any) -> bool:
    """Whether it is a text of the request itself."""
    field = request.fields_by_name.get(of)
    return field is not None and field.type == field.TYPE_STRING and not field.is_repeated


def is_listed(of: str, request: Any) -> bool:
    """Whether its first field is there several times: rows, of which each may be refused for itself."""
    field = request.fields_by_name[of.partition(".")[0].partition("[")[0]]
    return bool(field.is_repeated) and "[" not in of


def names_at(message: Any, path: str) -> Iterator[str]:
    """The names there; empty ones name nothing.

    >>> from muster.storage.rpc.v1.broker_service_pb2 import DeleteTopicsRequest, FetchRequest, FetchTopic
    >>> list(names_at(FetchRequest(topics=[FetchTopic(topic="a"), FetchTopic(topic="b")]), "topics.topic"))
    ['a', 'b']
    >>> list(names_at(DeleteTopicsRequest(topic_names=["c", ""]), "topic_names"))
    ['c']
    """
    first, _, rest = path.partition(".")
    name, _, key = first.partition("[")
    found = getattr(message, name)
    if key:
        value = found.get(key.rstrip("]"), "")
        if value:
            yield value
        return
    for each in (found,) if isinstance(found, str) or hasattr(found, "DESCRIPTOR") else found:
        if rest:
            yield from names_at(each, rest)
        elif each:
            yield each


# Calls that go on
# ----------------

StreamCheck = Callable[[], None]
"""Raises what ends the call."""
Stream = Callable[[Any, Any], AsyncIterator[Any]]

READ_GROUP: Final = RequiredRight(Operation.READ, ResourceType.GROUP, "group_id")
SEE_TOPIC: Final = RequiredRight(Operation.DESCRIBE, ResourceType.TOPIC, "subscribed topics")
END: Final = object()


class RightLost(Exception):
    """A member may not do that, or no longer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


async def stream_while_allowed(
    stream: AsyncIterator[Any], rights: CallRights, check: StreamCheck
) -> AsyncIterator[Any]:
    """The same answers, until `check` raises: it is called with every change of rights."""
    try:
        while True:
            following = asyncio.ensure_future(anext(stream, END))
            try:
                while not following.done():
                    changed = rights.changed.event()  # from here on no change is missed
                    check()
                    changing = asyncio.ensure_future(changed.wait())
                    try:
                        await asyncio.wait((following, changing), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        changing.cancel()
                check()
            finally:
                if not following.done():
                    following.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await following
            answer = following.result()
            if answer is END:
                return
            yield answer
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def guard_watch_stream(
    handler: Stream, api: str, needed: Sequence[RequiredRight], rights: CallRights, judge: "AnswerJudgement | None"
) -> Stream:
    """A stream of answers to one request that names what it is about."""

    def check(request: Any, call: IdentifiedCall) -> None:
        for right in needed:
            for name in names_at(request, right.of):
                if not rights.has_right(call.identity, right, name):
                    code, text = rights.refuse(call, right, name, api)
                    raise CallDenied(text or code.name)

    async def answered(request: Any, call: Any) -> AsyncIterator[Any]:
        check(request, call)
        async for answer in stream_while_allowed(handler(request, call), rights, lambda: check(request, call)):
            yield answer if judge is None else await judge(answer, request, call, rights)

    return answered


class MemberStreamRights:
    """What one session stream may: its member's group, and the topics that it names."""

    def __init__(self, call: IdentifiedCall, rights: CallRights) -> None:
        self._call = call
        self._rights = rights
        self._group = ""
        self.lost: RightLost | None = None

    async def requests(self, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The member's words, up to one that it has no right to."""
        async for request in stream:
            self.lost = self.judge(request)
            if self.lost is not None:
                return
            yield request

    def judge(self, request: Any) -> RightLost | None:
        said = getattr(request, str(request.WhichOneof("request")), None)
        if said is None:
            return None
        group = getattr(said, "group_id", "")
        self._group = self._group or group
        for each in {group, self._group} - {""}:
            if (lost := self._check_right(READ_GROUP, each)) is not None:
                return lost
        named: Iterable[str] = ()
        if isinstance(said, pb.RegisterConsumer):
            named = said.topics
        elif isinstance(said, pb.ConsumerGroupHeartbeatRequest):
            named = said.subscribed_topic_names.names
        return next(
            (lost for topic in named if topic and (lost := self._check_right(SEE_TOPIC, topic)) is not None), None
        )

    def again(self) -> None:
        """Raises Lost when the member may not be in its group any more."""
        if self.lost is None and self._group:
            self.lost = self._check_right(READ_GROUP, self._group)
        if self.lost is not None:
            raise self.lost

    def _check_right(self, right: RequiredRight, name: str) -> RightLost | None:
        if self._rights.has_right(self._call.identity, right, name):
            return None
        return RightLost(*self._rights.refuse(self._call, right, name, "Session"))


def guard_session(handler: Stream, rights: CallRights) -> Stream:
    """Session: who lost the right to the group, or names a topic without one, is fenced off with the code."""

    async def answered(requests: Any, call: Any) -> AsyncIterator[Any]:
        member, sequence = MemberStreamRights(call, rights), 0
        try:
            async for answer in stream_while_allowed(handler(member.requests(requests), call), rights, member.again):
                if member.lost is not None:
                    break
                sequence = answer.sequence_number
                judge_push(answer, call, rights)
                yield answer
        except Exception:
            if member.lost is None:
                raise
        if member.lost is not None:
            fenced = pb.SessionFenced(error_message=member.lost.text)
            fenced.error_code = member.lost.code  # type: ignore[assignment]
            yield pb.SessionResponse(sequence_number=sequence + 1, fenced=fenced)

    return answered


# Guards of calls with one answer
# -------------------------------

NODE_CONFIGS: Final = RequiredRight(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
"""Of DescribeConfigs without topics, which asks for the node's settings."""
SOMEWHERE: Final = RequiredRight(Operation.WRITE, ResourceType.TOPIC, "topics of what was staged")

BY_KEY_TYPE: Final = frozenset({GROUPS + "FindCoordinator"})
"""What right to its key such a call needs depends on the key's type."""

WAITS: Final = frozenset({"Fetch", "MultiFetch"})
"""Whoever waits as long as they like for what is to come is judged again when it has come."""

TopicsOfStaged = Callable[[Any], Awaitable[Collection[str]]]
"""Of a request to commit or abort what was staged: which topics that is for."""


def guard_table(
    table: Mapping[str, ServiceMethod], rights: CallRights, staged: TopicsOfStaged
) -> dict[str, ServiceMethod]:
    """The same methods, for who may. Raises LookupError for one that nobody has thought of."""
    return {name: replace(method, handler=guard_method(method, rights, staged)) for name, method in table.items()}


def guard_method(method: ServiceMethod, rights: CallRights, staged: TopicsOfStaged) -> Callable[[Any, Any], Any]:
    needed = RPC_RIGHTS.get(method.full_name)
    if needed is None:
        raise LookupError(f"{method.full_name} has no row in the table of rights: say what it needs there")
    api, request = method.full_name.rpartition("/")[2], method.request_type.DESCRIPTOR
    if method.kind is MethodKind.BOTH_STREAM:
        if isinstance(method.handler, SharedSessionHandler):
            return method.handler.over(guard_session(method.handler.serve, rights))
        assert api == "Session", f"{method.full_name} streams both ways; only Session is known to"
        return guard_session(method.handler, rights)
    asked = [right for right in needed if right.lacking is WithoutRight.REFUSED and is_path(right.of, request)]
    if method.full_name in BY_KEY_TYPE:
        asked = []  # one of them is needed, not both
    if method.kind is MethodKind.SERVER_STREAM:
        return guard_watch_stream(method.handler, api, asked, rights, judgement_of(method.full_name))
    listed = [right for right in asked if api in ROWS and is_listed(right.of, request)]
    whole = [right for right in asked if right not in listed]
    whole += [right for right in needed if not right.of and not right.when]
    judgement = judgement_of(method.full_name)
    guarding = CallGuard(
        method, api, rights, tuple(whole), tuple(listed), judgement, request_check_of(method.full_name, staged)
    )
    if not listed and guarding.before is None and len(whole) == 1 and is_field(whole[0].of, request):
        if guarding.after not in (None, judge_causes):
            return guarding.answer
        well = fast_path_of(method.handler)
        return (
            guarding.answer_member if well is None else FastPathHandler(guarding.answer_member, guarding.cleared(well))
        )
    if api in WAITS:
        return guarding.answer_late
    return guarding.answer if listed or guarding.after or guarding.before else guarding.answer_whole


AnswerJudgement: TypeAlias = Callable[[Any, Any, IdentifiedCall, CallRights], Awaitable[Any]]
"""Of an answer, its request, and the call: the answer that leaves."""


def judgement_of(full_name: str) -> AnswerJudgement | None:
    """What becomes of a method's answers; a method that nobody has thought of has its whole answer judged."""
    if full_name in UNJUDGED:
        return None
    return judge_causes if full_name in JUDGED_BY_SENTENCE else judge_answer


@dataclass(frozen=True, slots=True)
class CallGuard:
    """One method with an answer. `whole` rights refuse the request, `listed` ones its rows."""

    method: ServiceMethod
    api: str
    rights: CallRights
    whole: tuple[RequiredRight, ...]
    listed: tuple[RequiredRight, ...]
    after: "AnswerJudgement | None"
    before: "RequestCheck | None"

    async def answer_whole(self, request: Any, call: Any) -> Any:
        refused = self.lacking(request, call)
        return refused if refused is not None else await self.method.handler(request, call)

    async def answer_member(self, request: Any, call: Any) -> Any:
        """What members say all the time is about one name; each call more is felt in a heartbeat."""
        (right,), rights, who = self.whole, self.rights, call.identity
        name = getattr(request, right.of)
        known = not name or who.cleared.get((id(right), name)) is rights.authorizer.moment
        if not known and not rights.clears(who, right, name):
            return self.refusal(*self.rights.refuse(call, right, name, self.api))
        answer = await self.method.handler(request, call)
        if self.after is None or not (isinstance(answer, bytes) or answer.cause_detail or answer.error_message):
            return answer
        return await self.looked_at(answer, request, call)

    def cleared(self, well: FastPath) -> FastPath:
        """The fast path of a caller known to have the right; all other requests go the general way."""
        (right,), authorizer = self.whole, self.rights.authorizer
        key, of = id(right), right.of

        def answered(request: Any, call: Any) -> bool:
            known = call.identity.cleared.get((key, getattr(request, of))) is authorizer.moment
            return known and well(request, call)

        return answered

    async def answer_late(self, request: Any, call: Any) -> Any:
        """Of what waits for records: who has lost a right to them by then, or the token, gets none."""
        moment = self.rights.moment
        answer = await self.answer(request, call)
        if not self.rights.believed(call.identity):
            raise NotAuthenticated(ENDED)
        if self.rights.moment is moment:
            return answer
        holds, at = self.rights.has_right, ROWS[self.api][0]
        if all(holds(call.identity, right, row.topic) for right in self.listed for row in getattr(request, at)):
            return answer
        hurried = type(request)()
        hurried.CopyFrom(request)
        hurried.max_wait_ms = 0
        return await self.answer(hurried, call)

    async def answer(self, request: Any, call: Any) -> Any:
        refused = self.lacking(request, call)
        if refused is None and self.before is not None:
            refused = await self.before(self, request, call)
        if refused is not None:
            return refused
        if not self.listed:
            return await self.looked_at(await self.method.handler(request, call), request, call)
        at, rows = ROWS[self.api]
        smaller, taken, kept = split_refused_rows(request, at, partial(self.judge, call))
        if not taken:
            return await self.looked_at(await self.method.handler(request, call), request, call)
        if kept or getattr(request, "all_topics", False):
            found = await self.looked_at(await self.method.handler(smaller, call), smaller, call)
        else:
            found = self.method.response_type()
        return merge_refused_rows(self.message(found), rows, self.in_order(taken), kept)

    def lacking(self, request: Any, call: IdentifiedCall) -> Any:
        """The answer that refuses the whole; None where nothing is lacking."""
        who, rights = call.identity, self.rights
        for right in self.whole:
            for name in names_at(request, right.of) if right.of else (CLUSTER_NAME,):
                if not rights.has_right(who, right, name):
                    return self.refuse_whole(request, rights.refuse(call, right, name, self.api))
        return None

    def refuse_whole(self, request: Any, verdict: RowVerdict) -> Any:
        """In every row, where the answer has the code in rows alone."""
        if self.api not in ROWS or "error_code" in self.method.response_type.DESCRIPTOR.fields_by_name:
            return self.refusal(*verdict)
        at, rows = ROWS[self.api]
        refused = [RefusedRow(number, row, verdict) for number, row in enumerate(getattr(request, at))]
        return merge_refused_rows(self.method.response_type(), rows, refused, 0)

    def refusal(self, code: ErrorCode, text: str) -> Any:
        """Raises CallDenied where an answer has no place for the code."""
        fields = self.method.response_type.DESCRIPTOR.fields_by_name
        if "error_code" not in fields:
            raise CallDenied(text or code.name)
        said = {"error_message": text} if "error_message" in fields else {}
        for name in ("producer_id", "producer_epoch", "generation_id"):
            if name in fields:
                said[name] = -1  # type: ignore[assignment]
        return self.method.response_type(error_code=int(code), **said)

    def judge(self, call: IdentifiedCall, name: str) -> tuple[ErrorCode, str] | None:
        for right in self.listed:
            if not self.rights.has_right(call.identity, right, name):
                return self.rights.refuse(call, right, name, self.api)
        return None

    async def looked_at(self, answer: Any, request: Any, call: IdentifiedCall) -> Any:
        if self.after is None:
            return answer
        return await self.after(self.message(answer), request, call, self.rights)

    def message(self, answer: Any) -> Any:
        return self.method.response_type.FromString(answer) if isinstance(answer, bytes) else answer

    def in_order(self, taken: list[RefusedRow]) -> list[RefusedRow]:
        return sorted(taken, key=lambda each: each.at)


RequestCheck = Callable[[CallGuard, Any, IdentifiedCall], Awaitable[Any]]
"""What a method needs that no path says: the refusing answer, or None."""


def request_check_of(full_name: str, staged: TopicsOfStaged) -> RequestCheck | None:
    if full_name in BY_KEY_TYPE:
        return check_coordinator_key
    match full_name.rpartition("/")[2]:
        case "CommitStaged" | "AbortStaged":
            return partial(check_staged_write, staged)
        case "DescribeConfigs":
            return check_node_configs
        case "InitProducerId" if full_name.startswith(BROKER):
            return check_produce
        case _:
            return None


async def check_coordinator_key(guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    """Of a group, or of a transactional id, as the request says what its key is."""
    kind = ResourceType.TRANSACTIONAL_ID if request.key_type == TRANSACTION_KEY else ResourceType.GROUP
    right = next(each for each in RPC_RIGHTS[guard.method.full_name] if each.resource_type is kind)
    if not request.key or guard.rights.has_right(call.identity, right, request.key):
        return None
    return guard.refusal(*guard.rights.refuse(call, right, request.key, guard.api))


async def check_staged_write(staged: TopicsOfStaged, guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    """Of all topics. A batch of nothing is decided, too: by who may write anywhere."""
    topics, who = await staged(request), call.identity
    if not topics and not guard.rights.may_somewhere(who, Operation.WRITE, ResourceType.TOPIC):
        return guard.refusal(*guard.rights.refuse(call, SOMEWHERE, WILDCARD, guard.api))
    for topic in topics:
        if not guard.rights.has_right(who, SOMEWHERE, topic):
            return guard.refusal(*guard.rights.refuse(call, SOMEWHERE, topic, guard.api))
    return None


async def check_node_configs(guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    if request.topics or guard.rights.has_right(call.identity, NODE_CONFIGS):
        return None
    answer: Any = guard.method.response_type()
    answer.results.add(error_code=31, error_message=guard.rights.refuse(call, NODE_CONFIGS, CLUSTER_NAME, guard.api)[1])
    return answer


async def check_produce(guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    """Its own transactional id; without one, whoever may write to some topic, or to all (as Kafka)."""
    if request.transactional_id:
        right = RequiredRight(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
        name = request.transactional_id
        lacks = not guard.rights.has_right(call.identity, right, name)
    else:
        right, name = RequiredRight(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), CLUSTER_NAME
        somewhere = guard.rights.may_somewhere(call.identity, Operation.WRITE, ResourceType.TOPIC)
        lacks = not somewhere and not guard.rights.has_right(call.identity, right, name)
    return guard.refusal(*guard.rights.refuse(call, right, name, guard.api)) if lacks else None
