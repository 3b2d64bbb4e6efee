"""Charges gRPC calls and holds callers over a quota; keeps quotas in `__security`, and serves the Quotas service.

A connection of gRPC cannot be left unread because of one caller, so the next calls of the same caller wait, before
anything is done for them: one whose deadline passes meanwhile has had no effect. Streams go on. Kafka's listener uses
the same quotas, and charges its connections itself. While a quota counts topics (`topic_count`), `__security` keeps
which principal created which topic.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias

import structlog
from google.protobuf.message import Message

from muster.coordinator.edge.overload import LoopTime
from muster.coordinator.errors import CoordinatorError, ErrorCode, Overloaded
from muster.coordinator.rpc.v1 import quota_service_pb2 as pb
from muster.coordinator.security.quota_rules import (
    ANY,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    EXACT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    TOPIC_COUNT,
    InvalidQuota,
    check_entity,
    check_value,
    filter_quotas,
)
from muster.coordinator.security.quota_usage import NodeQuotas, UserCounts
from muster.coordinator.security.state import QuotaEntity, QuotaKey, SecurityRecord, TopicKey, TopicOwner
from muster.coordinator.server.rpc_dispatch import FastPathHandler, MethodKind, RpcCall, ServiceMethod, fast_path_of
from muster.coordinator.server.security.security_store import ConcurrentSecurityChange, SecurityStore, error_code_for
from muster.coordinator.server.services.group_responses import to_error_code
from muster.long_work import make_aside, work_through
from muster.storage.errors import StorageError

# Creators of topics
# ------------------

log = structlog.get_logger("muster.security")

MOST_FORGOTTEN: Final = 1_000
"""Topics that are gone, and are forgotten with one write."""


class CreatedTopic(Protocol):
    @property
    def id(self) -> bytes: ...


class TopicOwners:
    """`topics` are those there are."""

    def __init__(
        self, store: SecurityStore, quotas: NodeQuotas, topics: Callable[[], Mapping[str, CreatedTopic]]
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._topics = topics

    @property
    def kept(self) -> bool:
        return TOPIC_COUNT in self._quotas.counts

    def room(self, user: str) -> int | None:
        """How many more topics the user may make; None: as many as it likes."""
        most = self._quotas.count_of(TOPIC_COUNT, user)
        if most is None:
            return None
        return max(0, most - sum(1 for name, owner in self._there() if owner.user == user))

    def explain_refusal(self, user: str) -> str:
        return f"user {user} has made as many topics as its quota allows ({TOPIC_COUNT})"

    async def made(self, user: str, names: Iterable[str]) -> None:
        """These are the user's from now on. Where that cannot be kept they are nobody's: made they are."""
        if not self.kept:
            return
        made = list(names)

        async def kept() -> None:
            topics, known = self._topics(), self._store.state.topic_owners
            changes = [
                SecurityRecord(TopicKey(name), TopicOwner(user, topics[name].id)) for name in made if name in topics
            ]
            gone = (name for name in known if name not in topics)
            changes += [SecurityRecord(TopicKey(name), None) for name in islice(gone, MOST_FORGOTTEN)]
            await self._store.write(changes)

        try:
            await self._store.settled(kept)
        except StorageError as error:
            log.warning("the creator of these topics could not be saved", user=user, why=str(error))

    def _there(self) -> Iterable[tuple[str, TopicOwner]]:
        topics = self._topics()
        for name, owner in self._store.state.topic_owners.items():
            if name in topics and topics[name].id == owner.id:
                yield name, owner


# Charging gRPC calls
# -------------------

PRODUCES: Final = frozenset({"Produce", "StageRecords"})
FETCHES: Final = frozenset({"Fetch", "MultiFetch"})
CHANGES: Final = frozenset({"CreateTopics", "CreatePartitions", "DeleteTopics"})
JOINS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})
COUNTED: Final = frozenset({"SyncGroup", "Heartbeat", *COMMITS, *JOINS})

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
            if quotas.counts and api in COUNTED and (refused := self._refused(method, api, request, call)) is not None:
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
        quotas.record_throttling(user, why, wait_s)
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
                response.topics.add(
                    name=name, error_code=ErrorCode.POLICY_VIOLATION, error_message=owners.explain_refusal(user)
                )
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
        if api in COMMITS:
            why = None if request.member_id else self._counts.commit_refusal(user, request.group_id, now_s)
            return None if why is None else method.response_type(error_code=why.code, error_message=why.sentence)
        if api in JOINS and getattr(request, "member_epoch", 0) == 0:
            why = self._counts.refusal(user, request.group_id, request.member_id, now_s)
            if why is not None:
                return method.response_type(error_code=why.code, error_message=why.sentence)
        if request.member_id:
            self._counts.note(user, request.group_id, request.member_id, now_s)
        return None


# The quotas that are set
# -----------------------

MOST_ENTITIES: Final = 10_000
"""That have quotas of their own; defaults are for the others."""

AT_ONCE: Final = 100
"""Alterations in one step of the loop."""


Alteration: TypeAlias = tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]
"""Whose, and what it is to have: a figure by each name, None to take it away."""


class ConfiguredQuotas:
    """Lives on the event loop."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store
        self._altering = asyncio.Lock()

    async def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Raises InvalidQuota."""
        there = dict(self._store.state.quotas)
        return await make_aside(lambda: filter_quotas(there, wanted, strict=strict), len(there))

    async def alter(self, wanted: Sequence[Alteration], *, validate_only: bool) -> list[str]:
        """Each for itself: empty, or why it was refused. What was not is in force on return.

        Raises CoordinatorError.
        """
        async with self._altering:
            try:
                return await self._store.settled(lambda: self._alter(wanted, validate_only=validate_only))
            except (StorageError, ValueError) as error:
                raise CoordinatorError(error_code_for(error), str(error)) from error

    async def _alter(self, wanted: Sequence[Alteration], *, validate_only: bool) -> list[str]:
        now = self._store.state.quotas
        then: dict[QuotaEntity, dict[str, float]] = {}
        before: dict[QuotaEntity, dict[str, float] | None] = {}
        told = []
        kept = len(now)
        for number, (parts, ops) in enumerate(wanted, 1):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # Nobody else changes quotas meanwhile, or the change is decided anew.
            try:
                entity = check_entity(parts)
                if entity in then:
                    raise InvalidQuota("the request names this entity twice; expected each once")
                figures = apply_quota_ops(entity, now.get(entity, {}), ops)
                self._are_kept(name for name, value in ops if value is not None)
                if entity not in now:
                    if kept >= MOST_ENTITIES:
                        raise InvalidQuota(f"{MOST_ENTITIES} entities have quotas; remove some, or set a default")
                    kept += 1
            except InvalidQuota as error:
                told.append(str(error))
                continue
            then[entity] = figures
            before[entity] = now.get(entity)
            told.append("")
        if any(now.get(entity) != figures for entity, figures in before.items()):
            raise ConcurrentSecurityChange
        changes = [
            SecurityRecord(QuotaKey(entity), figures or None)
            for entity, figures in then.items()
            if figures != now.get(entity, {})
        ]
        if not validate_only:
            await self._store.write_all(changes)
        return told

    def _are_kept(self, names: Iterable[str]) -> None:
        """Raises InvalidQuota."""
        for name in names:
            if name in self._store.quotas_elsewhere:
                raise InvalidQuota(
                    f"{name} is kept by the brokers of the Kafka that is this node's engine, where records and topics "
                    "are; set it there (kafka-configs.sh)"
                )


def apply_quota_ops(
    entity: QuotaEntity, before: Mapping[str, float], ops: Sequence[tuple[str, float | None]]
) -> dict[str, float]:
    """Its figures then. Raises InvalidQuota."""
    times = Counter(name for name, _ in ops)
    figures = dict(before)
    for name, value in ops:
        if times[name] > 1:
            raise InvalidQuota(f"{name!r} is changed twice; expected once")
        if value is None:
            figures.pop(name, None)
        else:
            figures[name] = check_value(entity, name, value)
    return figures


# The Quotas service
# ------------------

ROW: Final = 5
"""An entry takes so many times as long as a position does."""


class QuotaService:
    def __init__(self, quotas: ConfiguredQuotas) -> None:
        self._quotas = quotas

    async def describe_quotas(self, request: pb.DescribeQuotasRequest, call: RpcCall) -> pb.DescribeQuotasResponse:
        wanted = [
            (each.type, parse_quota_match(each), each.name if each.HasField("name") else None)
            for each in request.components
        ]
        answer = pb.DescribeQuotasResponse()
        try:
            found = await self._quotas.matching(wanted, strict=request.strict)
        except InvalidQuota as error:
            answer.error_code, answer.error_message = to_error_code(ErrorCode.INVALID_REQUEST), str(error)
            return answer
        return await make_aside(lambda: build_described_quotas(answer, found), ROW * len(found))

    async def alter_quotas(self, request: pb.AlterQuotasRequest, call: RpcCall) -> pb.AlterQuotasResponse:
        heavy = ROW * len(request.entries)
        wanted = await work_through(lambda: [parse_alteration(each) for each in request.entries], heavy)
        code: ErrorCode = ErrorCode.INVALID_REQUEST
        try:
            told = await self._quotas.alter(wanted, validate_only=request.validate_only)
        except CoordinatorError as error:
            code, told = error.code, [error.message] * len(wanted)
        answer = pb.AlterQuotasResponse()
        for why in told:
            answer.results.add(error_code=to_error_code(code if why else ErrorCode.NONE), error_message=why)
        return answer


def parse_alteration(entry: pb.QuotaAlteration) -> Alteration:
    return (
        [(part.type, part.name if part.HasField("name") else None) for part in entry.entity],
        [*entry.set.items(), *((name, None) for name in entry.unset)],
    )


def build_described_quotas(
    answer: pb.DescribeQuotasResponse, found: Sequence[tuple[QuotaEntity, Mapping[str, float]]]
) -> pb.DescribeQuotasResponse:
    for entity, figures in found:
        entry = answer.entries.add(values=figures)
        for kind, name in entity:
            entry.entity.add(type=kind, name=name)
    return answer


def parse_quota_match(wanted: pb.QuotaFilter) -> int:
    if wanted.is_default:
        return DEFAULT
    return EXACT if wanted.HasField("name") else ANY
