"""Puts a judge before each handler. Where everything is allowed the very same handler answers, in its own way."""

import asyncio
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Final

from muster.coordinator.edge.limits import LARGE_BYTES
from muster.coordinator.kafka.codec.codec import decode_frame, encode
from muster.coordinator.kafka.dispatch import Aside, Handler, Immediate, KafkaCall, Later, Written
from muster.coordinator.kafka.log.produces import SingleBatch
from muster.coordinator.kafka.rights.judging import Catalog, Instead, Judge, May, Tell, Verdict
from muster.coordinator.kafka.rights.members import OfMember
from muster.coordinator.kafka.rights.table import judge_of
from muster.coordinator.security.acl.authorizer import Authorizer
from muster.coordinator.security.acl.rights import Right

WAITS: Final = frozenset({"Fetch"})
"""Whoever waits as long as they like for what is to come is judged again when it has come."""


LARGE: Final = 2_000
"""Names, or rows that have them, above which a thread judges: the others' heartbeats do not wait for that."""

LISTS: Final[dict[str, tuple[str, ...]]] = {
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

FULL_ROWS: Final = frozenset({"CreateAcls", "AlterClientQuotas", "AlterUserScramCredentials"})
"""Whose rows take ten times as long as a name does."""

GO_THE_LONG_WAY: Final = frozenset({"Produce", "Fetch", "ListOffsets"})
"""Those whose handlers have a long way beside the short one. A large commit stays in its place before the next one."""


def is_large(request: Any, lists: tuple[str, ...], most: int = LARGE) -> bool:
    if isinstance(request, SingleBatch):
        return False
    for name in lists:
        rows = getattr(request, name)
        if rows and (len(rows) > most or (name == "groups" and inner(rows) > most)):
            return True
    return False


def inner(groups: Any) -> int:
    """How many topics the groups of an OffsetFetch name; other requests have names for groups."""
    return sum(len(getattr(group, "topics", None) or ()) for group in groups)


class Guard:
    """Made once for a Dispatch. `tell` hears of refusals."""

    def __init__(self, authorizer: Authorizer, catalog: Catalog, tell: Tell | None = None) -> None:
        self._may = May(authorizer, catalog, tell)

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """Both of an API's handlers, each behind its judge. Raises LookupError for an API without rights."""
        judge = judge_of(api)
        if judge is None:
            return handler, immediate
        whole = Whole(f"{api}Response", version)
        return (
            None if handler is None else slow(partial(judge, self._may), handler, whole, api),
            None if immediate is None else at_once(judge, self._may, immediate, whole, api if handler else ""),
        )


class Whole:
    """Makes answers whole: what a handler wrote as bytes is read again, and written again."""

    def __init__(self, message: str, version: int) -> None:
        self._message = message
        self._version = version

    def __call__(self, amend: Callable[[Any], Any], answer: Any) -> Any:
        if not isinstance(answer, Written):
            return amend(answer)
        amended = amend(decode_frame(self._message, self._version, b"".join(answer.body)))
        return Written(encode(self._message, self._version, amended))


def at_once(judge: Judge, may: May, immediate: Immediate, whole: Whole, api: str) -> Immediate:
    judged = whatever_it_is(judge, may, immediate, whole, api)
    return of_member(judge.right, may, immediate, judged) if isinstance(judge, OfMember) else judged


def of_member(right: Right, may: May, immediate: Immediate, judged: Immediate) -> Immediate:
    """What members send all the time is looked up here: each call more is felt in a heartbeat."""
    authorizer, key = may.authorizer, id(right)

    def answered(request: Any, call: KafkaCall) -> Any:
        if call.peer.identity.cleared.get((key, request.group_id)) is authorizer.moment:
            return immediate(request, call)
        return judged(request, call)

    return answered


def whatever_it_is(judge: Judge, may: May, immediate: Immediate, whole: Whole, api: str) -> Immediate:
    lists = LISTS.get(api, ()) if api in GO_THE_LONG_WAY else ()

    def answered(request: Any, call: KafkaCall) -> Any:
        if lists and is_large(request, lists):
            return None
        verdict = judge(may, request, call)
        if verdict is None:
            return immediate(request, call)
        if isinstance(verdict, Instead):
            return verdict.answer
        answer = immediate(verdict.request, call)
        if isinstance(answer, Aside):
            return Aside(Amended(answer, lambda told: partial(whole, verdict.amend, told)))
        if isinstance(answer, Later):
            return Amended(answer, partial(whole, verdict.amend))
        return None if answer is None else whole(verdict.amend, answer)

    return answered


def slow(judge: Callable[[Any, KafkaCall], Verdict], handler: Handler, whole: Whole, api: str) -> Handler:
    lists, again = LISTS.get(api, ()), api in WAITS
    most = LARGE // 10 if api in FULL_ROWS else LARGE

    async def answered(request: Any, call: KafkaCall) -> Any:
        large = is_large(request, lists, most)
        verdict = await asyncio.to_thread(judge, request, call) if large else judge(request, call)
        if isinstance(verdict, Instead):
            return verdict.answer
        answer = await handler(request if verdict is None else verdict.request, call)
        if again and (now := judge(request, call)) is not None:
            if isinstance(now, Instead):
                return now.answer
            if verdict is None or now.request != verdict.request:  # less than when it began to wait
                answer, verdict = await handler(hurried(now.request), call), now
        if verdict is None:
            return answer
        if isinstance(answer, Written) and sum(map(len, answer.body)) > LARGE_BYTES:
            return await asyncio.to_thread(whole, verdict.amend, answer)
        return whole(verdict.amend, answer)

    return answered


def hurried(request: Any) -> Any:
    """The same request without patience."""
    request = copy(request)
    request.max_wait_ms = 0
    return request


class Amended(Later):
    """An answer that is made whole when it has come."""

    __slots__ = ("_amend", "_answer")

    def __init__(self, answer: Later, amend: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._amend = amend

    def then(self, came: Callable[[], None]) -> None:
        self._answer.then(came)

    def respond(self) -> Any:
        return self._amend(self._answer.respond())

    def cancel(self) -> None:
        self._answer.cancel()
