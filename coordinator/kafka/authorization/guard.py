"""Puts a judge in front of each handler. If everything is allowed, the handler itself answers, at its usual speed.

`JUDGES` has the judge of each API, made from the tables or in code; an API without a row in the table of rights, or
without a judge, is not served. A fetch that waits is judged again when it ends. Very large requests are judged in a
thread.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache, partial
from typing import Any, Final

from muster.coordinator.edge.request_limits import LARGE_BYTES
from muster.coordinator.kafka.authorization.answer_shapes import SHAPES
from muster.coordinator.kafka.authorization.code_judges import (
    VISIBLE_TOPIC_RIGHT,
    judge_add_partitions_to_txn,
    judge_consumer_group_describe,
    judge_consumer_group_heartbeat,
    judge_create_topics,
    judge_delete_topics,
    judge_describe_cluster,
    judge_describe_groups,
    judge_describe_log_dirs,
    judge_describe_transactions,
    judge_fetch,
    judge_find_coordinator,
    judge_init_producer_id,
    judge_list_config_resources,
    judge_metadata,
    judge_offset_commit,
    judge_offset_fetch,
    judge_produce,
    make_resource_judge,
)
from muster.coordinator.kafka.authorization.judge import (
    AccessCheck,
    Judge,
    RefusalAnswer,
    RefusalAudit,
    TopicLookup,
    Verdict,
)
from muster.coordinator.kafka.authorization.table_judges import WholeJudge, fields_of, make_judge
from muster.coordinator.kafka.codec.codec import decode_frame, encode
from muster.coordinator.kafka.codec.messages import MessageStruct
from muster.coordinator.kafka.dispatch import (
    DeferredAnswer,
    EncodedAnswer,
    Handler,
    Immediate,
    KafkaCall,
    ThreadedAnswer,
)
from muster.coordinator.kafka.handlers.single_batch_produce import SingleBatch
from muster.coordinator.security.authorizer import Authorizer
from muster.coordinator.security.redaction import redact_text
from muster.coordinator.security.rights import API_RIGHTS, RequiredRight
from muster.long_work import run_in_answer_thread, run_in_request_thread

# The judge of each API
# ---------------------

CODE_JUDGES: Final[Mapping[str, Judge]] = {
    "Produce": judge_produce,
    "Fetch": judge_fetch,
    "Metadata": judge_metadata,
    "OffsetCommit": judge_offset_commit,
    "OffsetFetch": judge_offset_fetch,
    "FindCoordinator": judge_find_coordinator,
    "DescribeGroups": judge_describe_groups,
    "CreateTopics": judge_create_topics,
    "DeleteTopics": judge_delete_topics,
    "InitProducerId": judge_init_producer_id,
    "AddPartitionsToTxn": judge_add_partitions_to_txn,
    "DescribeConfigs": make_resource_judge("DescribeConfigs", "results"),
    "AlterConfigs": make_resource_judge("AlterConfigs", "responses"),
    "IncrementalAlterConfigs": make_resource_judge("IncrementalAlterConfigs", "responses"),
    "DescribeCluster": judge_describe_cluster,
    "DescribeLogDirs": judge_describe_log_dirs,
    "ConsumerGroupHeartbeat": judge_consumer_group_heartbeat,
    "ConsumerGroupDescribe": judge_consumer_group_describe,
    "ListConfigResources": judge_list_config_resources,
    "DescribeTransactions": judge_describe_transactions,
}
"""Those that a table would only hide; the module of each says why."""

JUDGES: Final[Mapping[str, Judge]] = {**{api: make_judge(api) for api in SHAPES}, **CODE_JUDGES}


def find_judge(api: str) -> Judge | None:
    """None for an API without rights. Raises LookupError for one that has no row, or no judge."""
    if api not in API_RIGHTS:
        raise LookupError(f"{api} has no row in the table of rights; coordinator/security/rights.py needs one")
    if not API_RIGHTS[api]:
        return None
    if api not in JUDGES:
        raise LookupError(f"{api} has rights but no judge; coordinator/kafka/authorization/guard.py needs one")
    return JUDGES[api]


# The guard
# ---------

JUDGED_AGAIN: Final = frozenset({"Fetch"})
"""These wait for new records, and are judged again when the wait ends."""


LARGE_REQUEST_NAMES: Final = 2_000
"""Above so many names, or rows with names, a thread judges, so that heartbeats do not wait."""

LISTS_WITHOUT_RIGHT: Final[Mapping[str, tuple[str, ...]]] = {
    "CreateAcls": ("creations",),
    "AlterClientQuotas": ("entries",),
    "AlterUserScramCredentials": ("upsertions", "deletions"),
    "DeleteTopics": ("topic_names",),
    "OffsetFetch": ("topics",),
}
"""Lists of a request that no right names: a refusal answers row by row, or older versions have the names there."""

JUDGED_IN_PLACE: Final = frozenset({"OffsetCommit"})
"""A large commit stays in its place before the next one."""

EXPENSIVE_ROWS: Final = frozenset({"CreateAcls", "AlterClientQuotas", "AlterUserScramCredentials"})
"""A row of these takes ten times as long as a name."""

HAS_ASYNC_FORM: Final = frozenset({"Produce", "Fetch", "ListOffsets"})
"""These have an async handler next to the immediate one."""


@cache
def request_lists(api: str) -> tuple[str, ...]:
    """Lists of the request that may have many names, or rows that are judged.

    >>> request_lists("Produce"), request_lists("Heartbeat"), request_lists("OffsetFetch")
    (('topic_data',), (), ('groups', 'topics'))
    """
    if api in JUDGED_IN_PLACE:
        return ()
    fields = fields_of(f"{api}Request")
    named = [right.split_path()[0] for right in API_RIGHTS[api] if not right.of_answer]
    every = dict.fromkeys((*named, *LISTS_WITHOUT_RIGHT.get(api, ())))
    return tuple(name for name in every if name in fields and fields[name].array)


def is_large(request: Any, lists: tuple[str, ...], most: int = LARGE_REQUEST_NAMES) -> bool:
    if isinstance(request, SingleBatch):
        return False
    for name in lists:
        rows = getattr(request, name)
        if rows and (len(rows) > most or (name == "groups" and count_inner_topics(rows) > most)):
            return True
    return False


def count_inner_topics(groups: Any) -> int:
    """How many topics the groups of an OffsetFetch name. In other requests a group is a plain name."""
    return sum(len(getattr(group, "topics", None) or ()) for group in groups)


class HandlerGuard:
    """Made once for a Dispatch. `tell` is called with each refusal."""

    def __init__(self, authorizer: Authorizer, catalog: TopicLookup, tell: RefusalAudit | None = None) -> None:
        self._may = AccessCheck(authorizer, catalog, tell)

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """Both handlers of an API, each behind its judge. Raises LookupError for an API without a row or a judge."""
        judge = find_judge(api)
        if judge is None:
            return handler, immediate
        whole = AnswerCompleter(f"{api}Response", version)
        if handler is not None and api in HAS_SENTENCES:
            handler = plain_sentences(handler, self._may, whole)
        return (
            None if handler is None else guard_async(partial(judge, self._may), handler, whole, api),
            None if immediate is None else guard_immediate(judge, self._may, immediate, whole, api if handler else ""),
        )


HAS_SENTENCES: Final = frozenset(
    {
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeConfigs", "AlterConfigs", "DeleteGroups"),
        *("IncrementalAlterConfigs", "DescribeGroups", "ConsumerGroupDescribe", "ElectLeaders"),
        *("AlterPartitionReassignments", "ListPartitionReassignments", "DescribeCluster", "FindCoordinator"),
    }
)
"""APIs whose answers say in words why something was refused, and may name another topic, such as a similar one."""


def plain_sentences(handler: Handler, may: AccessCheck, whole: "AnswerCompleter") -> Handler:
    """The handler, whose sentences lose the names of topics that the caller may not describe and did not name."""

    async def answered(request: Any, call: KafkaCall) -> Any:
        answer = await handler(request, call)
        if may.allows_every(call, VISIBLE_TOPIC_RIGHT):
            return answer
        asked = frozenset(texts_of(request))
        amend = partial(
            redact_sentences, lambda topic: topic in asked or may.is_allowed(call, VISIBLE_TOPIC_RIGHT, topic), may
        )
        if isinstance(answer, EncodedAnswer) and sum(map(len, answer.body)) > LARGE_BYTES:
            return await run_in_answer_thread(partial(whole, amend, answer))
        return whole(amend, answer)

    return answered


def texts_of(request: Any) -> Iterator[str]:
    """Every text in a message."""
    if isinstance(request, str):
        yield request
    elif isinstance(request, list | tuple):
        for each in request:
            yield from texts_of(each)
    elif isinstance(request, MessageStruct):
        for name in request._defaults:
            yield from texts_of(getattr(request, name))


def redact_sentences(may_see: Callable[[str], bool], may: AccessCheck, answer: Any) -> Any:
    if isinstance(answer, list | tuple):
        for each in answer:
            redact_sentences(may_see, may, each)
    elif isinstance(answer, MessageStruct):
        for name in answer._defaults:
            value = getattr(answer, name)
            if name != "error_message":
                redact_sentences(may_see, may, value)
            elif value:
                setattr(answer, name, redact_text(value, (), may_see, may.catalog))
    return answer


class AnswerCompleter:
    """Completes answers. An answer that a handler encoded is decoded, completed, and encoded again."""

    def __init__(self, message: str, version: int) -> None:
        self._message = message
        self._version = version

    def __call__(self, amend: Callable[[Any], Any], answer: Any) -> Any:
        if not isinstance(answer, EncodedAnswer):
            return amend(answer)
        amended = amend(decode_frame(self._message, self._version, b"".join(answer.body)))
        return EncodedAnswer(encode(self._message, self._version, amended))


def guard_immediate(
    judge: Judge, may: AccessCheck, immediate: Immediate, whole: AnswerCompleter, api: str
) -> Immediate:
    judged = guard_any(judge, may, immediate, whole, api)
    right = judge.member_right if isinstance(judge, WholeJudge) else None
    return judged if right is None else guard_member(right, may, immediate, judged)


def guard_member(right: RequiredRight, may: AccessCheck, immediate: Immediate, judged: Immediate) -> Immediate:
    """A fast path for frequent requests of members: one more call would be measurable in a heartbeat.

    The general way is `judged`; tests/property/security/test_rights_fast_paths.py holds the two together.
    """
    authorizer, key = may.authorizer, id(right)

    def answered(request: Any, call: KafkaCall) -> Any:
        if call.peer.identity.cleared.get((key, request.group_id)) is authorizer.moment:
            return immediate(request, call)
        return judged(request, call)

    return answered


def guard_any(judge: Judge, may: AccessCheck, immediate: Immediate, whole: AnswerCompleter, api: str) -> Immediate:
    lists = request_lists(api) if api in HAS_ASYNC_FORM else ()

    def answered(request: Any, call: KafkaCall) -> Any:
        if lists and is_large(request, lists):
            return None
        verdict = judge(may, request, call)
        if verdict is None:
            return immediate(request, call)
        if isinstance(verdict, RefusalAnswer):
            return verdict.answer
        answer = immediate(verdict.request, call)
        if isinstance(answer, ThreadedAnswer):
            return ThreadedAnswer(CompletedAnswer(answer, lambda told: partial(whole, verdict.amend, told)))
        if isinstance(answer, DeferredAnswer):
            return CompletedAnswer(answer, partial(whole, verdict.amend))
        return None if answer is None else whole(verdict.amend, answer)

    return answered


def guard_async(
    judge: Callable[[Any, KafkaCall], Verdict], handler: Handler, whole: AnswerCompleter, api: str
) -> Handler:
    lists, again = request_lists(api), api in JUDGED_AGAIN
    most = LARGE_REQUEST_NAMES // 10 if api in EXPENSIVE_ROWS else LARGE_REQUEST_NAMES

    async def answered(request: Any, call: KafkaCall) -> Any:
        large = is_large(request, lists, most)
        verdict = await run_in_request_thread(partial(judge, request, call)) if large else judge(request, call)
        if isinstance(verdict, RefusalAnswer):
            return verdict.answer
        answer = await handler(request if verdict is None else verdict.request, call)
        if again and (now := judge(request, call)) is not None:
            if isinstance(now, RefusalAnswer):
                return now.answer
            if verdict is None or now.request != verdict.request:  # less than when it began to wait
                answer, verdict = await handler(without_waiting(now.request), call), now
        if verdict is None:
            return answer
        if isinstance(answer, EncodedAnswer) and sum(map(len, answer.body)) > LARGE_BYTES:
            return await run_in_answer_thread(partial(whole, verdict.amend, answer))
        return whole(verdict.amend, answer)

    return answered


def without_waiting(request: Any) -> Any:
    """The same request with a wait of 0."""
    request = copy(request)
    request.max_wait_ms = 0
    return request


class CompletedAnswer(DeferredAnswer):
    """A deferred answer that is completed when it is ready."""

    __slots__ = ("_amend", "_answer")

    def __init__(self, answer: DeferredAnswer, amend: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._amend = amend

    def then(self, came: Callable[[], None]) -> None:
        self._answer.then(came)

    def respond(self) -> Any:
        return self._amend(self._answer.respond())

    def cancel(self) -> None:
        self._answer.cancel()
