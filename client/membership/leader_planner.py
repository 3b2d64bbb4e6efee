"""The group leader's plan: collect what the assignor needs, run it safely, and record its inputs.

An assignor that raises, returns an invalid plan or hangs fails its rebalance visibly but does not stop the group: the
last good plan is kept if it still fits the members, otherwise partitions are assigned as `range` does. The snapshot
then has the options `fallback` and `reason`, and the ledger keeps it.
"""

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Literal, Protocol, TypeVar

from muster.assignors.api import (
    Assignment,
    Assignor,
    AssignorError,
    JsonValue,
    Member,
    Plan,
    RebalanceProtocol,
    Snapshot,
)
from muster.assignors.builtin.range import RangeAssignor
from muster.assignors.data.consumer_protocol import encode_assignment, member_from_subscription
from muster.assignors.data.values import FALLBACK, REASON
from muster.assignors.plugin_pool import Isolation, IsolationLimits, isolation_until_exit
from muster.assignors.run import is_ours, overran, run
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import GroupMember
from muster.client.types import TopicPartition

log = logging.getLogger("muster.client")
T = TypeVar("T")

INLINE_PARTITIONS = 500
"""Up to here a built-in assignor needs less time than starting a thread."""

INLINE_BYTES = 64 << 10
"""Up to here subscriptions are decoded on the event loop; more would hold up heartbeats."""

MAX_SNAPSHOT_BYTES = 1 << 20
"""The default of the node's group.ledger.max.snapshot.bytes."""

CountTopics = Callable[[Iterable[str]], Awaitable[Mapping[str, int]]]
MeasureLags = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
RecallMoves = Callable[[], Awaitable[Mapping[TopicPartition, int]]]
"""When partitions last moved, in epoch milliseconds, as far as the ledger knows."""


class PlanMaker(Protocol):
    """Whoever makes the plans of a member that leads."""

    async def plan(self, asked: act.MakePlan) -> ev.PlanMade: ...


@dataclasses.dataclass(frozen=True)
class SubstituteAssignor:
    """A plan that stands in for the one an assignor failed to make; handed over the way that assignor would."""

    name: str
    protocol: RebalanceProtocol
    plan: Plan

    def assign(self, snapshot: Snapshot) -> Plan:
        return self.plan


class LeaderPlanner:
    """Makes plans for one member that may lead.

    `measure_lags` and `recall_moves` are asked only for assignors that want lags, or to let moved partitions cool down.
    """

    def __init__(
        self,
        assignors: Sequence[Assignor],
        count_topics: CountTopics,
        measure_lags: MeasureLags | None = None,
        deadline_ms: int = 10_000,
        options: Mapping[str, JsonValue] | None = None,
        recall_moves: RecallMoves | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._count_topics = count_topics
        self._measure_lags = measure_lags
        self._recall_moves = recall_moves
        self._deadline_ms = deadline_ms
        self._options = dict(options or {})
        self._isolation = isolation or shared_isolation("process")
        self._last_good: Plan = {}

    async def plan(self, asked: act.MakePlan) -> ev.PlanMade:
        """Raises ClientError when counts or lags cannot be learnt; never because of the assignor."""
        assignor = self._assignors.get(asked.protocol_name)
        heavy = sum(len(member.metadata) for member in asked.members) > INLINE_BYTES
        members = await run_off_loop(heavy, partial(read_members, asked))
        counts = await self._count_topics({topic for member in members for topic in member.topics})
        topics = dict(sorted(counts.items()))
        snapshot = Snapshot(topics, members, assignor=asked.protocol_name, options=self._options)
        if assignor is None:
            unknown = AssignorError(asked.protocol_name, "was chosen by the group but is not listed by this leader")
            assignment, snapshot = self._fall_back(
                SubstituteAssignor(asked.protocol_name, EAGER, {}), snapshot, unknown
            )
        else:
            if self._measure_lags is not None and wants_lags(assignor):
                lags = await self._measure_lags([TopicPartition(*tp) for tp in snapshot])
                snapshot = dataclasses.replace(snapshot, lags=number_partitions(lags, snapshot.topics))
            if self._recall_moves is not None and wants_moves(assignor):
                moved = cooldown_options(await self._recall_moves(), time.time_ns() // 1_000_000)
                snapshot = dataclasses.replace(snapshot, options={**moved, **snapshot.options})
            assignment, snapshot = await self._assign(assignor, snapshot)
        heavy = sum(snapshot.topics.values()) > INLINE_PARTITIONS
        return await run_off_loop(heavy, partial(self._written_down, asked.generation, assignment, snapshot))

    def _written_down(self, generation: int, assignment: Assignment, snapshot: Snapshot) -> ev.PlanMade:
        self._last_good = assignment.to_dict()
        shares = tuple((member, encode_assignment(share)) for member, share in sorted(self._last_good.items()))
        text = snapshot.to_json().encode()
        # What the ledger would not keep need not be sent; the coordinator then says what it could not keep.
        return ev.PlanMade(generation, shares, text if len(text) <= MAX_SNAPSHOT_BYTES else b"", dict(snapshot.topics))

    async def _assign(self, assignor: Assignor, snapshot: Snapshot) -> tuple[Assignment, Snapshot]:
        try:
            return await self._run(assignor, snapshot), snapshot
        except AssignorError as error:
            return self._fall_back(assignor, snapshot, error)

    async def _run(self, assignor: Assignor, snapshot: Snapshot) -> Assignment:
        ours = is_ours(assignor)
        if ours and sum(snapshot.topics.values()) <= INLINE_PARTITIONS:
            return run(assignor, snapshot)
        if ours or not self._isolation.by_process:
            return await self._aside(partial(run, assignor, snapshot), assignor.name, self._deadline_ms / 1000)
        # It ends by itself, soon after the deadline at the latest: its process is killed.
        return await self._aside(
            partial(self._isolation.run, assignor, snapshot, self._deadline_ms), assignor.name, timeout_s=None
        )

    async def _aside(self, work: Callable[[], Assignment], name: str, timeout_s: float | None) -> Assignment:
        """A thread of its own, and a daemon: what hangs must not keep the process from ending."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Assignment] = loop.create_future()
        threading.Thread(
            target=run_in_thread, args=(loop, answer, work, name), name=f"assignor-{name}", daemon=True
        ).start()
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise overran(name, self._deadline_ms) from None

    def _fall_back(self, assignor: Assignor, snapshot: Snapshot, error: AssignorError) -> tuple[Assignment, Snapshot]:
        log.error("%s; the group goes on without it", error)
        assignment, how = self._keep_or_range(assignor, snapshot)
        options: dict[str, JsonValue] = {**snapshot.options, FALLBACK: how, REASON: str(error)}
        return assignment, dataclasses.replace(snapshot, options=options)

    def _keep_or_range(self, assignor: Assignor, snapshot: Snapshot) -> tuple[Assignment, str]:
        protocol = COOPERATIVE if assignor.protocol is COOPERATIVE else EAGER
        present = {member.id for member in snapshot.members}
        if present == set(self._last_good):
            try:
                return run(SubstituteAssignor("last-good", protocol, self._last_good), snapshot), "last good assignment"
            except AssignorError:
                # Topics or subscriptions changed since; it would lose partitions.
                pass
        dealt = run(RangeAssignor(), snapshot, withhold=False).members
        return run(SubstituteAssignor("range", protocol, dealt), snapshot), "range"


@lru_cache(maxsize=2)
def shared_isolation(mode: Literal["process", "thread"]) -> Isolation:
    """Where the plugins of this process's members run; all members share it."""
    return isolation_until_exit(IsolationLimits(mode, show_output=True))


EAGER = RebalanceProtocol.EAGER
COOPERATIVE = RebalanceProtocol.COOPERATIVE


def run_in_thread(
    loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Assignment]", work: Callable[[], Assignment], name: str
) -> None:
    """Body of the assignor's thread; nobody may be waiting any more when it is done."""

    def settle(assignment: Assignment | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        elif assignment is not None:
            answer.set_result(assignment)

    try:
        outcome: tuple[Assignment | None, BaseException | None] = (work(), None)
    except BaseException as error:
        wrapped = error if isinstance(error, AssignorError) else AssignorError(name, f"raised {error!r}")
        outcome = (None, wrapped)
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, *outcome)


async def run_off_loop(heavy: bool, work: Callable[[], T]) -> T:
    """Do the work here when it is light, in a thread when it would keep the event loop from its heartbeats."""
    return await asyncio.to_thread(work) if heavy else work()


def read_members(asked: act.MakePlan) -> list[Member]:
    return [read_member(member, asked.protocol_name) for member in asked.members]


def read_member(member: GroupMember, assignor: str) -> Member:
    """A member whose subscription cannot be read takes part without topics; it must not stop the others."""
    try:
        return member_from_subscription(member.member_id, member.group_instance_id, member.metadata, assignor)
    except ValueError as error:
        log.error("subscription of member %s cannot be read: %s", member.member_id, error)
        return Member(member.member_id, (), instance_id=member.group_instance_id)


def wants_lags(assignor: Assignor) -> bool:
    """A plugin says so with an attribute `wants_lags = True`; of the built-in ones, those named after it."""
    return bool(getattr(assignor, "wants_lags", assignor.name in {"lag", "lag-sticky"}))


def wants_moves(assignor: Assignor) -> bool:
    """A plugin says so with an attribute `wants_moves = True`; of the built-in ones, the one that knows a cooldown."""
    return bool(getattr(assignor, "wants_moves", assignor.name == "lag-sticky"))


def cooldown_options(moved: Mapping[TopicPartition, int], at_ms: int) -> dict[str, JsonValue]:
    """The time and the moves as an assignor gets them: part of the snapshot, so that the decision can be repeated."""
    topics: dict[str, dict[str, JsonValue]] = {}
    for tp, when in sorted(moved.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = when
    return {"now.ms": at_ms, "moved.at.ms": topics}


def number_partitions(lags: Mapping[TopicPartition, int], topics: Mapping[str, int]) -> dict[str, list[int]]:
    return {
        topic: [lags.get(TopicPartition(topic, number), 0) for number in range(count)]
        for topic, count in topics.items()
    }
