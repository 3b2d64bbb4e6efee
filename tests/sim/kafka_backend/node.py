"""One node of the simulated cluster: performs the machines as the edge will."""

from collections.abc import Callable
from typing import Any

from muster.client.members import actions as act
from muster.client.members import events as mev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.member_types import GroupMember, LeavePolicy, MemberSettings
from muster.coordinator.core.groups.state import PendingPositions
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.nodes_group import LEASED, NodeSubscriber
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.shard_ownership.node_shards import NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    PROTOCOL,
    decode_assignment,
    instance_id,
    plan_assignment,
)
from tests.fakes.kafka_group import Joined, Synced
from tests.sim.kafka_backend.for_clients import GROUP, REQUEST_MS, ForClients, Store

LIMITS = AppendLimits(batch_bytes=400, delivery_timeout_ms=4_000, request_timeout_ms=800, unacked_bytes=4_000)


class Node(ForClients):
    def __init__(self, world: Any, node: int, life: int, rate: float) -> None:
        self.world, self.id, self.life, self.rate = world, node, life, rate
        self.instance = f"{node}/{life}"
        self.alive = True
        self.frozen_until = 0
        self.inbox: list[Callable[[], None]] = []
        self.stores = {shard: Store() for shard in range(world.shards)}
        self.shards = NodeShards(
            OwnershipSettings(
                node, self.instance, session_timeout_ms=world.session_ms, owner_refresh_ms=7_000, limits=LIMITS
            )
        )
        self.subscriber = NodeSubscriber(node, self.instance, world.shards, {"grpc": f"host-{node}:9290"})
        self.member = ClassicMemberMachine(
            MemberSettings(
                f"{world.name}.nodes",
                group_instance_id=instance_id(node),
                session_timeout_ms=world.session_ms,
                rebalance_timeout_ms=world.session_ms,
                heartbeat_interval_ms=world.session_ms // 5,
                protocol_type="muster",
            ),
            self.subscriber,
        )
        self._wakes = [0, 0]
        self._tokens = 0

    @property
    def now_ms(self) -> int:
        """By its own clock."""
        return 1_000 + int(self.world.now_ms * self.rate)

    @property
    def awake(self) -> bool:
        return self.alive and self.world.now_ms >= self.frozen_until

    def run(self, do: Callable[[], None]) -> None:
        """Something comes to the node: now, or when it wakes."""
        if not self.alive:
            return
        if self.world.now_ms < self.frozen_until:
            self.inbox.append(do)
            return
        do()
        self.world.check.step()

    def wakes(self) -> None:
        if self.awake:
            inbox, self.inbox = self.inbox, []
            if self.world.random.random() < 0.5:
                self.world.random.shuffle(inbox)
            for do in inbox:
                self.run(do)

    def later(self, delay_ms: float, do: Callable[[], None]) -> None:
        """By its own clock."""
        self.world.later(delay_ms / self.rate, lambda: self.run(do))

    # The nodes' group.

    def start(self) -> None:
        self.run(lambda: self.tell(mev.Start()))

    def tell(self, event: Any) -> None:
        for action in self.member.step(event, self.now_ms):
            MEMBER[type(action)](self, action)

    def own(self, event: Any) -> None:
        for effect in self.shards.step(event, self.now_ms):
            SHARD[type(effect)](self, effect)
        self.world.check.step()
        for shard in self.stores:
            self._release(shard)

    def _ask(
        self, at_group: Callable[[Callable[[Any], None]], None], answered: Callable[[Any], None], token: int
    ) -> None:
        """A request to the group's coordinator, which may park it."""

        def broken() -> None:
            self.later(REQUEST_MS, lambda: self.tell(mev.RequestFailed(token, retriable=True)))

        def answer(word: Any) -> None:
            if not self.world.back(self, lambda: answered(word)):
                broken()

        if not self.world.forth(self, lambda: at_group(answer)):
            broken()

    def _find(self, action: act.FindCoordinator) -> None:
        self._ask(lambda answer: answer(None), lambda _: self.tell(mev.CoordinatorFound(action.token)), action.token)

    def _join(self, action: act.SendJoin) -> None:
        def answered(word: Joined) -> None:
            members = tuple(GroupMember(line.member_id, line.instance, line.metadata) for line in word.members)
            self.tell(
                mev.JoinAnswered(
                    action.token,
                    ErrorCode(word.code),
                    generation=word.generation,
                    protocol_type="muster",
                    protocol_name=PROTOCOL,
                    leader=word.leader,
                    skip_assignment=word.skip_assignment,
                    member_id=word.member_id,
                    members=members,
                )
            )

        metadata = action.protocols[0].metadata
        group = self.world.group
        self._ask(
            lambda answer: group.join(action.member_id, instance_id(self.id), metadata, self.world.group_ms, answer),
            answered,
            action.token,
        )

    def _plan(self, action: act.MakePlan) -> None:
        whole = plan_assignment({member.member_id: member.metadata for member in action.members}, self.world.shards)
        shares = tuple((member.member_id, whole) for member in action.members)
        self.tell(mev.PlanMade(action.generation, shares, question=action.question))

    def _sync(self, action: act.SendSync) -> None:
        sent_ms, group = self.now_ms, self.world.group

        def answered(word: Synced) -> None:
            if word.code == 0:
                self.assignment = decode_assignment(word.assignment)
                self.own(ev.Synced(self.world.base_of(self, sent_ms)))
            self.tell(mev.SyncAnswered(action.token, ErrorCode(word.code), assignment=word.assignment))

        self._ask(
            lambda answer: group.sync(
                action.member_id,
                instance_id(self.id),
                action.generation,
                dict(action.assignments),
                self.world.group_ms,
                answer,
            ),
            answered,
            action.token,
        )

    def _heartbeat(self, action: act.SendHeartbeat) -> None:
        sent_ms, group = self.now_ms, self.world.group

        def answered(code: int) -> None:
            if self.member.state in LEASED:
                self.own(ev.LeaseHeartbeatAnswered(self.world.base_of(self, sent_ms), code))
            self.tell(mev.ClassicHeartbeatAnswered(action.token, ErrorCode(code)))

        self._ask(
            lambda answer: answer(
                group.heartbeat(action.member_id, instance_id(self.id), action.generation, self.world.group_ms)
            ),
            answered,
            action.token,
        )

    def _leave(self, action: act.SendLeave) -> None:
        """With its member id: by the instance id alone, a process that woke late would put out the one after it."""
        group = self.world.group
        self.world.forth(self, lambda: group.leave(action.member_id, instance_id(self.id), self.world.group_ms))

    def _revoked(self, action: act.Revoke) -> None:
        deadline_ms = min(action.deadline_ms, self.now_ms + self.world.session_ms // 2)
        self.own(ev.RevokeShards(action.token, frozenset(shard for _, shard in action.partitions), deadline_ms))

    def _lost(self, action: act.Lost) -> None:
        self.own(ev.MembershipLost(action.detail))
        self.tell(mev.Revoked(action.token))

    def _assign(self, action: act.Assign) -> None:
        self.own(ev.ShardsAssigned(frozenset(shard for _, shard in action.partitions), self.assignment))

    def _failed(self, action: act.Fail) -> None:
        if action.code is ErrorCode.FENCED_INSTANCE_ID:
            self.own(ev.NodeFenced())
        self.alive = False

    def _wake(self, which: int, at_ms: int, do: Callable[[], None]) -> None:
        self._wakes[which] += 1
        number = self._wakes[which]
        self.later(max(1, at_ms - self.now_ms), lambda: do() if self._wakes[which] == number else None)

    def drain(self) -> None:
        """SIGTERM: nothing is to be dealt to it; then it leaves."""
        self.subscriber.leaving = True
        self.run(lambda: self.tell(mev.SubscriptionChanged(self.subscriber.wants)))

    def close(self) -> None:
        self.run(lambda: self.tell(mev.Close(LeavePolicy.LEAVE)))

    # Kafka.

    def _call(self, effect: Any, at_kafka: Callable[[], Any]) -> None:
        """A request of a shard, answered at once by whoever it is sent to; or lost."""
        shard, request = effect.shard, effect.request

        def arrive() -> None:
            event = at_kafka()
            self.world.back(self, lambda: self.own(event))

        failed = ev.RequestWithoutAnswer(shard, request, "lost")
        self.later(REQUEST_MS, lambda: self.own(failed))
        self.world.forth(self, arrive)

    def _init(self, effect: fx.InitProducer) -> None:
        def at_kafka() -> ev.ProducerInitialized:
            code = self.world.trouble()
            if code:
                return ev.ProducerInitialized(effect.shard, effect.request, code)
            producer = self.world.transactions.init_producer(f"shard-{effect.shard}", self.world.whole_ms)
            return ev.ProducerInitialized(effect.shard, effect.request, 0, producer)

        self._call(effect, at_kafka)

    def _ask_end(self, effect: fx.FindLogEnd) -> None:
        partition = self.world.partitions[effect.shard]
        self._call(
            effect,
            lambda: ev.LogEndFound(effect.shard, effect.request, self.world.away(effect.shard), partition.committed),
        )

    def _fetch(self, effect: fx.FetchLog) -> None:
        def at_kafka() -> ev.LogFetched:
            code = self.world.away(effect.shard)
            batches, end = self.world.partitions[effect.shard].fetch(effect.offset)
            return ev.LogFetched(effect.shard, effect.request, code, () if code else batches, end)

        self._call(effect, at_kafka)

    def _produce(self, effect: fx.Produce) -> None:
        done = [False]

        def answered(results: Any) -> None:
            if not done[0]:
                done[0] = True
                self.own(ev.BatchesProduced(effect.broker, effect.request, results))

        def lost() -> None:
            if not done[0]:
                done[0] = True
                self.own(ev.ProduceLost(effect.broker, effect.request))

        self.later(effect.timeout_ms + 200, lost)
        for batch in effect.batches:
            if batch.wire is None:
                batch.wire = repr([pair[:2] for pair in batch.records]).encode()
            assert batch.wire == repr([pair[:2] for pair in batch.records]).encode()
        self.world.forth(self, lambda: self.world.brokers.produce(self, effect, answered))

    def _ask_leaders(self, effect: fx.FindLeaders) -> None:
        done = [False]

        def answered(leaders: Any) -> None:
            if not done[0]:
                done[0] = True
                self.own(ev.LeadersFound(effect.request, leaders))

        def told(leaders: dict[int, int]) -> None:
            self.world.back(self, lambda: answered(leaders))

        self.later(REQUEST_MS, lambda: answered({}))
        self.world.forth(
            self,
            lambda: told(dict(enumerate(partition.leader for partition in self.world.partitions))),
        )

    # What a shard keeps.

    def _apply(self, effect: fx.ApplyRecords) -> None:
        store = self.stores[effect.shard]
        if effect.first:
            store.state = {}
        for record in effect.records:
            assert record.key is not None
            if record.value is None:
                store.state.pop(record.key, None)
            else:
                store.state[record.key] = int(record.value)

    def _finish(self, effect: fx.FinishLoad) -> None:
        self.later(1, lambda: self.own(ev.LoadFinished(effect.shard, effect.request)))

    def _serve(self, effect: fx.ServeShard) -> None:
        store = self.stores[effect.shard]
        store.serving, store.position, store.released = True, 0, 0
        self.world.census[f"owners: {effect.report.cause}"] += 1
        self.world.census["voids met"] += effect.report.fenced_records
        self.world.census["keys repaired"] += effect.report.repaired
        self.world.census["waits"] += effect.report.waited_ms > 0
        position = self.shards._acquisitions[effect.shard]._replay.position
        self.world.check.serves(self, effect.shard, position)

    def _unload(self, effect: fx.UnloadShard) -> None:
        store = self.stores[effect.shard]
        self.world.census[f"unloads: {effect.why[:40]}"] += 1
        held, store.held, store.serving, store.state = store.held, [], False, {}
        tokens, store.tokens, store.pending = store.tokens, {}, PendingPositions()
        for _, _, refused in held:
            refused()
        for *_, said in tokens.values():
            said(16)

    def _released(self, effect: fx.ReleaseAnswers) -> None:
        self.stores[effect.shard].released = effect.position

    def _release(self, shard: int) -> None:
        store = self.stores[shard]
        while store.held and store.held[0][0] <= store.released and self.shards.may_answer(shard, self.now_ms):
            store.held.pop(0)[1]()

    def _let_go(self, effect: fx.ShardsLetGo) -> None:
        self.tell(mev.Revoked(effect.token))

    def ask(self, shard: int, key: bytes, value: int | None, said: Callable[[int | None, int], None]) -> None:
        """A client's request: to write a value, or (None) to read. Answered by (value, code)."""
        store = self.stores[shard]

        def refused() -> None:
            said(None, 16)

        if not self.shards.takes(shard) or not store.serving:
            refused()
            return
        if value is not None:
            if not self.shards.has_room(shard):
                said(None, 14)
                return
            if value <= store.state.get(key, 0):
                said(None, 22)  # it was late: the client has gone on
                return
            store.position += 1
            store.state[key] = value
            store.pending.overtaken(GROUP, [(key.decode(), 0)])
        seen = store.state.get(key, 0)
        store.held.append((store.position, lambda: said(seen, 0), refused))
        if value is not None:
            record = (key, b"%d" % value, None)
            self.own(ev.TurnDecided([ev.ShardAppend(shard, [record], len(key) + len(record[1]), store.position)]))
        else:
            self._release(shard)


def ignored(node: Node, action: Any) -> None:
    """Abandoned answers are dropped by their tokens; a node that is closed has nothing more to say."""


def closed(node: Node, action: Any) -> None:
    node.alive = False


MEMBER: dict[type, Callable[[Node, Any], None]] = {
    act.FindCoordinator: Node._find,
    act.SendJoin: Node._join,
    act.SendSync: Node._sync,
    act.SendHeartbeat: Node._heartbeat,
    act.SendLeave: Node._leave,
    act.Abandon: ignored,
    act.MakePlan: Node._plan,
    act.Revoke: Node._revoked,
    act.Lost: Node._lost,
    act.Assign: Node._assign,
    act.Fail: Node._failed,
    act.Closed: closed,
    act.WakeMemberAt: lambda node, action: node._wake(0, action.at_ms, lambda: node.tell(mev.TimerExpired())),
}
SHARD: dict[type, Callable[[Node, Any], None]] = {
    fx.InitProducer: Node._init,
    fx.FindLogEnd: Node._ask_end,
    fx.FetchLog: Node._fetch,
    fx.ApplyRecords: Node._apply,
    fx.FinishLoad: Node._finish,
    fx.ServeShard: Node._serve,
    fx.RefuseRequests: ignored,
    fx.UnloadShard: Node._unload,
    fx.ReleaseAnswers: Node._released,
    fx.ShardsLetGo: Node._let_go,
    fx.Produce: Node._produce,
    fx.FindLeaders: Node._ask_leaders,
    fx.WriteClientBatch: Node._write_txn,
    fx.DescribeProducer: Node._ask_producer,
    fx.ClientWriteOutcome: lambda node, effect: node._txn_outcome(effect),
    fx.FollowLog: Node._follow,
    fx.TransactionPending: Node._waits,
    fx.TransactionEnded: Node._ended,
    fx.StopProcess: closed,
    fx.WakeShardsAt: lambda node, effect: node._wake(1, effect.at_ms, lambda: node.own(ev.ShardsTick())),
}
