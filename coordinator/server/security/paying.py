"""gRPC's calls within quotas: what they use is charged, and who is over a quota is held.

A connection of gRPC cannot be left unread for one caller's sake, so it is the next calls of the same caller that wait,
before anything is done for them: one whose deadline passes meanwhile has had no effect. Streams go on.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from google.protobuf.message import Message

from muster.coordinator.edge.timing import LoopTime
from muster.coordinator.errors import ErrorCode, Overloaded
from muster.coordinator.security.counts import UserCounts
from muster.coordinator.security.names import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from muster.coordinator.security.quotas import NodeQuotas
from muster.coordinator.server.rpc_dispatch import FastPathHandler, MethodKind, RpcCall, ServiceMethod, fast_path_of
from muster.coordinator.server.security.topic_owners import TopicOwners

PRODUCES: Final = frozenset({"Produce", "StageRecords"})
FETCHES: Final = frozenset({"Fetch", "MultiFetch"})
CHANGES: Final = frozenset({"CreateTopics", "CreatePartitions", "DeleteTopics"})
JOINS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
SPEAK: Final = frozenset({"SyncGroup", "Heartbeat", *JOINS})

MOST_HELD: Final = 32
"""Calls of one caller that wait; further ones are refused (RESOURCE_EXHAUSTED)."""

MANY_HELD: Final = 1_000
"""Callers, after which it is looked whose wait is over."""

QuotaCaller = tuple[str, str]
"""A user and its address."""


class GrpcQuotas:
    """`held` hears which member's call waits, and for how many ms; `partitions` tells how many a topic has."""

    def __init__(
        self,
        quotas: NodeQuotas,
        counts: UserCounts,
        held: Callable[[str, str, int], None],
        partitions: Callable[[], Mapping[str, int]],
        owners: TopicOwners,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._quotas = quotas
        self._counts = counts
        self._held = held
        self._partitions = partitions
        self._owners = owners
        self._clock = clock
        self._sleep = sleep
        self._until_s: dict[QuotaCaller, float] = {}
        self._stands_until_s: dict[tuple[str, str], float] = {}
        """By group and member."""
        self._waiting: Counter[QuotaCaller] = Counter()

    def charged(self, table: Mapping[str, ServiceMethod]) -> dict[str, ServiceMethod]:
        """The same methods, within quotas."""
        return {
            name: replace(method, handler=self._paid(method)) if method.kind is MethodKind.UNARY else method
            for name, method in table.items()
        }

    def _paid(self, method: ServiceMethod) -> Callable[[Any, RpcCall], Awaitable[Any]]:
        api, quotas = method.full_name.rpartition("/")[2], self._quotas
        handler = self._making(method.handler) if api == "CreateTopics" else method.handler

        def answer(request: Any, call: RpcCall) -> Awaitable[Any]:
            return paid(request, call) if quotas.active else handler(request, call)

        async def paid(request: Any, call: RpcCall) -> Any:
            if quotas.counts and api in SPEAK and (refused := self._refused(method, api, request, call)) is not None:
                return refused
            if not quotas.rates:
                return await handler(request, call)
            caller = (call.identity.principal.name, call.peer_host)
            await self._turn_of(caller, request)
            weight = self._weight(api, request) if api in CHANGES else 0
            work = LoopTime(handler(request, call))
            response = await work
            return self._charge(caller, api, request, response, weight, work.spent_s)

        well = fast_path_of(handler)
        if well is None:
            return answer
        return FastPathHandler(answer, lambda request, call: not quotas.active and well(request, call))

    # -- charges ------------------------------------------------------------------------------------------

    def _charge(self, caller: QuotaCaller, api: str, request: Any, response: Any, weight: int, spent_s: float) -> Any:
        quotas, user, now_s = self._quotas, caller[0], self._clock()
        began_s = perf_counter()
        wait_s, why = 0.0, ""
        if api in PRODUCES and quotas.producing:
            wait_s, why = quotas.charge(quotas.producing, user, "", request.ByteSize(), now_s), PRODUCER_BYTE_RATE
        elif api in FETCHES and quotas.consuming:
            size = len(response) if isinstance(response, bytes) else response.ByteSize()
            wait_s, why = quotas.charge(quotas.consuming, user, "", size, now_s), CONSUMER_BYTE_RATE
        elif weight:
            wait_s, why = quotas.charge(quotas.mutations, user, "", weight, now_s), CONTROLLER_MUTATION_RATE
        if quotas.requests:
            percent = (spent_s + perf_counter() - began_s) * 100
            for_time_s = quotas.charge(quotas.requests, user, "", percent, now_s)
            if for_time_s > wait_s:
                wait_s, why = for_time_s, REQUEST_PERCENTAGE
        if not wait_s:
            return response
        quotas.told(user, why, wait_s)
        self._until_s[caller] = max(self._until_s.get(caller, 0.0), now_s + wait_s)
        if isinstance(response, Message) and "throttle_time_ms" in response.DESCRIPTOR.fields_by_name:
            response.throttle_time_ms = max(1, int(wait_s * 1000))  # type: ignore[attr-defined]
        return response

    def _weight(self, api: str, request: Any) -> int:
        """How many partitions it is about."""
        known = self._partitions()
        if api == "DeleteTopics":
            return sum(known.get(name, 0) for name in request.topic_names)
        if api == "CreatePartitions":
            return sum(max(0, topic.count - known.get(topic.name, topic.count)) for topic in request.topics)
        if request.validate_only:
            return 0
        return sum(max(1, topic.num_partitions) for topic in request.topics if topic.name not in known)

    def _making(self, handler: Callable[[Any, RpcCall], Awaitable[Any]]) -> Callable[[Any, RpcCall], Awaitable[Any]]:
        """Topics above the user's number are refused, and those that are made are noted as its own."""
        owners = self._owners

        async def answer(request: Any, call: RpcCall) -> Any:
            if not owners.kept or request.validate_only:
                return await handler(request, call)
            user, refused = call.identity.principal.name, []
            room, known = owners.room(user), self._partitions()
            if room is not None:
                refused = [topic.name for topic in request.topics if topic.name not in known][room:]
            if refused:
                kept = [topic for topic in request.topics if topic.name not in refused]
                request = type(request)(topics=kept, validate_only=request.validate_only)
            response = await handler(request, call)
            await owners.made(user, [topic.name for topic in response.topics if not topic.error_code])
            for name in refused:
                response.topics.add(name=name, error_code=ErrorCode.POLICY_VIOLATION, error_message=owners.why(user))
            return response

        return answer

    # -- holding ------------------------------------------------------------------------------------------

    async def _turn_of(self, caller: QuotaCaller, request: Any) -> None:
        """Wait as long as the caller was told to. Raises Overloaded when too many of its calls wait."""
        until_s = self._until_s.get(caller)
        if until_s is None:
            return
        left_s = until_s - self._clock()
        if left_s <= 0:
            self._until_s.pop(caller, None)
            return
        if len(self._until_s) > MANY_HELD:
            self._forget_old()
        if self._waiting[caller] >= MOST_HELD:
            raise Overloaded(
                f"{MOST_HELD} calls of {caller[0]} wait already for its quota; try again in {left_s:.1f} s"
            )
        group_id, member_id = getattr(request, "group_id", ""), getattr(request, "member_id", "")
        if group_id and member_id:
            self._hold(group_id, member_id, until_s, until_s - left_s)
        self._waiting[caller] += 1
        try:
            await self._sleep(left_s)
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]

    def _hold(self, group_id: str, member_id: str, until_s: float, now_s: float) -> None:
        """The member's session stands still until then: once, however often it calls meanwhile."""
        member = (group_id, member_id)
        more_s = until_s - max(self._stands_until_s.get(member, now_s), now_s)
        if more_s > 0:
            self._stands_until_s[member] = until_s
            self._held(group_id, member_id, round(more_s * 1000))
        if len(self._stands_until_s) > MANY_HELD:
            self._forget_old()

    def _forget_old(self) -> None:
        now_s = self._clock()
        for kept in (self._until_s, self._stands_until_s):
            for key in [each for each, until_s in kept.items() if until_s <= now_s]:
                del kept[key]

    # -- how many -----------------------------------------------------------------------------------------

    def _refused(self, method: ServiceMethod, api: str, request: Any, call: RpcCall) -> Message | None:
        """None: go on. The member is known as its user's from now on."""
        user, now_s = call.identity.principal.name, self._clock()
        if api in JOINS and getattr(request, "member_epoch", 0) == 0:
            why = self._counts.refusal(user, request.group_id, request.member_id, now_s)
            if why is not None:
                return method.response_type(error_code=why.code, error_message=why.sentence)
        if request.member_id:
            self._counts.note(user, request.group_id, request.member_id, now_s)
        return None
