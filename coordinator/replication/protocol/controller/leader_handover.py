"""Leadership that goes to another node while the old leader lives: shutdown, drain, preferred leaders, ElectLeaders.

The units of one node go in steps of at most 20; the next step begins when the new leaders have applied the one
before (CL-A6, CL-N3). A node that stops or is drained is to lead nothing (CL-A7). Preferred leaders are restored
from time to time (CL-C10) and on request (CL-A5); an operator may also force an unclean election.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    PartitionState,
    TopicPartition,
    unit_of,
)
from muster.coordinator.replication.protocol.controller.controller_term import (
    AdminRequest,
    ControllerTerm,
    ReviewReason,
    WriteDraft,
)
from muster.coordinator.replication.protocol.controller.elections import ReplicaStanding, decide_state, hand_over_leader
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AdminMarker,
    ElectionType,
    ElectLeadersRequested,
    RequestId,
    ShutdownRequested,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.controller.partition_state_machine import put_decision

# Handover in steps (CL-A6)
# -------------------------

UNITS_PER_STEP = 20
"""Units in one step."""


class LeaderMove(NamedTuple):
    """to: who is to lead; NOBODY: whoever can. wish: who hears what came of it."""

    to: int
    cause: str
    since_ms: int
    wish: AdminRequest | None = None


@dataclass(slots=True)
class LeaderMoves:
    """wanted: by the node that leads now. flying: by that node, how many are in the write that is under way. ahead: by
    that node, the new leaders of its last step, and the sequence that each has to have applied."""

    term: ControllerTerm
    wanted: dict[int, dict[TopicPartition, LeaderMove]] = field(default_factory=dict)
    flying: Counter[int] = field(default_factory=Counter)
    ahead: dict[int, dict[int, int]] = field(default_factory=dict)

    def want(self, unit: TopicPartition, move: LeaderMove) -> None:
        leader = self.term.controller_state.leader(unit)
        if leader != NO_NODE_ID:
            old = self.wanted.setdefault(leader, {}).pop(unit, None)
            if old is not None:
                self._answer_wish(unit, old, ErrorCode.NONE)
            self.wanted[leader][unit] = move

    def applied(self, node: int, sequence: int) -> None:
        """A node has applied what it was told up to this sequence."""
        for old, leaders in list(self.ahead.items()):
            if leaders.get(node, sequence + 1) <= sequence:
                del leaders[node]
            if not leaders:
                del self.ahead[old]

    def gone(self, node: int) -> None:
        """Nobody waits for a node that is gone; what it led is elected, not moved."""
        for old, leaders in list(self.ahead.items()):
            leaders.pop(node, None)
            if not leaders or old == node:
                del self.ahead[old]
        for unit, move in self.wanted.pop(node, {}).items():
            self._answer_wish(unit, move, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)

    def under_way(self, node: int) -> bool:
        """Whether something of what the node leads is yet to move, or to be applied."""
        return node in self.wanted or node in self.ahead or self.flying[node] > 0

    @property
    def ready(self) -> bool:
        return any(node not in self.ahead for node in self.wanted)

    def decide(self, draft: WriteDraft) -> None:
        for node in [node for node in self.wanted if node not in self.ahead]:
            self._step(node, draft)

    def _step(self, node: int, draft: WriteDraft) -> None:
        wanted, taken = self.wanted[node], 0
        for unit, move in list(wanted.items()):
            if taken == UNITS_PER_STEP or not draft.has_room(unit):
                break
            if unit in draft.states:
                continue
            del wanted[unit]
            taken += self._one(node, unit, move, draft)
        if not wanted:
            del self.wanted[node]

    def _one(self, node: int, unit: TopicPartition, move: LeaderMove, draft: WriteDraft) -> bool:
        controller_state = self.term.controller_state
        assignment, state = controller_state.assignment(unit), controller_state.states.get(unit)
        if assignment is None or state is None or state.leader != node:
            self._answer_wish(unit, move, ErrorCode.NONE if state is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return False
        standing = controller_state.standing(unit, assignment, state)
        to = move.to if move.to != NO_NODE_ID else next_leader(state, standing)
        decision = hand_over_leader(state, to, standing, move.cause)
        if decision is None:
            self._answer_wish(unit, move, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            return False
        draft.put(unit, state, decision.state, controller_state.second.get(unit, NO_EPOCH))
        draft.elect(unit, state.leader, decision, move.since_ms, self.term.now_ms)
        draft.after.append(lambda: self._written(node, to, unit, move, draft))
        draft.back.append(lambda: self._again(node, unit, move))
        self.flying[node] += 1
        return True

    def _again(self, node: int, unit: TopicPartition, move: LeaderMove) -> None:
        self.flying[node] -= 1
        self.want(unit, move)

    def _written(self, node: int, to: int, unit: TopicPartition, move: LeaderMove, draft: WriteDraft) -> None:
        self.flying[node] -= 1
        if to in self.term.controller_state.nodes.live:
            self.ahead.setdefault(node, {})[to] = draft.sequence
        self._answer_wish(unit, move, ErrorCode.NONE)

    def _answer_wish(self, unit: TopicPartition, move: LeaderMove, code: ErrorCode) -> None:
        if move.wish is not None:
            self.term.come_true(move.wish, unit, code)


def next_leader(state: PartitionState, now: ReplicaStanding) -> int:
    """The first in order of assignment that may take over; NOBODY if none may."""
    may = (each for each in now.live if each in state.isr and each != state.leader and each not in now.leaving)
    return next(may, NO_NODE_ID)


# Controlled shutdown and drain (CL-A7)
# -------------------------------------


class StoppingNode(NamedTuple):
    """A node that waits to hear that it leads nothing."""

    request: RequestId
    until_ms: int


@dataclass(slots=True)
class ControlledShutdowns:
    term: ControllerTerm
    moves: LeaderMoves
    waiting: dict[int, StoppingNode] = field(default_factory=dict)

    def begin_shutdown(self, event: ShutdownRequested) -> None:
        """ControlledShutdown: nobody is elected there from now on, in this life of the node."""
        controller_state = self.term.controller_state
        node = controller_state.nodes.live.get(event.node)
        if node is None or node.epoch != event.node_epoch:
            self.term.answer(event.request, ShutdownResult(ErrorCode.STALE_BROKER_EPOCH))
            return
        self._answer(event.node)
        if event.node not in controller_state.nodes.stopping:
            controller_state.nodes.stop(event.node)
            controller_state.publisher.stage_node(controller_state.nodes.view(event.node))
            self.term.look_at(controller_state.holds.get(event.node, ()), f"node {event.node} shut down")
        self._move_all(event.node, "shut down")
        until_ms = self.term.now_ms + controller_state.settings.shutdown_wait_ms
        self.waiting[event.node] = StoppingNode(event.request, until_ms)

    def drain(self, node_ids: frozenset[int]) -> None:
        """The first half of it, for nodes that stay: they go on as followers."""
        controller_state = self.term.controller_state
        no_more = controller_state.nodes.drained - node_ids
        controller_state.nodes.drain(node_ids)
        for node_id in sorted(no_more):
            self.term.look_at(controller_state.holds.get(node_id, ()), "")
        self.move_drained()

    def move_drained(self) -> None:
        """What drained nodes lead goes to others, as far as these can."""
        for node_id in sorted(self.term.controller_state.nodes.drained):
            self._move_all(node_id, "drained")

    def written(self, units: Iterable[TopicPartition]) -> None:
        """Who is to lead nothing may have come to lead some of these, for nobody else could, or they were on their way
        to it when it was drained: they go as soon as another can take over."""
        controller_state = self.term.controller_state
        for unit in units if controller_state.nodes.leaving else ():
            leader, assignment = controller_state.leader(unit), controller_state.assignment(unit)
            if (
                leader not in controller_state.nodes.leaving
                or assignment is None
                or unit in self.moves.wanted.get(leader, ())
            ):
                continue
            if (
                next_leader(
                    controller_state.states[unit],
                    controller_state.standing(unit, assignment, controller_state.states[unit]),
                )
                != NO_NODE_ID
            ):
                cause = "shut down" if leader in controller_state.nodes.stops else "drained"
                self.moves.want(unit, LeaderMove(NO_NODE_ID, cause, self.term.now_ms))

    def _move_all(self, node: int, cause: str) -> None:
        for unit in list(self.term.controller_state.leads.get(node, ())):
            self.moves.want(unit, LeaderMove(NO_NODE_ID, cause, self.term.now_ms))

    def gone(self, node: int) -> None:
        if (stopping := self.waiting.pop(node, None)) is not None:
            self.term.answer(stopping.request, ShutdownResult(ErrorCode.STALE_BROKER_EPOCH))

    @property
    def wake_ms(self) -> int | None:
        return min((stopping.until_ms for stopping in self.waiting.values()), default=None)

    def answer_shutdowns(self) -> None:
        """Answers those that lead nothing more, that can be helped no further, or have waited long enough."""
        for node, stopping in list(self.waiting.items()):
            leads = self.term.controller_state.leads.get(node)
            if not leads or not self.moves.under_way(node) or stopping.until_ms <= self.term.now_ms:
                self._answer(node)

    def _answer(self, node: int) -> None:
        if (stopping := self.waiting.pop(node, None)) is not None:
            remaining = tuple(self.term.controller_state.leads.get(node, ()))
            self.term.answer(stopping.request, ShutdownResult(ErrorCode.NONE, remaining))


# Preferred leaders and ElectLeaders (CL-C10, CL-A5)
# --------------------------------------------------


@dataclass(slots=True)
class PreferredLeaders:
    """due_ms: when leaders are balanced next; None before the term has begun. forced: units that an operator wants led
    whatever it costs, and who hears of it."""

    term: ControllerTerm
    moves: LeaderMoves
    due_ms: int | None = None
    forced: dict[TopicPartition, AdminRequest] = field(default_factory=dict)

    def balance(self) -> None:
        """CL-C10, when it is time: nodes that lead too little of what they are the first replica of get it back."""
        settings, now_ms = self.term.controller_state.settings, self.term.now_ms
        if not settings.auto_rebalance:
            return
        if self.due_ms is None:
            self.due_ms = now_ms + settings.imbalance_check_ms
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + settings.imbalance_check_ms
        for node, (elsewhere, count) in self._imbalances().items():
            if (
                node in self.term.controller_state.nodes.live
                and len(elsewhere) * 100 > settings.imbalance_percent * count
            ):
                self._return(elsewhere)

    def _imbalances(self) -> dict[int, tuple[list[TopicPartition], int]]:
        """By node: units it should lead and does not, and how many it should."""
        found: dict[int, tuple[list[TopicPartition], int]] = {}
        for unit, state in self.term.controller_state.states.items():
            assignment = self.term.controller_state.assignment(unit)
            if assignment is None or assignment.adding or assignment.removing:
                continue
            elsewhere, count = found.get(assignment.replicas[0], ([], 0))
            if state.leader != assignment.replicas[0]:
                elsewhere.append(unit)
            found[assignment.replicas[0]] = (elsewhere, count + 1)
        return found

    def _return(self, units: Iterable[TopicPartition]) -> None:
        for unit in units:
            to = self._first_of(unit)
            if to != NO_NODE_ID:
                self.moves.want(unit, LeaderMove(to, "preferred", self.term.now_ms))

    def _first_of(self, unit: TopicPartition) -> int:
        """The first replica, if it may lead; NOBODY if not."""
        controller_state = self.term.controller_state
        assignment, state = controller_state.assignment(unit), controller_state.states.get(unit)
        if assignment is None or state is None:
            return NO_NODE_ID
        to = assignment.replicas[0]
        standing = controller_state.standing(unit, assignment, state)
        return to if to in state.isr and to in standing.live and to not in standing.leaving else NO_NODE_ID

    def elect_leaders(self, event: ElectLeadersRequested) -> None:
        wish = self.term.wish(event.request)
        units = list(dict.fromkeys(map(unit_of, event.places)))
        wish.open.update(units)
        for unit in units:
            if (code := self._ask_one(unit, event.election, wish)) is not None:
                wish.open.discard(unit)
                wish.results[unit] = code
                if event.request is None and code is not ErrorCode.ELECTION_NOT_NEEDED:
                    self.term.warn(f"an election of {unit} was asked for: {code.meaning}")
        if event.request is None:
            unclean = event.election is ElectionType.UNCLEAN
            self.term.remove(AdminMarker.UNCLEAN if unclean else AdminMarker.PREFERRED)
        self.term.maybe_answer(wish)

    def _ask_one(self, unit: TopicPartition, election: ElectionType, wish: AdminRequest) -> ErrorCode | None:
        """What is known at once; None if the unit has to wait."""
        controller_state = self.term.controller_state
        assignment, state = controller_state.assignment(unit), controller_state.states.get(unit)
        if assignment is None or state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if election is ElectionType.UNCLEAN:
            if state.leader != NO_NODE_ID:
                return ErrorCode.ELECTION_NOT_NEEDED
            self.forced[unit] = wish
            return None
        if state.leader == assignment.replicas[0]:
            return ErrorCode.ELECTION_NOT_NEEDED
        to = self._first_of(unit)
        if to == NO_NODE_ID:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if state.leader == NO_NODE_ID:
            self.term.look_at((unit,), "preferred")
            return ErrorCode.NONE
        self.moves.want(unit, LeaderMove(to, "preferred", self.term.now_ms, wish))
        return None

    def decide(self, draft: WriteDraft) -> None:
        """CL-A5: elections that an operator forces."""
        for unit, wish in list(self.forced.items()):
            if unit in draft.states or not draft.has_room(unit):
                continue
            del self.forced[unit]
            self._force(unit, wish, draft)

    def _force(self, unit: TopicPartition, wish: AdminRequest, draft: WriteDraft) -> None:
        term = self.term
        assignment, state = term.controller_state.assignment(unit), term.controller_state.states.get(unit)
        if assignment is None or state is None:
            term.come_true(wish, unit, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if state.leader != NO_NODE_ID:
            term.come_true(wish, unit, ErrorCode.ELECTION_NOT_NEEDED)
            return
        standing = term.controller_state.standing(unit, assignment, state)._replace(unclean=True)
        decision = decide_state(state, standing, "unclean by operator")
        if decision is None or decision.state.leader == NO_NODE_ID:
            term.come_true(wish, unit, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
            return
        draft.after.append(lambda: term.come_true(wish, unit, ErrorCode.NONE))
        draft.back.append(lambda: self._again(unit, wish))
        put_decision(term, draft, unit, state, decision, ReviewReason("unclean by operator", term.now_ms))

    def _again(self, unit: TopicPartition, wish: AdminRequest) -> None:
        self.forced.setdefault(unit, wish)
