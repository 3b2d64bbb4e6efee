"""All shards of one node as one state machine: events in, effects out; the entry to this folder.

The folder is pure: it reads no clock, socket or random number, and knows no wire format but JSON. Moments are ms of
one monotonic clock of the node. Rule ids (KB-F1, KB-S4, ...) are defined in docs/design/kafka-backend.md.

**Membership.** The caller keeps one `NodeShards` and one member of the nodes' group (the classic machine of
`muster.client.members`). Its Assign becomes `ShardsAssigned`, its Revoke `RevokeShards` (whose end is the effect
`ShardsLetGo`), and Lost, like every end of the membership, `MembershipLost`. Each answered Heartbeat and SyncGroup
becomes `LeaseHeartbeatAnswered` or `Synced`, with the moment *before the request's first byte was written*. A node
whose `joins_again_ms` is above 0 joins once more after that time, with the generation of its map in its metadata:
only then does Kafka begin a round for a static member that came back. LeaveGroup names the member id next to the
instance id: by the instance id alone a process that wakes late would remove its successor.

**Writing.** `ShardAppend` is what one turn decided, already encoded as records; which turns share a batch, its
sequence and its broker are decided here. `Produce` names batches; each is encoded once, when it is first sent, and
`ShardBatch.wire` keeps the bytes for when they must be sent again.

**Reading.** The caller decodes what it fetched into `LogBatch`; `ApplyRecords` names the records that count.
"""

from collections.abc import Callable, Sequence
from typing import Any

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendOutcome, BatchAcknowledged
from muster.coordinator.kafka_backend.shard_ownership.client_transactions import OpenTransactions
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import (
    ReleaseAnswers,
    ShardEffect,
    ShardsLetGo,
    StopProcess,
    WakeShardsAt,
)
from muster.coordinator.kafka_backend.shard_ownership.lease import SERVING, OwnershipContext, OwnershipSettings, Stage
from muster.coordinator.kafka_backend.shard_ownership.shard_acquisition import ShardAcquisition
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.shard_log import NEVER, RetryReason

MOVED_AWAY = "it moves to another node"
ASSIGNED_ELSEWHERE = "it was dealt to another node"
IN_ORDER = frozenset({MOVED_AWAY, ASSIGNED_ELSEWHERE})
"""Why shards go when nothing is wrong."""


class NodeShards:
    """`step` for whatever happens; the questions below it for whoever answers requests."""

    def __init__(self, settings: OwnershipSettings) -> None:
        self._context = OwnershipContext(settings)
        self._acquisitions: dict[int, ShardAcquisition] = {}
        self._revoking: dict[int, ev.RevokeShards] = {}
        self._wake_ms: int | None = None
        self._wrote = False
        """Whether there was a lease when all shards were looked at last."""
        self._touched: set[int] | None = None
        """The only shards for which this event can have changed what they wait for; None: any."""

    def step(self, event: ev.ShardEvent, now_ms: int) -> list[ShardEffect]:
        """Take in one event. `now_ms` never goes back."""
        context = self._context
        context.now_ms, context.out = now_ms, []
        self._touched = set() if self._is_brief(event) else None
        HANDLERS[type(event)](self, event)
        self._advance_shards()
        return context.out

    def _is_brief(self, event: ev.ShardEvent) -> bool:
        """What is written and acknowledged comes with each commit: no shard is looked at then that goes on as before,
        unless one of them waits for this moment, for the lease, or for what others have written."""
        waits = self._wake_ms is None or self._wake_ms <= self._context.now_ms or self._revoking
        return isinstance(event, BRIEF) and not waits and self._context.may_write and self._wrote

    # Questions.

    @property
    def assignment(self) -> ShardAssignment:
        """The map as it was last told."""
        return self._context.assignment

    def may_answer(self, shard: int, now_ms: int) -> bool:
        """KB-F7: whether an answer of the shard may leave at this moment."""
        return now_ms < self.lease_until(shard)

    def has_lease(self, now_ms: int) -> bool:
        """KB-F7: whether this node may answer for any shard."""
        return self._context.lease.is_valid(now_ms)

    @property
    def lease_ends_ms(self) -> int:
        """The first moment without a lease, as far as is known; NEVER: there is none."""
        return self._context.lease.until_ms

    def lease_until(self, shard: int) -> int:
        """Until when answers of the shard may leave, as far as is known; NEVER: they may not."""
        taking = self._acquisitions.get(shard)
        return self._context.lease.until_ms if taking is not None and taking.stage in SERVING else NEVER

    def takes(self, shard: int) -> bool:
        """Whether new requests of the shard are this node's to decide."""
        taking = self._acquisitions.get(shard)
        return taking is not None and taking.stage is Stage.SERVE

    def has_room(self, shard: int) -> bool:
        """KB-A3: whether more may be decided for the shard; if not: COORDINATOR_LOAD_IN_PROGRESS (14)."""
        following = self._following(shard)
        beside = 0 if following is None else following.writes.size
        return self._context.appends.has_room(shard, beside)

    def unacked(self, shard: int) -> int:
        """Bytes."""
        following = self._following(shard)
        return self._context.appends.unacked(shard) + (0 if following is None else following.writes.size)

    def open_transactions(self, shard: int) -> int:
        """KB-E4: of clients, whose markers are waited for."""
        following = self._following(shard)
        return 0 if following is None else following.open

    def _following(self, shard: int) -> OpenTransactions | None:
        taking = self._acquisitions.get(shard)
        return None if taking is None else taking.following

    def served(self) -> list[int]:
        """The shards whose engine is loaded: their answers may leave while the lease holds."""
        return [shard for shard, taking in self._acquisitions.items() if taking.stage in SERVING]

    def trouble(self, shard: int) -> RetryReason | None:
        """Why what it does, or writes, is tried again; for people."""
        taking = self._acquisitions.get(shard)
        return (taking and taking.trouble) or self._context.appends.trouble(shard)

    def tried_since(self, shard: int) -> int | None:
        """Since when its first batch that is not acknowledged is being written; None: there is none. For people."""
        return self._context.appends.tried_since(shard)

    def stages(self) -> dict[int, Stage]:
        """Of each shard that is dealt to this node; for people."""
        return {shard: taking.stage for shard, taking in self._acquisitions.items()}

    def lost(self) -> dict[int, str]:
        """Shards of this node whose log has lost something, and what; for people."""
        return {shard: taking.lost for shard, taking in self._acquisitions.items() if taking.lost}

    @property
    def topic_lost(self) -> str:
        """Why no shard is served; for people. "": the state topic is as it should be."""
        return self._context.topic_lost

    # What is heard.

    def _share(self, event: ev.ShardsAssigned) -> None:
        self._context.assignment = event.assignment
        for shard in sorted(self._acquisitions.keys() - event.shards):
            self._acquisitions.pop(shard).end(ASSIGNED_ELSEWHERE)
        for shard in sorted(event.shards - self._acquisitions.keys()):
            self._acquisitions[shard] = ShardAcquisition(shard, self._context)

    def _revoke(self, event: ev.RevokeShards) -> None:
        self._revoking[event.token] = event
        for shard in sorted(event.shards & self._acquisitions.keys()):
            if self._acquisitions[shard].stage in SERVING:
                self._acquisitions[shard].leave()
            else:
                self._acquisitions.pop(shard).end(MOVED_AWAY)

    def _lost_all(self, event: ev.MembershipLost) -> None:
        self._context.lease.lost(self._context.now_ms)
        for taking in self._acquisitions.values():
            taking.end(event.why)
        self._acquisitions.clear()

    def _fenced(self, event: ev.NodeFenced) -> None:
        self._lost_all(ev.MembershipLost("another process has this node's id"))
        node = self._context.settings.node
        where = f" at {event.address}" if event.address else ""
        self._context.out.append(
            StopProcess(f"another process{where} runs as node.id {node}: give each node of a cluster an id of its own")
        )

    def _topic_lost(self, event: ev.TopicLost) -> None:
        again, self._context.topic_lost = bool(self._context.topic_lost), event.why
        for taking in self._acquisitions.values() if not again else ():
            taking.lose_topic()

    def _topic_found(self, event: ev.TopicFound) -> None:
        self._context.topic_lost = ""
        if event.another:
            self._context.losses.forget()

    def _answer(self, event: ev.ShardAnswer) -> None:
        taking = self._acquisitions.get(event.shard)
        if taking is not None:
            taking.heard(event)

    def _decided(self, event: ev.TurnDecided) -> None:
        """Of a shard that goes no more, or not yet, nothing is written."""
        for append in event.appends:
            taking = self._acquisitions.get(append.shard)
            if taking is not None and taking.stage in SERVING:
                self._context.appends.append(*append)

    def _produced(self, event: ev.BatchesProduced) -> None:
        self._outcomes(self._context.appends.produced(event.broker, event.request, event.results, self._context.now_ms))

    def _outcomes(self, outcomes: Sequence[AppendOutcome]) -> None:
        for outcome in outcomes:
            shard = outcome.batch.shard if isinstance(outcome, BatchAcknowledged) else outcome.shard
            taking = self._acquisitions.get(shard)
            if taking is not None:
                taking.outcome(outcome)
                if self._touched is not None and taking.stage not in SERVING:
                    self._touched.add(shard)

    def _append_txn(self, event: ev.AppendClientOffsets) -> None:
        """Of a shard that goes, or is not there yet, nothing is written: whoever asked hears `Unload`, or has."""
        taking = self._acquisitions.get(event.shard)
        if taking is not None and taking.following is not None:
            taking.following.append(event)

    def _tick(self, event: ev.ShardsTick) -> None:
        """The moment that was wished for has come, or nearly: what is not due yet is wished for again."""
        self._wake_ms = None

    # What follows.

    def _looked_at(self) -> list[ShardAcquisition]:
        if self._touched is None:
            return list(self._acquisitions.values())
        return [self._acquisitions[shard] for shard in self._touched if shard in self._acquisitions]

    def _advance_shards(self) -> None:
        context = self._context
        if self._touched is None:
            self._outcomes(context.appends.late(context.now_ms))
        for taking in self._looked_at():
            taking.advance_stage()
        if self._touched is None:
            self._wrote = context.may_write
        self._let_go()
        if context.may_write:
            context.out += context.appends.pump(context.now_ms)
        self._sleep()

    def _let_go(self) -> None:
        """KB-F8: the rejoin that lets go of shards waits for what they wrote, and until it is told: who has an answer
        released in this step may tell it before the next."""
        if not self._revoking:
            return
        told = {effect.shard for effect in self._context.out if isinstance(effect, ReleaseAnswers)}
        for token, revoke in list(self._revoking.items()):
            mine = sorted(revoke.shards & self._acquisitions.keys())
            over = self._context.now_ms >= revoke.deadline_ms
            if over or all(self._acquisitions[shard].may_let_go and shard not in told for shard in mine):
                for shard in mine:
                    self._acquisitions.pop(shard).end(MOVED_AWAY)
                del self._revoking[token]
                self._context.out.append(ShardsLetGo(token))

    def _sleep(self) -> None:
        context = self._context
        wanted = [taking.wish() for taking in self._looked_at()]
        wanted += [revoke.deadline_ms for revoke in self._revoking.values()]
        if self._revoking and any(isinstance(effect, ReleaseAnswers) for effect in context.out):
            wanted.append(context.now_ms)  # as soon as may be: see `_let_go`
        if context.may_write:
            wanted.append(context.appends.wish())
            wanted.append(context.lease.until_ms if self._acquisitions else None)
        at_ms = min((each for each in wanted if each is not None), default=None)
        if at_ms is not None:
            at_ms = max(at_ms, context.now_ms + 1)
            if self._wake_ms is None or self._wake_ms <= context.now_ms or at_ms < self._wake_ms:
                self._wake_ms = at_ms
                context.out.append(WakeShardsAt(at_ms))


BRIEF = (ev.TurnDecided, ev.BatchesProduced)

HANDLERS: dict[type, Callable[[NodeShards, Any], None]] = {
    ev.ShardsAssigned: NodeShards._share,
    ev.RevokeShards: NodeShards._revoke,
    ev.MembershipLost: NodeShards._lost_all,
    ev.NodeFenced: NodeShards._fenced,
    ev.TopicLost: NodeShards._topic_lost,
    ev.TopicFound: NodeShards._topic_found,
    ev.Synced: lambda shards, event: shards._context.lease.synced(event.sent_ms),
    ev.LeaseHeartbeatAnswered: lambda shards, event: shards._context.lease.heartbeat_answered(
        event.sent_ms, event.code
    ),
    ev.RequestWithoutAnswer: NodeShards._answer,
    ev.ProducerInitialized: NodeShards._answer,
    ev.LogEndFound: NodeShards._answer,
    ev.LogFetched: NodeShards._answer,
    ev.LoadFinished: NodeShards._answer,
    ev.LeadersFound: lambda shards, event: shards._context.appends.led(
        event.request, event.leaders, shards._context.now_ms
    ),
    ev.BatchesProduced: NodeShards._produced,
    ev.ProduceLost: lambda shards, event: shards._context.appends.lost(
        event.broker, event.request, event.detail, shards._context.now_ms
    ),
    ev.TurnDecided: NodeShards._decided,
    ev.AppendClientOffsets: NodeShards._append_txn,
    ev.ClientBatchAnswered: NodeShards._answer,
    ev.ProducerDescribed: NodeShards._answer,
    ev.ShardsTick: NodeShards._tick,
}
