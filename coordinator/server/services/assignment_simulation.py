"""SimulateAssignment: what assignors would decide for a group. Off the loop, few at a time, with a deadline.

The snapshot is the group's own, or one that the caller brings. Only assignors that this node knows by name are tried:
a path into a module would let a stranger import code here. A plugin that hangs keeps its place among the few, but not
the node.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from muster.assignors.api import JsonValue, Member, Snapshot
from muster.assignors.data.consumer_protocol import member_from_subscription, parse_assignment
from muster.assignors.data.snapshot_json import compact_json
from muster.assignors.registry import known, resolve
from muster.assignors.tools.what_if import Decide, SnapshotChange, what_if
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.plan_correction import decide_with_overrides
from muster.coordinator.core.model.records import MemberIdentifiers
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR_OPTIONS
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.committed_offsets import later_position
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import CoordinatorError, ErrorCode, Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import group_responses

MAX_AT_ONCE = 4
MAX_ASSIGNORS = 20
DEADLINE_S = 30.0
STABLE = "Stable"
RESETS = ("", "latest", "earliest", "none")

Result = TypeVar("Result")
Spans = Mapping[tuple[str, int], tuple[int, int]]
Positions = Callable[[str], Awaitable[Mapping[tuple[str, int], int]]]


class AssignmentSimulator:
    """`shard_of` routes a group, `partitions` gives the catalog's counts, `spans` the log ends of partitions.

    `plugins` has the classes of offered assignors by their names; `elsewhere` gives the positions that a group keeps in
    ZooKeeper.
    """

    def __init__(
        self,
        driver: EngineDriver,
        *,
        shard_of: Callable[[str], int],
        partitions: Callable[[], Mapping[str, int]],
        spans: Callable[[Sequence[tuple[str, int]]], Spans],
        decide: Decide,
        plugins: Mapping[str, str],
        elsewhere: Positions | None = None,
    ) -> None:
        self._driver = driver
        self._shard_of = shard_of
        self._partitions = partitions
        self._spans = spans
        self._decide = decide
        self._plugins = plugins
        self._elsewhere = elsewhere
        self._running = 0

    async def simulate(self, request: pb.SimulateAssignmentRequest, call: RpcCall) -> pb.SimulateAssignmentResponse:
        check_simulation_request(request)
        try:
            snapshot = await self._snapshot(request)
        except CoordinatorError as refusal:
            return pb.SimulateAssignmentResponse(
                error_code=group_responses.to_error_code(refusal.code), error_message=refusal.message
            )
        change = SnapshotChange(add=tuple(request.add_members), remove=tuple(request.remove_members))
        decide = await self._decide_for(request) if request.assignors else self._decide
        tried = [await self._try(snapshot, word, change, decide) for word in request.assignors]
        return pb.SimulateAssignmentResponse(snapshot_json=await self._converted(snapshot.to_json), assignments=tried)

    async def _snapshot(self, request: pb.SimulateAssignmentRequest) -> Snapshot:
        if not request.group_id:
            return await self._converted(lambda: parse_snapshot(request.snapshot_json))
        return await self._live(request.group_id, request.auto_offset_reset)

    async def _live(self, group_id: str, reset: str) -> Snapshot:
        """Members first, then their lags at one moment; a generation that passed in between starts over."""
        shard = self._shard_of(group_id)
        while True:
            described = await self._describe(shard, group_id)
            kept = await self._elsewhere(group_id) if self._elsewhere is not None else {}
            members = [snapshot_member(member, described) for member in described.members]
            counts = self._partitions()
            topics = {t: counts[t] for t in sorted({t for m in members for t in m.topics}) if t in counts}
            wanted = tuple((topic, number) for topic, count in topics.items() for number in range(count))
            fetch = events.OffsetFetch(self._driver.next_id(), group_id, wanted)
            reply, spans = await self._driver.ask_and_look(
                shard, fetch, effects.OffsetFetchReply, partial(self._spans, wanted)
            )
            if (await self._describe(shard, group_id)).generation == described.generation:
                lags = {
                    topic: [compute_lag(reply, kept, spans, (topic, number), reset) for number in range(count)]
                    for topic, count in topics.items()
                }
                assignor = described.planned_by.assignor or described.protocol_name
                options = await self._options(shard, group_id) if described.planned_by.by_setting else {}
                return Snapshot(topics, members, lags=lags, assignor=assignor, options=options)

    async def _options(self, shard: int, group_id: str) -> Mapping[str, JsonValue]:
        """What the group's assignor is told: those that an operator has set."""
        question = events.DescribeSettings(self._driver.next_id(), group_id)
        stated = (await self._driver.ask_shard(shard, question, effects.SettingsReply)).values.get(
            ASSIGNOR_OPTIONS.name
        )
        return stated if isinstance(stated, Mapping) else {}

    async def _describe(self, shard: int, group_id: str) -> effects.DescribeReply:
        question = events.DescribeGroup(self._driver.next_id(), group_id)
        described = await self._driver.ask_shard(shard, question, effects.DescribeReply)
        if described.code is not ErrorCode.NONE:
            raise CoordinatorError(described.code, described.message)
        if described.state == "Empty":
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST,
                f"group {group_id!r} has no members; start one, or simulate on a recorded rebalance",
            )
        if described.state != STABLE:
            raise CoordinatorError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {group_id!r} is {described.state}; a simulation needs a Stable group; try again",
            )
        return described

    async def _decide_for(self, request: pb.SimulateAssignmentRequest) -> Decide:
        """As the group's plans are made: corrected by what operators hold of it."""
        group_id = request.group_id
        if not group_id:
            return self._decide
        shard, question = self._shard_of(group_id), events.DescribeHolds(self._driver.next_id(), group_id)
        held = (await self._driver.ask_shard(shard, question, effects.HoldsReply)).holds
        if held is None:
            return self._decide
        described = await self._describe(shard, group_id)
        who = {
            each.member_id: MemberIdentifiers(each.member_id, each.group_instance_id, each.client_id, each.client_host)
            for each in described.members
        }
        return decide_with_overrides(held, who, self._decide)

    async def _try(
        self, snapshot: Snapshot, word: str, change: SnapshotChange, decide: Decide
    ) -> pb.SimulatedAssignment:
        try:
            forecast = await self._beside(lambda: forecast_plan(snapshot, word, change, decide, self._plugins))
        except TimeoutError:
            late = f"{word!r} was not done after {DEADLINE_S:.0f} s"
            return pb.SimulatedAssignment(assignor=word, error_message=late)
        except ValueError as error:
            return pb.SimulatedAssignment(assignor=word, error_message=str(error))
        return pb.SimulatedAssignment(assignor=word, forecast_json=forecast)

    async def _converted(self, work: Callable[[], Result]) -> Result:
        """A snapshot to or from its text, which may be megabytes."""
        try:
            return await self._beside(work)
        except TimeoutError as late:
            raise Overloaded(f"the snapshot was not read or written in {DEADLINE_S:.0f} s; try again shortly") from late

    async def _beside(self, work: Callable[[], Result]) -> Result:
        """One of the few things that are computed at once, off the loop."""
        if self._running >= MAX_AT_ONCE:
            raise Overloaded(f"{MAX_AT_ONCE} simulations run already; try again shortly")
        self._running += 1
        return await run_in_daemon_thread(work, self._done)

    def _done(self) -> None:
        self._running -= 1


def forecast_plan(
    snapshot: Snapshot, word: str, change: SnapshotChange, decide: Decide, plugins: Mapping[str, str]
) -> str:
    """By a name this node knows. A path into a module would let a stranger import code here."""
    if ":" in word and word not in plugins.values():
        names = ", ".join(dict.fromkeys([*known(), *plugins]))
        raise ValueError(f"{word!r} names code by its path; a node takes only installed ones: {names}")
    return compact_json(what_if(snapshot, resolve(plugins.get(word, word)), change, decide).to_dict())


async def run_in_daemon_thread(work: Callable[[], Result], done: Callable[[], None]) -> Result:
    """Run `work` in a daemon thread: one that hangs keeps its place among the few, but not the node."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Result] = loop.create_future()

    def settle(tell: Callable[[], None]) -> None:
        done()
        if not answer.done():
            tell()

    def body() -> None:
        try:
            tell = partial(answer.set_result, work())
        except Exception as error:
            known = error if isinstance(error, ValueError) else ValueError(f"failed: {error!r}")
            tell = partial(answer.set_exception, known)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, tell)

    threading.Thread(target=body, name="simulation", daemon=True).start()
    return await asyncio.wait_for(answer, DEADLINE_S)


def check_simulation_request(request: pb.SimulateAssignmentRequest) -> None:
    if bool(request.group_id) == bool(request.snapshot_json):
        raise MalformedGroupRequest("group_id or snapshot_json is needed, and only one of them")
    request_limits.check_at_most("assignors", len(request.assignors), MAX_ASSIGNORS)
    if request.auto_offset_reset not in RESETS:
        raise MalformedGroupRequest(
            f"auto_offset_reset is {request.auto_offset_reset!r}; expected one of latest, earliest, none, or nothing"
        )


def parse_snapshot(text: str) -> Snapshot:
    try:
        return Snapshot.from_json(text)
    except ValueError as error:
        raise MalformedGroupRequest(f"snapshot_json cannot be read: {error}") from error


def snapshot_member(member: effects.DescribedMember, described: effects.DescribeReply) -> Member:
    """The member with what it really owns now; it may have said less when it joined."""
    try:
        said = subscription_of(member, described)
        owned = parse_assignment(member.assignment).partitions if member.assignment else {}
    except ValueError as error:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member.member_id!r} does not speak ConsumerProtocol ({error}); only such groups can be simulated",
        ) from error
    return replace(said, owned=owned, generation=described.generation)


def subscription_of(member: effects.DescribedMember, described: effects.DescribeReply) -> Member:
    """Members of KIP-848 groups tell the coordinator what they read; classic ones bring a subscription, as bytes."""
    if not member.metadata and (member.topics or member.heartbeat_interval_ms is not None):
        return Member(member.member_id, member.topics, instance_id=member.group_instance_id)
    return member_from_subscription(
        member.member_id, member.group_instance_id, member.metadata, described.protocol_name
    )


def compute_lag(
    reply: effects.OffsetFetchReply,
    kept: Mapping[tuple[str, int], int],
    spans: Spans,
    tp: tuple[str, int],
    reset: str,
) -> int:
    """As an assignor on the coordinator is told: of what can still be read, all where nothing is committed.

    From the larger of both positions, as elsewhere where a group keeps two. `reset` "latest": without a commit nothing.
    """
    start, end = spans.get(tp, (0, 0))
    position = later_position(reply.offsets.get(tp), kept.get(tp))
    if position is not None:
        return max(0, end - max(position.offset, start))
    return 0 if reset.lower() == "latest" else end - start
