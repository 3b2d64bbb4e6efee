"""A node of the abstract model: the machines, a log, and what goes between them and the others."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, PartitionState, TopicPartition
from muster.coordinator.replication.protocol.follower import (
    AppendRecords,
    FetchOutcome,
    FetchPosition,
    Follower,
    RestartLog,
    StopReplica,
    TruncateLog,
)
from muster.coordinator.replication.protocol.leader import (
    ALL,
    FetchDivergence,
    FetchRefusal,
    IsrAnswer,
    IsrProposal,
    Leader,
    UnitLog,
)
from muster.coordinator.replication.protocol.lease import FetchSource, Peer, SilencePromise, lease_of
from tests.sim.replication.abstract.controller import Image
from tests.sim.replication.logs import Entry, LogModel

UNIT = TopicPartition("orders", 0)
SESSION_MS = 6_000
LAG_MS = 3_000
MIN_ISR = 2
MOST_RECORDS = 3

NO_SESSION = 70


class FetchAsked(NamedTuple):
    """life and session: of the sender; a leader that knows another session answers NO_SESSION."""

    node: int
    node_epoch: int
    session: tuple[int, int]
    anew: bool
    ask: FetchPosition
    start: int


class FetchTold(NamedTuple):
    told: FetchOutcome
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class Machines:
    """What a node is made of; mutants put others in their place."""

    leader: type[Leader] = Leader
    follower: type[Follower] = Follower
    promise: type[SilencePromise] = SilencePromise
    peer: type[Peer] = Peer
    log: type[LogModel] = LogModel
    lease_of: Callable[[int], int] = lease_of


class Node:
    def __init__(self, node: int, world: Any, machines: Machines, rate: float, replicas: tuple[int, ...]) -> None:
        self.id = node
        self.world = world
        self.machines = machines
        self.rate = rate
        self.replicas = replicas
        self.log = machines.log()
        self.directory = f"disk-{node}-0"
        self.life = 0
        self.node_epoch = -1
        self.alive = False
        self.frozen = False
        self.start()

    @property
    def now_ms(self) -> int:
        return int(self.world.now_ms * self.rate) + self.id * 1_000_000

    # Lives and deaths.

    def start(self) -> None:
        """A new process: all but the log is forgotten."""
        self.life += 1
        self.node_epoch = -1
        self.alive = True
        self.frozen = False
        self.peers = {node: self.machines.peer(node) for node in self.replicas}
        self.sources = {node: FetchSource(node) for node in self.replicas}
        self.promise = self.machines.promise(self.now_ms)
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.image_sequence = -1
        self.seen_epoch = -1
        self.high_watermark = max(self.log.start, min(self.log.checkpointed_high_watermark, self.log.end))
        self.parked: list[tuple[int, int, object]] = []
        self.sessions = 0
        self.session: tuple[int, int] | None = None
        self.under_way: FetchAsked | None = None
        self.known_sessions: dict[int, tuple[int, int]] = {}
        self.parked_fetches: list[tuple[FetchAsked, int, int, Any]] = []
        self.asked: IsrProposal | None = None

    def die(self) -> None:
        self.alive = False
        self.leader = self.follower = None

    def new_disk(self) -> None:
        self.log = self.machines.log()
        self.directory = f"disk-{self.id}-{self.life}"

    # What the image says.

    def learn(self, image: Image) -> None:
        if image.sequence <= self.image_sequence:
            return
        self.image_sequence = image.sequence
        for node, peer in self.peers.items():
            peer.epoch = image.live.get(node, -1)
            peer.leaving = node in image.leaving
        self.peers[self.id].epoch = self.node_epoch
        state = image.state
        if state.leader_epoch < self.seen_epoch:
            return
        if self.leader is not None and self.leader.epoch == state.leader_epoch:
            self.leader.learn(state, [self.peers[node] for node in self.replicas], MIN_ISR, self.now_ms)
        elif self.follower is None or self.follower.epoch < state.leader_epoch:
            self._turn(state)

    def _turn(self, state: PartitionState) -> None:
        """Another leader epoch."""
        self.seen_epoch = state.leader_epoch
        if self.leader is not None:
            self.high_watermark = self.leader.high_watermark
        elif self.follower is not None:
            self.high_watermark = self.follower.high_watermark
        self.leader = self.follower = None
        self.parked.clear()
        self.parked_fetches.clear()
        self.asked = None
        self.hang_up()
        if state.leader == self.id:
            self.promise.follow(None)
            self.log.become_leader(state.leader_epoch)
            self.log.flush()
            half = UnitLog(
                start=self.log.start, end=self.log.end, kept=self.log.kept_end, high_watermark=self.high_watermark
            )
            self.leader = self.machines.leader(
                self.peers[self.id],
                UNIT,
                state,
                [self.peers[node] for node in self.replicas],
                [half],
                min_isr=MIN_ISR,
                lag_time_ms=LAG_MS,
                now_ms=self.now_ms,
            )
            self.world.check.leads(self)
        elif state.leader != NO_NODE_ID:
            self.promise.follow(self.sources[state.leader])
            self.follower = self.machines.follower(
                UNIT,
                state.leader_epoch,
                state.leader,
                end=self.log.end,
                kept=self.log.kept_end,
                last_epoch=self.log.last_epoch,
                start=self.log.start,
                high_watermark=self.high_watermark,
            )
        else:
            self.promise.follow(None)

    # As the leader.

    def produce(self) -> None:
        leader = self.leader
        if leader is None or leader.may_append(ALL) != ErrorCode.NONE:
            return
        value = self.world.next_value()
        self.log.append(leader.epoch, [value])
        self.world.check.appended(self, leader.epoch)
        leader.appended(0, self.log.end)
        self.parked.append((self.log.end, leader.epoch, value))

    def retain(self) -> None:
        """Retention takes what is old, and committed."""
        leader = self.leader
        if leader is not None and leader.high_watermark > self.log.start:
            self.log.move_start(self.world.random.randint(self.log.start, leader.high_watermark))
            leader.begins(0, self.log.start)

    def flush(self) -> None:
        self.log.flush()
        if self.leader is not None:
            self.leader.kept(0, self.log.kept_end, self.now_ms)
        if self.follower is not None:
            self.follower.keep(self.log.kept_end)

    def look(self) -> None:
        leader = self.leader
        if leader is None:
            return
        leader.check_followers(self.now_ms)
        if (question := leader.wants(self.now_ms)) is not None:
            self.asked = question
            self.world.send(self.id, 0, ("alter", self.id, self.life, self.node_epoch, question))

    def give_up_asking(self) -> None:
        """Nobody answered in time."""
        if self.asked is not None:
            self.altered(self.asked, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT))

    def altered(self, question: IsrProposal, answer: IsrAnswer) -> None:
        if self.asked is question:
            self.asked = None
        if self.leader is not None:
            self.leader.altered(question, answer, self.now_ms)

    def release(self) -> None:
        """Answer who waits for his records to be committed."""
        if self.leader is None:
            return
        for waiting in list(self.parked):
            end, epoch, value = waiting
            verdict = self.leader.parked(0, end)
            if verdict is not None:
                self.parked.remove(waiting)
                if verdict == ErrorCode.NONE:
                    self.world.check.acknowledged(end - 1, epoch, value)

    def answers(self) -> bool:
        """Whether it would answer for the unit's groups right now (CL-G4, CL-G5)."""
        leader, now_ms = self.leader, self.now_ms
        return (
            self.alive
            and not self.frozen
            and leader is not None
            and now_ms < leader.lease_until(self.machines.lease_of(SESSION_MS))
            and now_ms >= self.promise.answers_from(SESSION_MS)
        )

    def serve(self, asked: FetchAsked) -> None:
        """A follower's fetch has come; it may have been on its way for long."""
        known = self.known_sessions.get(asked.node, (-1, -1))
        if asked.session < known or (asked.session > known and not asked.anew):
            if asked.session > known:
                self._tell(asked, FetchTold(FetchOutcome(NO_SESSION)))
            return
        self.known_sessions[asked.node] = asked.session
        peer = self.peers[asked.node]
        number = peer.asks(self.now_ms, anew=asked.anew)
        leader = self.leader
        refused = self._judge(asked) if leader is not None else FetchRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if isinstance(refused, FetchRefusal):
            self._send(asked, number, FetchTold(FetchOutcome(refused.code, -1, self.log.start)))
            return
        if isinstance(refused, FetchDivergence):
            self._send(asked, number, FetchTold(FetchOutcome(0, -1, self.log.start, (refused.epoch, refused.end))))
            return
        assert leader is not None
        if leader.may_park(0, peer) and asked.ask.offset >= self.log.end:
            self.parked_fetches.append((asked, number, leader.epoch, leader.high_watermark))
        else:
            self._give(asked, number)

    def _judge(self, asked: FetchAsked) -> FetchRefusal | FetchDivergence | None:
        assert self.leader is not None
        ask = asked.ask
        return self.leader.fetched(
            0,
            self.peers[asked.node],
            asked.node_epoch,
            ask.epoch,
            ask.offset,
            ask.last_epoch,
            asked.start,
            self.log.end_offset_for_epoch,
            self.now_ms,
        )

    def unpark(self) -> None:
        """CL-L7: who waited long enough is answered, with what there is."""
        waiting, self.parked_fetches = self.parked_fetches, []
        for asked, number, _, _ in waiting:
            if self.leader is not None and not self.leader.over:
                self._give(asked, number)
            else:
                self._send(asked, number, FetchTold(FetchOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)))

    def _give(self, asked: FetchAsked, number: int) -> None:
        assert self.leader is not None
        entries = tuple(self.log.read(asked.ask.offset, MOST_RECORDS))
        told = FetchOutcome(0, self.leader.high_watermark, self.log.start, None, len(entries))
        self._send(asked, number, FetchTold(told, entries))

    def _send(self, asked: FetchAsked, number: int, answer: FetchTold) -> None:
        self.peers[asked.node].answered(number, self.now_ms)
        self._tell(asked, answer)

    def _tell(self, asked: FetchAsked, answer: FetchTold) -> None:
        self.world.send(self.id, asked.node, ("told", asked, answer))

    # As a follower.

    def fetch(self) -> None:
        follower = self.follower
        if follower is None or self.under_way is not None:
            return
        ask = follower.next_fetch()
        if ask is None:
            return
        anew = self.session is None
        if self.session is None:
            self.sessions += 1
            self.session = (self.life, self.sessions)
        self.under_way = FetchAsked(self.id, self.node_epoch, self.session, anew, ask, self.log.start)
        self.world.send(self.id, follower.leader, ("fetch", self.under_way))

    def hang_up(self) -> None:
        """The connection is closed: what is under way may arrive, its answer does not."""
        self.session = None
        self.under_way = None

    def told(self, asked: FetchAsked, answer: FetchTold) -> None:
        if asked is not self.under_way:
            return
        self.under_way = None
        follower = self.follower
        assert follower is not None
        if answer.told.code == NO_SESSION:
            self.hang_up()
            return
        self.sources[follower.leader].received_ms = self.now_ms
        verdict = follower.answered(asked.ask, answer.told, self.log.end_offset_for_epoch, self.log.epoch_at)
        if isinstance(verdict, AppendRecords):
            if answer.entries:
                self.log.append_as_follower(asked.ask.offset, answer.entries)
                follower.appended(self.log.end, self.log.last_epoch)
            if answer.told.start <= self.log.end:
                self.log.move_start(answer.told.start)
        elif isinstance(verdict, TruncateLog):
            self.world.check.cuts(self, verdict.to)
            self.log.cut(verdict.to)
            follower.was_cut(self.log.end, self.log.last_epoch)
        elif isinstance(verdict, RestartLog):
            self.world.check.begins(self, verdict.at)
            self.log.begin_at(verdict.at)
            follower.began(verdict.at)
        elif isinstance(verdict, StopReplica):
            self.world.check.stopped(self, verdict.reason)

    def checkpoint(self) -> None:
        held = self.leader or self.follower
        if held is not None:
            self.log.checkpointed_high_watermark = held.high_watermark

    # Whether a former leader has let go (CL-G5a).

    def ask_former(self) -> None:
        if self.leader is not None:
            for node in self.promise.waits_for(SESSION_MS, self.now_ms):
                self.world.send(self.id, node, ("led?", self.id, self.life, self.leader.epoch))

    def shown(self, node: int, life: int, epoch: int) -> None:
        """CL-L9."""
        self.seen_epoch = max(self.seen_epoch, epoch)
        if self.leader is not None:
            self.leader.shown(epoch)
        self.world.send(self.id, node, ("let go", self.id, life, epoch))

    def former_let_go(self, node: int, life: int, epoch: int) -> None:
        if life == self.life and self.leader is not None and self.leader.epoch == epoch:
            self.promise.let_go(node)
