"""The table of calls, each asked for its rights first. A call without a row in the table of rights keeps the node from
starting."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from muster.coordinator.errors import CallDenied, ErrorCode, NotAuthenticated
from muster.coordinator.security.model import CLUSTER_NAME, WILDCARD, Operation, ResourceType
from muster.coordinator.security.rights import RPC_RIGHTS, RequiredRight, WithoutRight
from muster.coordinator.server.rpc_dispatch import FastPath, FastPathHandler, MethodKind, ServiceMethod, fast_path_of
from muster.coordinator.server.security.answers import ANSWER_FILTERS, AnswerFilter, filter_causes
from muster.coordinator.server.security.asking import CallRights, IdentifiedCall
from muster.coordinator.server.security.gate import ENDED
from muster.coordinator.server.security.lasting import guard_session, guard_watch_stream
from muster.coordinator.server.security.paths import is_field, is_listed, is_path, names_at
from muster.coordinator.server.security.rows import ROWS, RefusedRow, merge_refused_rows, split_refused_rows
from muster.coordinator.server.services.shared_session import SharedSessionHandler

NODE_CONFIGS: Final = RequiredRight(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
"""Of DescribeConfigs without topics, which asks for the node's settings."""
SOMEWHERE: Final = RequiredRight(Operation.WRITE, ResourceType.TOPIC, "topics of what was staged")

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
    if method.kind is MethodKind.SERVER_STREAM:
        return guard_watch_stream(method.handler, api, asked, rights)
    listed = [right for right in asked if api in ROWS and is_listed(right.of, request)]
    whole = [right for right in asked if right not in listed]
    whole += [right for right in needed if not right.of and not right.when]
    guarding = CallGuard(
        method, api, rights, tuple(whole), tuple(listed), ANSWER_FILTERS.get(api), request_check_of(api, staged)
    )
    if not listed and guarding.before is None and len(whole) == 1 and is_field(whole[0].of, request):
        if guarding.after not in (None, filter_causes):
            return guarding.answer
        well = fast_path_of(method.handler)
        return (
            guarding.answer_member if well is None else FastPathHandler(guarding.answer_member, guarding.cleared(well))
        )
    if api in WAITS:
        return guarding.answer_late
    return guarding.answer if listed or guarding.after or guarding.before else guarding.answer_whole


@dataclass(frozen=True, slots=True)
class CallGuard:
    """One method with an answer. `whole` rights refuse the request, `listed` ones its rows."""

    method: ServiceMethod
    api: str
    rights: CallRights
    whole: tuple[RequiredRight, ...]
    listed: tuple[RequiredRight, ...]
    after: AnswerFilter | None
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
        if self.after is None or (not isinstance(answer, bytes) and not answer.cause_detail):
            return answer
        return await self.looked_at(answer, request, call)

    def cleared(self, well: FastPath) -> FastPath:
        """The short way, for who is known to have the right; others, and who names nothing, go the long one."""
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
        holds, at = self.rights.holds, ROWS[self.api][0]
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
                if not rights.holds(who, right, name):
                    return self.refusal(*rights.refuse(call, right, name, self.api))
        return None

    def refusal(self, code: ErrorCode, text: str) -> Any:
        """Raises Denied where an answer has no place for the code."""
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
            if not self.rights.holds(call.identity, right, name):
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


def request_check_of(api: str, staged: TopicsOfStaged) -> RequestCheck | None:
    match api:
        case "CommitStaged" | "AbortStaged":
            return partial(check_staged_write, staged)
        case "DescribeConfigs":
            return check_node_configs
        case "InitProducerId":
            return check_produce
        case _:
            return None


async def check_staged_write(staged: TopicsOfStaged, guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    """Of all topics. A batch of nothing is decided, too: by who may write anywhere."""
    topics, who = await staged(request), call.identity
    if not topics and not guard.rights.may_somewhere(who, Operation.WRITE, ResourceType.TOPIC):
        return guard.refusal(*guard.rights.refuse(call, SOMEWHERE, WILDCARD, guard.api))
    for topic in topics:
        if not guard.rights.holds(who, SOMEWHERE, topic):
            return guard.refusal(*guard.rights.refuse(call, SOMEWHERE, topic, guard.api))
    return None


async def check_node_configs(guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    if request.topics or guard.rights.holds(call.identity, NODE_CONFIGS):
        return None
    answer: Any = guard.method.response_type()
    answer.results.add(error_code=31, error_message=guard.rights.refuse(call, NODE_CONFIGS, CLUSTER_NAME, guard.api)[1])
    return answer


async def check_produce(guard: CallGuard, request: Any, call: IdentifiedCall) -> Any:
    """Its own transactional id; without one, whoever may write to some topic, or to all (as Kafka)."""
    if request.transactional_id:
        right = RequiredRight(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
        name = request.transactional_id
        lacks = not guard.rights.holds(call.identity, right, name)
    else:
        right, name = RequiredRight(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), CLUSTER_NAME
        somewhere = guard.rights.may_somewhere(call.identity, Operation.WRITE, ResourceType.TOPIC)
        lacks = not somewhere and not guard.rights.holds(call.identity, right, name)
    return guard.refusal(*guard.rights.refuse(call, right, name, guard.api)) if lacks else None
