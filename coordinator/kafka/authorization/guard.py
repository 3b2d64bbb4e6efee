"""Puts a judge in front of each handler. If everything is allowed, the handler itself answers, at its usual speed.

`JUDGES` has the judge of each API; an API without a row in the table of rights, or without a judge, is not served. A
fetch that waits is judged again when it ends. Very large requests are judged in a thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, Final

from muster.coordinator.edge.request_limits import LARGE_BYTES
from muster.coordinator.kafka.authorization.admin import (
    judge_describe_cluster,
    judge_list_config_resources,
    make_cluster_judge,
    make_resource_judge,
)
from muster.coordinator.kafka.authorization.groups import (
    MemberJudge,
    judge_add_offsets_to_txn,
    judge_consumer_group_describe,
    judge_consumer_group_heartbeat,
    judge_delete_groups,
    judge_describe_groups,
    judge_find_coordinator,
    judge_join_group,
    judge_list_groups,
    judge_offset_commit,
    judge_offset_delete,
    judge_offset_fetch,
    judge_txn_offset_commit,
)
from muster.coordinator.kafka.authorization.judge import (
    AccessCheck,
    Judge,
    RefusalAnswer,
    RefusalAudit,
    TopicLookup,
    Verdict,
)
from muster.coordinator.kafka.authorization.log import (
    judge_create_partitions,
    judge_create_topics,
    judge_delete_records,
    judge_delete_topics,
    judge_fetch,
    judge_init_producer_id,
    judge_list_offsets,
    judge_metadata,
    judge_offset_for_leader_epoch,
    judge_produce,
)
from muster.coordinator.kafka.codec.codec import decode_frame, encode
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
from muster.coordinator.security.rights import API_RIGHTS, RequiredRight

# The judge of each API
# ---------------------

JUDGES: Final[Mapping[str, Judge]] = {
    "Produce": judge_produce,
    "Fetch": judge_fetch,
    "ListOffsets": judge_list_offsets,
    "OffsetForLeaderEpoch": judge_offset_for_leader_epoch,
    "Metadata": judge_metadata,
    "OffsetCommit": judge_offset_commit,
    "OffsetFetch": judge_offset_fetch,
    "FindCoordinator": judge_find_coordinator,
    "JoinGroup": judge_join_group,
    "Heartbeat": MemberJudge("Heartbeat"),
    "LeaveGroup": MemberJudge("LeaveGroup"),
    "SyncGroup": MemberJudge("SyncGroup"),
    "DescribeGroups": judge_describe_groups,
    "ListGroups": judge_list_groups,
    "CreateTopics": judge_create_topics,
    "DeleteTopics": judge_delete_topics,
    "DeleteRecords": judge_delete_records,
    "InitProducerId": judge_init_producer_id,
    "AddOffsetsToTxn": judge_add_offsets_to_txn,
    "TxnOffsetCommit": judge_txn_offset_commit,
    "DescribeAcls": make_cluster_judge("DescribeAcls"),
    "CreateAcls": make_cluster_judge("CreateAcls"),
    "DeleteAcls": make_cluster_judge("DeleteAcls"),
    "DescribeConfigs": make_resource_judge("DescribeConfigs", "results"),
    "AlterConfigs": make_resource_judge("AlterConfigs", "responses"),
    "CreatePartitions": judge_create_partitions,
    "DeleteGroups": judge_delete_groups,
    "IncrementalAlterConfigs": make_resource_judge("IncrementalAlterConfigs", "responses"),
    "OffsetDelete": judge_offset_delete,
    "DescribeClientQuotas": make_cluster_judge("DescribeClientQuotas"),
    "AlterClientQuotas": make_cluster_judge("AlterClientQuotas"),
    "DescribeUserScramCredentials": make_cluster_judge("DescribeUserScramCredentials"),
    "AlterUserScramCredentials": make_cluster_judge("AlterUserScramCredentials"),
    "ElectLeaders": make_cluster_judge("ElectLeaders"),
    "AlterPartitionReassignments": make_cluster_judge("AlterPartitionReassignments"),
    "ListPartitionReassignments": make_cluster_judge("ListPartitionReassignments"),
    "DescribeCluster": judge_describe_cluster,
    "ConsumerGroupHeartbeat": judge_consumer_group_heartbeat,
    "ConsumerGroupDescribe": judge_consumer_group_describe,
    "ListConfigResources": judge_list_config_resources,
}


def find_judge(api: str) -> Judge | None:
    """None for an API that everybody may ask. Raises LookupError for one that has no row, or no judge."""
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
"""Whoever waits as long as they like for what is to come is judged again when it has come."""


LARGE_REQUEST_NAMES: Final = 2_000
"""Names, or rows that have them, above which a thread judges: the others' heartbeats do not wait for that."""

REQUEST_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "Produce": ("topic_data",),
    "Fetch": ("topics",),
    "ListOffsets": ("topics",),
    "OffsetForLeaderEpoch": ("topics",),
    "Metadata": ("topics",),
    "OffsetFetch": ("topics", "groups"),
    "FindCoordinator": ("coordinator_keys",),
    "CreateAcls": ("creations",),
    "AlterClientQuotas": ("entries",),
    "AlterUserScramCredentials": ("upsertions", "deletions"),
    "DescribeGroups": ("groups",),
    "CreateTopics": ("topics",),
    "DeleteTopics": ("topics", "topic_names"),
    "DeleteRecords": ("topics",),
    "DescribeConfigs": ("resources",),
    "AlterConfigs": ("resources",),
    "CreatePartitions": ("topics",),
    "DeleteGroups": ("groups_names",),
    "IncrementalAlterConfigs": ("resources",),
    "OffsetDelete": ("topics",),
    "TxnOffsetCommit": ("topics",),
    "ConsumerGroupHeartbeat": ("subscribed_topic_names",),
    "ConsumerGroupDescribe": ("group_ids",),
}
"""Where a request has what it may have many of."""

EXPENSIVE_ROWS: Final = frozenset({"CreateAcls", "AlterClientQuotas", "AlterUserScramCredentials"})
"""Whose rows take ten times as long as a name does."""

HAS_ASYNC_FORM: Final = frozenset({"Produce", "Fetch", "ListOffsets"})
"""Those whose handlers have a long way beside the short one. A large commit stays in its place before the next one."""


def is_large(request: Any, lists: tuple[str, ...], most: int = LARGE_REQUEST_NAMES) -> bool:
    if isinstance(request, SingleBatch):
        return False
    for name in lists:
        rows = getattr(request, name)
        if rows and (len(rows) > most or (name == "groups" and count_inner_topics(rows) > most)):
            return True
    return False


def count_inner_topics(groups: Any) -> int:
    """How many topics the groups of an OffsetFetch name; other requests have names for groups."""
    return sum(len(getattr(group, "topics", None) or ()) for group in groups)


class HandlerGuard:
    """Made once for a Dispatch. `tell` hears of refusals."""

    def __init__(self, authorizer: Authorizer, catalog: TopicLookup, tell: RefusalAudit | None = None) -> None:
        self._may = AccessCheck(authorizer, catalog, tell)

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """Both of an API's handlers, each behind its judge. Raises LookupError for an API without rights."""
        judge = find_judge(api)
        if judge is None:
            return handler, immediate
        whole = AnswerCompleter(f"{api}Response", version)
        return (
            None if handler is None else guard_async(partial(judge, self._may), handler, whole, api),
            None if immediate is None else guard_immediate(judge, self._may, immediate, whole, api if handler else ""),
        )


class AnswerCompleter:
    """Makes answers whole: what a handler wrote as bytes is read again, and written again."""

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
    return guard_member(judge.right, may, immediate, judged) if isinstance(judge, MemberJudge) else judged


def guard_member(right: RequiredRight, may: AccessCheck, immediate: Immediate, judged: Immediate) -> Immediate:
    """What members send all the time is looked up here: each call more is felt in a heartbeat."""
    authorizer, key = may.authorizer, id(right)

    def answered(request: Any, call: KafkaCall) -> Any:
        if call.peer.identity.cleared.get((key, request.group_id)) is authorizer.moment:
            return immediate(request, call)
        return judged(request, call)

    return answered


def guard_any(judge: Judge, may: AccessCheck, immediate: Immediate, whole: AnswerCompleter, api: str) -> Immediate:
    lists = REQUEST_LISTS.get(api, ()) if api in HAS_ASYNC_FORM else ()

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
    lists, again = REQUEST_LISTS.get(api, ()), api in JUDGED_AGAIN
    most = LARGE_REQUEST_NAMES // 10 if api in EXPENSIVE_ROWS else LARGE_REQUEST_NAMES

    async def answered(request: Any, call: KafkaCall) -> Any:
        large = is_large(request, lists, most)
        verdict = await asyncio.to_thread(judge, request, call) if large else judge(request, call)
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
            return await asyncio.to_thread(whole, verdict.amend, answer)
        return whole(verdict.amend, answer)

    return answered


def without_waiting(request: Any) -> Any:
    """The same request without patience."""
    request = copy(request)
    request.max_wait_ms = 0
    return request


class CompletedAnswer(DeferredAnswer):
    """An answer that is made whole when it has come."""

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
