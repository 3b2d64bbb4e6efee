"""The nodes' group: the upstream's own group coordinator assigns shards to nodes (KB-D5, KB-F1, KB-F2, KB-F7, KB-F8).

`NodesGroup` performs the classic member's state machine over the wire and passes the results to `ShardOwner`.
Everything runs in the thread of the loop. `AssignedCluster` answers the listeners' questions about nodes and shard
owners (`edge.cluster.Cluster`) from the last map. A refusal by the group becomes a sentence that names the setting
or the right to change; after FENCED_INSTANCE_ID the group is asked which process has this node's place.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from muster.assignors.api import TopicPartition
from muster.assignors.builtin.sticky import CooperativeStickyAssignor
from muster.client.members import actions as act
from muster.client.members import events as mev
from muster.client.members.classic_member import ClassicMemberMachine, MembershipState
from muster.client.members.member_types import GroupMember, LeavePolicy, MemberSettings, OfferedProtocol
from muster.client.members.subscription import Subscriber
from muster.coordinator.config import parse_address
from muster.coordinator.edge.background_tasks import BackgroundTask, SupervisedTasks
from muster.coordinator.edge.cluster_view import GRPC, HTTP, KAFKA, NO_NODE, OFFSETS_TOPIC, NodeAddress, OtherNodes
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_owner import ShardOwner
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    PROTOCOL,
    PROTOCOL_TYPE,
    SHARDS,
    AssignedNode,
    NodeBid,
    ShardAssignment,
    decode_assignment,
    decode_bid,
    encode_bid,
    instance_id,
    joins_again_ms,
    plan_assignment,
)
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.kafka_backend.upstream.group_requests import (
    FellowNode,
    UpstreamMembership,
    ask_coordinator_of,
)
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.replication.protocol.cluster_metadata import PartitionView, TopicView

# The map of shards, as a node's listeners ask about it
# -----------------------------------------------------

DOORS: Final[Mapping[str, str]] = {GRPC: "grpc", KAFKA: "kafka", HTTP: "http"}
"""What nodes call their listeners in the map."""


class AssignedCluster:
    """A `Cluster` over the map as it was last told. Topics are the upstream's: none is told of here, but for who owns
    which shard of the groups."""

    def __init__(self, me: int, cut_off: Callable[[], bool] = lambda: False) -> None:
        """cut_off: whether this node has no lease."""
        self._me = me
        self._cut_off = cut_off
        self._nodes: Mapping[str, dict[int, NodeAddress]] = {door: {} for door in DOORS}
        self._owners: dict[int, AssignedNode] = {}
        self.elsewhere: OtherNodes | None = None

    def learn(self, assignment: ShardAssignment) -> None:
        """This is the map from now on."""
        nodes = [assignment.nodes[node] for node in sorted(assignment.nodes)]
        self._owners = {shard: node for node in nodes for shard in node.shards}
        self._nodes = {
            listener: {node.node: at for node in nodes if (at := endpoint_of(node, door)) is not None}
            for listener, door in DOORS.items()
        }

    @property
    def me(self) -> int:
        return self._me

    @property
    def controller(self) -> int:
        """The upstream has one; among Muster's nodes nobody is."""
        return NO_NODE

    @property
    def cut_off(self) -> bool:
        return self._cut_off()

    def nodes(self, listener: str) -> list[NodeAddress]:
        return list(self._nodes[listener].values())

    def topics(self) -> Mapping[str, TopicView]:
        return {}

    def partition(self, topic: str, number: int) -> PartitionView | None:
        owner = self._owners.get(number)
        if topic != OFFSETS_TOPIC or owner is None:
            return None
        return PartitionView(owner.node, 0, 0, (owner.node,), (), (owner.node,))

    def offline(self, view: PartitionView) -> list[int]:
        return []

    def coordinator(self, shard: int, listener: str) -> NodeAddress | None:
        owner = self._owners.get(shard)
        return None if owner is None else self._nodes[listener].get(owner.node)


def endpoint_of(node: AssignedNode, door: str) -> NodeAddress | None:
    """Where a node's door is; None: it has none, or what another node says of it is no address."""
    told = node.addresses.get(door)
    if not told:
        return None
    try:
        return NodeAddress(node.node, *parse_address(told))
    except ValueError:
        return None


# What a node says in the group, and reads there
# ----------------------------------------------

DRAINS, LEAVES = "draining", "leaving"
"""Topics that such a node subscribes to beside the shards: who subscribes to something else joins again."""


class NodeSubscriber(Subscriber):
    """draining: whether it asks for nothing that others can have; leaving: nor for anything else (KB-F8)."""

    def __init__(
        self, node: int, instance: str, shards: int, addresses: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__((SHARDS,), (CooperativeStickyAssignor(),))
        self.draining = self.leaving = False
        self._node, self._instance, self._shards = node, instance, shards
        self._addresses = addresses

    def bid(self, owned: Collection[TopicPartition] = (), generation: int = -1) -> NodeBid:
        shards = tuple(sorted(shard for _, shard in owned))
        return NodeBid(
            self._node, self._instance, self._addresses, shards, self.draining or self.leaving, generation, self.leaving
        )

    @property
    def wants(self) -> tuple[str, ...]:
        """What it subscribes to."""
        return (*[DRAINS] * self.draining, *[LEAVES] * self.leaving, SHARDS)

    def read(self, assignment: bytes) -> ShardAssignment:
        """The map. ValueError: what cannot be read, or is not of this cluster."""
        decoded = decode_assignment(assignment)
        if decoded.shards not in (0, self._shards):
            raise ValueError(
                f"the map of shards is one of {decoded.shards} and this node has {self._shards}; set "
                "offsets.topic.num.partitions alike on all nodes"
            )
        return decoded

    # As `Subscriber` has it.

    def offered(self, owned: Collection[TopicPartition], generation: int) -> tuple[OfferedProtocol, ...]:
        return (OfferedProtocol(PROTOCOL, encode_bid(self.bid(owned, generation))),)

    def rejoin_after_ms(self, assignment: bytes) -> int:
        return joins_again_ms(self.read(assignment), self.bid())

    def read_share(self, assignment: bytes) -> set[TopicPartition]:
        return {(SHARDS, shard) for shard in self.read(assignment).of(self._node)}


# Refusals, as sentences for operators (KB-F2)
# --------------------------------------------

WHO_S: Final = 0.2
"""How often it is asked who has this node's place in the group; while the group shares anew nobody is told."""

FOR_GOOD: Final = frozenset(
    {
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
    }
)
"""A node is not started if the group refuses it so."""


def refusal_sentence(code: ErrorCode, message: str, group: str, session_ms: int) -> str:
    """Why the group refuses this node, and what to do."""
    if code is ErrorCode.INVALID_SESSION_TIMEOUT:
        return (
            f"engine.kafka.session.timeout.ms is {session_ms}, which the upstream does not take; set it within its "
            "group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"the upstream does not let this node into the group {group}; allow its principal READ on it"
    if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return (
            f"the upstream's group {group} is not one of nodes of this version: {message}; name another "
            "engine.kafka.cluster, or end the members of that group"
        )
    return f"the upstream's group {group} refuses this node: {message}"


async def check_nodes_group(upstream: Upstream, cluster: str, session_ms: int) -> None:
    """Ask whether the nodes' group of a new cluster would take a node: a join without a member id, which gets one and
    no place (KIP-394), and is taken back. What passes, the node hears again when it joins.

    Raises UnusableUpstream for what is refused for good.
    """
    group = f"{cluster}.nodes"
    try:
        code, detail = await try_to_join(upstream, group, session_ms)
    except UpstreamRefused as error:
        code, detail = error_code_of(error.code), str(error)
    except UpstreamError:
        return
    if code in FOR_GOOD:
        raise UnusableUpstream(refusal_sentence(code, detail, group, session_ms))


async def try_to_join(upstream: Upstream, group: str, session_ms: int) -> tuple[ErrorCode, str]:
    """Raises UpstreamError."""
    request = struct("JoinGroupRequest")(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id="",
        group_instance_id=None,
        protocol_type=PROTOCOL_TYPE,
        protocols=[struct("JoinGroupRequest.protocols")(name=PROTOCOL)],
    )
    joined = await ask_coordinator_of(upstream, group, "JoinGroup", request, lambda answer: answer.error_code)
    if joined.member_id:
        member = struct("LeaveGroupRequest.members")(member_id=joined.member_id, group_instance_id=None)
        leaving = struct("LeaveGroupRequest")(group_id=group, members=[member])
        await ask_coordinator_of(upstream, group, "LeaveGroup", leaving, lambda answer: answer.error_code)
    code = error_code_of(int(joined.error_code))
    return code, code.meaning


class PlaceHolder(NamedTuple):
    """Who has a node's place. me: this very process. address: where it is, as far as is known."""

    me: bool
    address: str = ""


async def find_place_holder(
    membership: UpstreamMembership, node: int, instance: str, now_ms: Callable[[], int], patience_ms: int
) -> PlaceHolder:
    """After FENCED_INSTANCE_ID. It may be this very process: of two joins of its own the first may have come later."""
    until_ms, address = now_ms() + patience_ms, ""
    while now_ms() < until_ms:
        there = await find_fellow(membership, instance_id(node))
        address = there.host.lstrip("/") or address
        bid = bid_of(there.metadata)
        if bid is not None:
            return PlaceHolder(
                bid.instance == instance, bid.addresses.get("grpc") or bid.addresses.get("kafka") or address
            )
        await asyncio.sleep(WHO_S)
    return PlaceHolder(False, address)


async def find_fellow(membership: UpstreamMembership, instance: str) -> FellowNode:
    """What is known of it; nothing where it is not there, or nobody answers."""
    try:
        fellows = await membership.fellows()
    except UpstreamError:
        fellows = []
    return next((each for each in fellows if each.instance == instance), FellowNode(instance, "", b""))


def bid_of(metadata: bytes) -> NodeBid | None:
    """None: it cannot be read, or was not told."""
    try:
        return decode_bid(metadata)
    except ValueError:
        return None


OF_SESSION: Final = 3
"""A heartbeat is answered within a third of the session, or tried again elsewhere."""

OF_HEARTBEAT: Final = 4
"""How much more often than it is asked by heartbeats a node looks whether the group shares anew. A heartbeat begins a
session anew: more of them would have a node that dies be missed later, by as much as the others hear of it sooner."""
LOOKS_MS: Final = 100
"""No more often than that."""

HURRY_MS: Final = 25
"""How often a node looks whether the group goes on while the map is not whole: a shard that was let go of has no owner
until all have joined again, and who has nothing to let go of hears of it by a heartbeat."""

AGAIN_S: Final = 2.0
"""After so long a node that the group refused tries to join it anew."""

LEASED: Final = frozenset({MembershipState.STABLE, MembershipState.ADOPTING, MembershipState.CLOSING})
"""Where a heartbeat that is answered renews the lease: who has joined and does not sync is put out all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesGroupSettings:
    """What a node brings to the nodes' group. cluster: the group's name is by it. addresses: by listener (`grpc`,
    `kafka`, `http`), where clients reach this node, HOST:PORT."""

    cluster: str
    shards: int
    heartbeat_ms: int
    addresses: Mapping[str, str]


class NodesGroup:
    """`start` once `ShardOwner` is started; `entered` returns when the group has told how shards are dealt."""

    def __init__(
        self,
        upstream: Upstream,
        owning: ShardOwner,
        settings: OwnershipSettings,
        brought: NodesGroupSettings,
        *,
        on_assigned: Callable[[ShardAssignment], None] = lambda assignment: None,
        on_trouble: Callable[[str], None] = lambda sentence: None,
        on_bug: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """on_assigned hears of each new map, on_trouble why the group refuses this node, which tries again, on_bug of a
        mistake of the program."""
        self.view = AssignedCluster(settings.node, lambda: not owning.shards.has_lease(owning.now_ms()))
        """The map for the doors."""
        self.assignment = ShardAssignment()
        self._owning = owning
        self._now_ms = owning.now_ms
        self._settings = settings
        self._shards = brought.shards
        self._group = f"{brought.cluster}.nodes"
        self._on_assigned, self._on_trouble = on_assigned, on_trouble
        session_ms = settings.session_timeout_ms
        self._member_settings = MemberSettings(
            self._group,
            group_instance_id=instance_id(settings.node),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,  # KB-F7
            heartbeat_interval_ms=brought.heartbeat_ms,
            protocol_type=PROTOCOL_TYPE,
        )
        self._subscriber = NodeSubscriber(settings.node, settings.instance, brought.shards, brought.addresses)
        self._membership = UpstreamMembership(
            upstream,
            self._group,
            instance_id(settings.node),
            PROTOCOL_TYPE,
            answer_s=session_ms / 1000 / OF_SESSION,
        )
        self._member = ClassicMemberMachine(self._member_settings, self._subscriber)
        self._events: deque[mev.ClassicEvent] = deque()
        self._handling_events = False
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._parked: set[int] = set()
        self._tasks = SupervisedTasks(on_bug, on_end=lambda: self._changed.set())
        self._alarm: asyncio.TimerHandle | None = None
        self._anew: asyncio.TimerHandle | None = None
        self._looks_s = max(brought.heartbeat_ms / OF_HEARTBEAT, LOOKS_MS) / 1000
        self._looking = BackgroundTask(on_bug)
        self._changed = asyncio.Event()
        self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopped = False
        owning.on_let_go = self._let_go

    # -- what a node does with it -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Join."""
        self.handle_event(mev.Start())
        self._looking.start(self._watch_generation())

    async def entered(self) -> None:
        """Return once the group has told for the first time how shards are dealt. Raises UnusableUpstream where it
        refuses this node for good; while nobody answers it is waited for."""
        await asyncio.shield(self._entered)

    @property
    def mine(self) -> frozenset[int]:
        """The shards that are dealt to this node."""
        return frozenset(self._owning.shards.stages())

    @property
    def draining(self) -> bool:
        return self._subscriber.draining

    def drain(self) -> None:
        """KB-F8: have the others take this node's shards. Requests for them are refused from when they are let go of.
        While there is no other one it has them all the same."""
        if not self.draining:
            self._subscriber.draining = True
            self.handle_event(mev.SubscriptionChanged(self._subscriber.wants))

    def undrain(self) -> None:
        """Take a share again, from the next round on."""
        if self.draining:
            self._subscriber.draining = False
            self.handle_event(mev.SubscriptionChanged(self._subscriber.wants))

    async def drained(self, patience_s: float) -> frozenset[int]:
        """What is left once others have what this node had, or after so long."""
        await self._until(self._is_drained, patience_s)
        return self.mine

    async def leave(self, patience_s: float) -> bool:
        """Leave the group once others have what this node had, or after so long. Whether nothing was owned by then."""
        self._subscriber.leaving = True
        if self.mine or not self.draining:
            self.handle_event(mev.SubscriptionChanged(self._subscriber.wants))
        let_go = await self._until(self._is_drained, patience_s)
        self.handle_event(mev.Close(LeavePolicy.LEAVE))
        rest_s = self._settings.session_timeout_ms / 1000
        await self._until(lambda: self._member.state is MembershipState.CLOSED and not self._tasks.busy, rest_s)
        return let_go

    async def stop(self) -> None:
        """Ask nobody any more. Who did not leave stays a member until its session ends."""
        self._stopped = True
        for alarm in (self._alarm, self._anew):
            if alarm is not None:
                alarm.cancel()
        self._looking.cancel()
        await self._tasks.close()
        await self._looking.ended()
        if not self._entered.done():
            self._entered.cancel()

    def _is_drained(self) -> bool:
        """Nothing is owned, and the others were dealt it: in the map of that round they see why. Without a lease
        nothing is owned in any case."""
        shards, mine = self._owning.shards, self.assignment.nodes.get(self._settings.node)
        if not shards.has_lease(self._now_ms()):
            return True
        there = mine is not None and mine.draining and self._member.state is MembershipState.STABLE
        return there and not shards.stages()

    async def _until(self, holds: Callable[[], bool], patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # -- the machine ------------------------------------------------------------------------------------------------

    def handle_event(self, event: mev.ClassicEvent) -> None:
        """Something has happened: see `member.events`. What follows from it comes after it."""
        self._events.append(event)
        if self._handling_events or self._stopped:
            return
        self._handling_events = True
        try:
            while self._events:
                for action in self._member.step(self._events.popleft(), self._now_ms()):
                    PERFORMED[type(action)](self, action)
        finally:
            self._handling_events = False
            self._changed.set()

    def _start_request(
        self, token: int, ask: Callable[[], Coroutine[Any, Any, mev.ClassicEvent]], *, parks: bool = False
    ) -> None:
        """parks: the coordinator may hold it for long, and with it all that is asked behind it."""

        async def asked() -> None:
            try:
                answer = await ask()
            except UpstreamError as error:
                answer = mev.RequestFailed(token, retriable=True, detail=str(error))
            self._asked.pop(token, None)
            self._parked.discard(token)
            self.handle_event(answer)

        self._asked[token] = self._tasks.start(asked())
        if parks:
            self._parked.add(token)

    # -- what the machine wants asked -------------------------------------------------------------------------------

    def _find(self, action: act.FindCoordinator) -> None:
        """Each request looks for the coordinator by itself where it is not known."""
        self.handle_event(mev.CoordinatorFound(action.token))

    def _join(self, action: act.SendJoin) -> None:
        # Whoever waits for the round to end looks often: see HURRY_MS.
        self.handle_event(mev.SessionOpened(HURRY_MS))
        session_ms = self._settings.session_timeout_ms
        offered = {each.name: each.metadata for each in action.protocols}

        async def ask() -> mev.ClassicEvent:
            answer = await self._membership.join(action.member_id, session_ms, session_ms, offered, action.reason)
            return mev.JoinAnswered(
                action.token,
                error_code_of(answer.error_code),
                generation=answer.generation_id,
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol_name,
                leader=answer.leader,
                skip_assignment=bool(answer.skip_assignment),
                member_id=answer.member_id,
                members=tuple(
                    GroupMember(each.member_id, each.group_instance_id, bytes(each.metadata)) for each in answer.members
                ),
            )

        self._start_request(action.token, ask, parks=True)

    def _plan(self, action: act.MakePlan) -> None:
        """KB-F1. Everybody gets the whole map."""
        whole = plan_assignment({member.member_id: member.metadata for member in action.members}, self._shards)
        shares = tuple((member.member_id, whole) for member in action.members)
        self.handle_event(mev.PlanMade(action.generation, shares, question=action.question))

    def _sync(self, action: act.SendSync) -> None:
        sent_ms, session_ms = self._now_ms(), self._settings.session_timeout_ms
        plans = dict(action.assignments)

        async def ask() -> mev.ClassicEvent:
            answer = await self._membership.sync(
                action.member_id, action.generation, action.protocol_name or PROTOCOL, plans, session_ms
            )
            code, assignment = error_code_of(answer.error_code), bytes(answer.assignment)
            if code is ErrorCode.NONE:
                self._synced(assignment, sent_ms)
            return mev.SyncAnswered(action.token, code, assignment=assignment)

        self._start_request(action.token, ask, parks=True)

    def _synced(self, assignment: bytes, sent_ms: int) -> None:
        """The map is known from here on; what comes of it for this node the machine says."""
        try:
            self.assignment = self._subscriber.read(assignment)
        except ValueError:
            return  # the machine finds that, too
        self.view.learn(self.assignment)
        self._owning.step(ev.Synced(sent_ms))
        if sum(len(node.shards) for node in self.assignment.nodes.values()) == self._shards:
            self.handle_event(mev.SessionLost())
        self._on_assigned(self.assignment)
        if not self._entered.done():
            self._entered.set_result(None)

    def _heartbeat(self, action: act.SendHeartbeat) -> None:
        sent_ms = self._now_ms()

        async def ask() -> mev.ClassicEvent:
            code = await self._membership.heartbeat(action.member_id, action.generation)
            if self._member.state in LEASED:
                self._owning.step(ev.LeaseHeartbeatAnswered(sent_ms, code))
            return mev.ClassicHeartbeatAnswered(action.token, error_code_of(code))

        self._start_request(action.token, ask)

    def _leave(self, action: act.SendLeave) -> None:
        async def ask() -> None:
            with suppress(UpstreamError):  # its session ends by itself
                await self._membership.leave(action.member_id, action.reason)

        self._tasks.start(ask())

    def _abandon(self, action: act.Abandon) -> None:
        task = self._asked.pop(action.token, None)
        if task is not None:
            task.cancel()
        if action.token in self._parked:
            self._parked.clear()
            self._membership.hang_up()

    async def _watch_generation(self) -> None:
        """What the next heartbeat would hear."""
        while True:
            await asyncio.sleep(self._looks_s)
            member = self._member
            generation = member.generation
            if member.state is not MembershipState.STABLE:
                continue
            with suppress(UpstreamError):  # heartbeats find out what that means
                if await self._membership.is_rebalancing() and self._member is member:
                    self.handle_event(mev.HeartbeatPushed(ErrorCode.REBALANCE_IN_PROGRESS, "", generation))

    # -- what comes of it -------------------------------------------------------------------------------------------

    def _revoke(self, action: act.Revoke) -> None:
        """KB-F8: the rejoin waits for what these shards wrote, half a session at most."""
        deadline_ms = min(action.deadline_ms, self._now_ms() + self._settings.session_timeout_ms // 2)
        self._owning.step(
            ev.RevokeShards(action.token, frozenset(shard for _, shard in action.partitions), deadline_ms)
        )

    def _let_go(self, token: int) -> None:
        self.handle_event(mev.Revoked(token))

    def _lost(self, action: act.Lost) -> None:
        self._owning.step(ev.MembershipLost(action.detail))
        self.handle_event(mev.Revoked(action.token))

    def _assign(self, action: act.Assign) -> None:
        self._owning.step(ev.ShardsAssigned(frozenset(shard for _, shard in action.partitions), self.assignment))

    def _fail(self, action: act.Fail) -> None:
        self._owning.step(ev.MembershipLost(action.message))
        if action.code is ErrorCode.FENCED_INSTANCE_ID:
            self._tasks.start(self._see_who_fenced())
            return
        why = refusal_sentence(action.code, action.message, self._group, self._settings.session_timeout_ms)
        if action.code in FOR_GOOD and not self._entered.done():
            self._entered.set_exception(UnusableUpstream(why))
            self._entered.exception()  # where nobody waits for it, on_trouble tells
        self._on_trouble(why)
        self._anew = asyncio.get_running_loop().call_later(AGAIN_S, self._join_anew)

    def _join_anew(self) -> None:
        """As a process that has just begun. What is under way belongs to the membership that is over."""
        for task in self._asked.values():
            task.cancel()
        self._asked.clear()
        self._parked.clear()
        self._membership.hang_up()
        self._member = ClassicMemberMachine(self._member_settings, self._subscriber)
        self._member.step(mev.SubscriptionChanged(self._subscriber.wants), self._now_ms())
        self.handle_event(mev.Start())

    async def _see_who_fenced(self) -> None:
        """KB-F2."""
        me = self._settings
        holder = await find_place_holder(
            self._membership, me.node, me.instance, self._now_ms, patience_ms=me.session_timeout_ms
        )
        if holder.me:
            self._join_anew()
        else:
            self._owning.step(ev.NodeFenced(holder.address))

    # -- time -------------------------------------------------------------------------------------------------------

    def _wake_at(self, action: act.WakeMemberAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        in_s = max(action.at_ms - self._now_ms(), 1) / 1000
        self._alarm = asyncio.get_running_loop().call_later(in_s, partial(self.handle_event, mev.TimerExpired()))


PERFORMED: dict[type, Callable[[NodesGroup, Any], None]] = {
    act.FindCoordinator: NodesGroup._find,
    act.SendJoin: NodesGroup._join,
    act.SendSync: NodesGroup._sync,
    act.SendHeartbeat: NodesGroup._heartbeat,
    act.SendLeave: NodesGroup._leave,
    act.Abandon: NodesGroup._abandon,
    act.MakePlan: NodesGroup._plan,
    act.Revoke: NodesGroup._revoke,
    act.Lost: NodesGroup._lost,
    act.Assign: NodesGroup._assign,
    act.Fail: NodesGroup._fail,
    act.Closed: lambda nodes, action: None,
    act.WakeMemberAt: NodesGroup._wake_at,
}
