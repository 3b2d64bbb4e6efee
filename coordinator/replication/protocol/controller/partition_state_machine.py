"""One unit after another: the state it should have, put into a write; and its reassignment to other replicas.

`ReviewPass` looks at units that wait until a write is full. A reassignment (CL-A8, KIP-455) adds replicas, and when
these are in sync the others go. What is in progress stands in the topic's znode, so any controller continues it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
    unit_of,
)
from muster.coordinator.replication.protocol.controller.controller_term import (
    AdminRequest,
    ControllerTerm,
    ReviewMark,
    ReviewReason,
    WriteDraft,
)
from muster.coordinator.replication.protocol.controller.elections import (
    ReplicaStanding,
    StateDecision,
    decide_state,
    first_candidate,
    initial_state,
    next_elr,
    next_state,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker, ElectionKind

# Reassignment (CL-A8, KIP-455)
# -----------------------------


class ReassignmentStep(NamedTuple):
    """Another assignment, and the state that goes with it in the same write; None if that stays."""

    assignment: ReplicaAssignment
    decision: StateDecision | None


def original_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Who had copies before it began."""
    return tuple(each for each in assignment.replicas if each not in assignment.adding)


def start_reassignment(assignment: ReplicaAssignment, target: tuple[int, ...]) -> ReplicaAssignment:
    """Towards the target. Whoever is added no more, for it is cancelled or another takes its place, goes as all go:
    when enough of the target are in sync. It may be one of the last that have all.

    >>> start_reassignment(ReplicaAssignment((1, 2, 3)), (3, 4))
    ReplicaAssignment(replicas=(3, 4, 1, 2), adding=(4,), removing=(1, 2))
    >>> start_reassignment(ReplicaAssignment((3, 4, 1, 2), (4,), (1, 2)), (1, 2, 3))
    ReplicaAssignment(replicas=(1, 2, 3, 4), adding=(), removing=(4,))
    """
    before = original_replicas(assignment)
    removing = tuple(each for each in assignment.replicas if each not in target)
    return ReplicaAssignment((*target, *removing), tuple(each for each in target if each not in before), removing)


def restrict_state(
    state: PartitionState, now: ReplicaStanding, to: tuple[int, ...], cause: str
) -> StateDecision | None:
    """The state when only `to` have copies: a new leader epoch, so that whoever is to go hears no more. None while none
    of them could lead."""
    isr = tuple(each for each in to if each in state.isr)
    live = [each for each in isr if each in now.live]
    leader = state.leader if state.leader in live else first_candidate(live, now)
    if leader is None:
        return None
    here = now._replace(replicas=to, minimum=min(now.minimum, len(to)))
    elr = next_elr(state.elr, state.isr, isr, here)
    decided = next_state(
        state,
        leader=leader,
        isr=isr,
        elr=elr,
        cause=cause if leader != state.leader else state.cause,
        epoch=now.epoch,
        elected=True,
        directories={each: known for each, known in state.directories.items() if each in to},
    )
    return StateDecision(decided, ElectionKind.ISR)


def finish_reassignment(
    state: PartitionState, assignment: ReplicaAssignment, now: ReplicaStanding
) -> ReassignmentStep | None:
    """The end of one that is under way: when all that come are in sync, and enough of those that stay."""
    target = tuple(each for each in assignment.replicas if each not in assignment.removing)
    in_sync = [each for each in target if each in state.isr]
    if any(each not in state.isr for each in assignment.adding) or len(in_sync) < min(now.minimum, len(target)):
        return None
    decision = restrict_state(state, now, target, "reassigned")
    return None if decision is None else ReassignmentStep(ReplicaAssignment(target), decision)


def put_reassignment(term: ControllerTerm, draft: WriteDraft, unit: TopicPartition, done: ReassignmentStep) -> None:
    """Puts it into the write: the topic's assignment (of a shard, both topics'), and the state."""
    controller_state = term.controller_state
    for place in halves_of(unit):
        draft.assign(controller_state.topics[place.topic], place.partition, done.assignment)
    if done.decision is not None:
        state = controller_state.states[unit]
        draft.put(unit, state, done.decision.state, controller_state.second.get(unit, NO_EPOCH))
        draft.elect(unit, state.leader, done.decision, term.now_ms, term.now_ms)
    draft.back.append(lambda: term.look_at((unit,), ""))
    # Whoever is removed may be needed no more, whoever stays may be the better leader: CL-C10 sees to that.
    draft.after.append(lambda: term.look_at((unit,), ""))


class PlannedReassignment(NamedTuple):
    """What is wanted for a unit: its replicas, None to cancel."""

    target: tuple[int, ...] | None
    wish: AdminRequest


@dataclass(slots=True)
class ReassignmentQueue:
    """Reassignments that were asked for, and are not written yet."""

    term: ControllerTerm
    plans: dict[TopicPartition, PlannedReassignment] = field(default_factory=dict)

    def enqueue_reassignments(
        self, request: int | None, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> None:
        """Checks each, and takes what can be; a later one for a unit takes the place of an earlier one."""
        wish = self.term.wish(request)
        for place, target in wanted.items():
            unit = unit_of(place)
            if (code := self._refused(unit, target)) is not ErrorCode.NONE:
                wish.results[unit] = code
                if request is None:
                    self.term.warn(f"reassignment of {place} to {target}: {code.meaning}")
                continue
            if (old := self.plans.pop(unit, None)) is not None:
                self.term.come_true(old.wish, unit, ErrorCode.NONE)
            self.plans[unit] = PlannedReassignment(target, wish)
            wish.open.add(unit)
        if request is None:
            self.term.remove(AdminMarker.REASSIGN)
        self.term.maybe_answer(wish)

    def _refused(self, unit: TopicPartition, target: tuple[int, ...] | None) -> ErrorCode:
        controller_state = self.term.controller_state
        assignment = controller_state.assignment(unit)
        if assignment is None or unit not in controller_state.states:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if target is None:
            running = assignment.adding or assignment.removing or unit in self.plans
            return ErrorCode.NONE if running else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        here = (*controller_state.nodes.live, *original_replicas(assignment))
        if not target or len(set(target)) != len(target) or any(each not in here for each in target):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return ErrorCode.NONE

    def decide(self, draft: WriteDraft) -> None:
        for unit, plan in list(self.plans.items()):
            topics = self.term.controller_state.topics_of(unit)
            if unit in draft.states or not draft.has_room(unit, topics=topics):
                continue
            del self.plans[unit]
            self._one(draft, unit, plan)

    def _one(self, draft: WriteDraft, unit: TopicPartition, plan: PlannedReassignment) -> None:
        term, controller_state = self.term, self.term.controller_state
        assignment, state = controller_state.assignment(unit), controller_state.states.get(unit)
        if assignment is None or state is None:
            term.come_true(plan.wish, unit, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        after = start_reassignment(assignment, original_replicas(assignment) if plan.target is None else plan.target)
        if after == assignment:
            term.come_true(plan.wish, unit, ErrorCode.NONE)
            return
        draft.back.append(lambda: self._again(unit, plan))
        draft.after.append(lambda: term.come_true(plan.wish, unit, ErrorCode.NONE))
        put_reassignment(term, draft, unit, ReassignmentStep(after, None))

    def _again(self, unit: TopicPartition, plan: PlannedReassignment) -> None:
        self.plans.setdefault(unit, plan)


# One pass over the units that wait
# ---------------------------------

MAX_REVIEWS = 400
"""Units looked at in one step: at some ten microseconds each, the node answers others in between."""

UNCLEAN_BY_SETTING = "unclean by setting"


class ReviewPass:
    """One pass over the units that wait, which fills one write.

    blocked: there is a unit before this place whose change is not written, so no mark may be passed. looks: how many
    have been looked at.
    """

    __slots__ = ("blocked", "draft", "looks", "term")

    def __init__(self, term: ControllerTerm, draft: WriteDraft) -> None:
        self.term = term
        self.draft = draft
        self.blocked = False
        self.looks = 0

    def shards(self) -> None:
        self._units(list(islice(self.term.work.shards.items(), MAX_REVIEWS)))

    def rest(self) -> ReviewMark | None:
        """The others, until the write is full or a mark is reached: the mark, if it may be passed."""
        if self.term.work.shards:
            self.blocked = True
        rest = self.term.work.rest
        for item, reason in list(islice(rest.items(), MAX_REVIEWS)):
            if not isinstance(item, TopicPartition):
                if self.blocked:
                    continue
                del rest[item]
                return item
            if not self._one(item, reason):
                break
        return None

    def _units(self, items: list[tuple[TopicPartition, ReviewReason]]) -> None:
        for unit, reason in items:
            if not self._one(unit, reason):
                break

    def _one(self, unit: TopicPartition, reason: ReviewReason) -> bool:
        """Whether to go on: not when the write is full, or enough has been looked at."""
        moving = self.term.controller_state.moving(unit)
        if self.looks >= MAX_REVIEWS or not self.draft.has_room(unit, topics=moving):
            self.blocked = True
            return False
        self.looks += 1
        if unit in self.draft.states or unit in self.draft.assigned:
            # Something else of it is in this write: with the next one.
            self.blocked = True
            return True
        self.term.work.done(unit)
        if review_unit(self.term, self.draft, unit, reason):
            self.blocked = True
        return True


def review_unit(term: ControllerTerm, draft: WriteDraft, unit: TopicPartition, reason: ReviewReason) -> bool:
    """Looks at a unit, and puts what has to change into the write; whether anything has to."""
    controller_state = term.controller_state
    assignment = controller_state.assignment(unit)
    if assignment is None or (
        controller_state.broken and any(half in controller_state.broken for half in halves_of(unit))
    ):
        return False
    state = controller_state.states.get(unit)
    if state is None:
        return create_unit(term, draft, unit, assignment, reason)
    standing = controller_state.standing(unit, assignment, state)
    decision = decide_unit(term, unit, state, standing, reason)
    if decision is not None and decision.clean is ElectionKind.UNCLEAN:
        # Whatever brought it about: that records may be lost by it is the setting's doing.
        decision = decision._replace(state=replace(decision.state, cause=UNCLEAN_BY_SETTING))
    if decision is None and (assignment.adding or assignment.removing):
        done = finish_reassignment(state, assignment, standing)
        if done is not None:
            put_reassignment(term, draft, unit, done)
            return True
    if decision is None and unit in term.work.mend:
        decision = StateDecision(rewrite_state(state, standing))
    if decision is None:
        return False
    put_decision(term, draft, unit, state, decision, reason)
    if assignment.adding or assignment.removing:
        draft.after.append(lambda: term.look_at((unit,), reason.cause))
    return True


def decide_unit(
    term: ControllerTerm, unit: TopicPartition, state: PartitionState, standing: ReplicaStanding, reason: ReviewReason
) -> StateDecision | None:
    """What the unit should be.

    A leader that has heard nothing of this term may go by a minimum that nobody knows. Who becomes eligible beside it
    does so with a new epoch, in which it leads only when it has heard what is set.
    """
    controller_state = term.controller_state
    anew = state.leader in controller_state.nodes.unsure and unit not in term.renewed
    cause = reason.cause or f"node {state.leader} is gone"
    if controller_state.is_new_to(state.leader) and unit.topic not in controller_state.lowest:
        standing = standing._replace(lowest=standing.minimum)
        decision = decide_state(state, standing, cause, anew=anew)
        if decision is None or decision.clean is not None or set(decision.state.elr) <= set(state.elr):
            return decision
        anew = True
    return decide_state(state, standing, cause, anew=anew)


def put_decision(
    term: ControllerTerm,
    draft: WriteDraft,
    unit: TopicPartition,
    state: PartitionState,
    decision: StateDecision,
    reason: ReviewReason,
) -> None:
    """Puts a decision into the write; should it fail, the unit is looked at again."""
    draft.put(unit, state, decision.state, term.controller_state.second.get(unit, NO_EPOCH))
    draft.elect(unit, state.leader, decision, reason.since_ms, term.now_ms)
    draft.back.append(lambda: term.work.add(unit, reason))
    draft.after.append(lambda: term.work.mend.discard(unit))
    if decision.state.leader in term.controller_state.nodes.unsure and decision.clean is not None:
        draft.after.append(lambda: term.renewed.add(unit))


def create_unit(
    term: ControllerTerm, draft: WriteDraft, unit: TopicPartition, assignment: ReplicaAssignment, reason: ReviewReason
) -> bool:
    """The first state of a unit, once one of its replicas is live, and (a shard) both halves are there."""
    controller_state = term.controller_state
    if unit.topic == OFFSETS:
        other = controller_state.topics.get(LEDGER)
        if other is None or unit.partition >= len(other.partitions):
            return False
    state = initial_state(controller_state.standing(unit, assignment, NOT_THERE))
    if state is None:
        return False
    put_decision(term, draft, unit, NOT_THERE, StateDecision(state), reason)
    return True


def rewrite_state(state: PartitionState, standing: ReplicaStanding) -> PartitionState:
    """The same state once more, for a half that differs."""
    return next_state(
        state, leader=state.leader, isr=state.isr, elr=state.elr, cause=state.cause, epoch=standing.epoch, elected=False
    )


NOT_THERE = PartitionState(NO_NODE_ID, NO_EPOCH, ())
"""Instead of a state that has not been written; its partition epoch says so."""
