"""One unit after another: what it should be, put into a write."""

from dataclasses import replace
from itertools import islice

from muster.coordinator.replication.protocol.controller import reassign
from muster.coordinator.replication.protocol.controller.effects import ElectionKind
from muster.coordinator.replication.protocol.controller.elections import (
    ReplicaStanding,
    StateDecision,
    decide_state,
    initial_state,
    next_state,
)
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm, ReviewMark, ReviewReason
from muster.coordinator.replication.protocol.controller.writes import WriteDraft
from muster.coordinator.replication.protocol.facts import (
    LEDGER,
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
)

MAX_REVIEWS = 400
"""Units looked at in one step: at some ten microseconds each, the node answers others in between."""

UNCLEAN_BY_SETTING = "unclean by setting"


class ReviewPass:
    """One pass over the units that wait, which fills one write.

    blocked: there is a unit before this place whose change is not written, so no mark may be passed. looks: how many
    have been looked at.
    """

    __slots__ = ("blocked", "draft", "looks", "reign")

    def __init__(self, reign: ControllerTerm, draft: WriteDraft) -> None:
        self.reign = reign
        self.draft = draft
        self.blocked = False
        self.looks = 0

    def shards(self) -> None:
        self._units(list(islice(self.reign.work.shards.items(), MAX_REVIEWS)))

    def rest(self) -> ReviewMark | None:
        """The others, until the write is full or a mark is reached: the mark, if it may be passed."""
        if self.reign.work.shards:
            self.blocked = True
        rest = self.reign.work.rest
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
        moving = self.reign.book.moving(unit)
        if self.looks >= MAX_REVIEWS or not self.draft.has_room(unit, topics=moving):
            self.blocked = True
            return False
        self.looks += 1
        if unit in self.draft.states or unit in self.draft.assigned:
            # Something else of it is in this write: with the next one.
            self.blocked = True
            return True
        self.reign.work.done(unit)
        if review_unit(self.reign, self.draft, unit, reason):
            self.blocked = True
        return True


def review_unit(reign: ControllerTerm, draft: WriteDraft, unit: TopicPartition, reason: ReviewReason) -> bool:
    """Looks at a unit, and puts what has to change into the write; whether anything has to."""
    book = reign.book
    assignment = book.assignment(unit)
    if assignment is None or (book.broken and any(half in book.broken for half in halves_of(unit))):
        return False
    state = book.states.get(unit)
    if state is None:
        return create_unit(reign, draft, unit, assignment, reason)
    standing = book.standing(unit, assignment, state)
    decision = decide_unit(reign, unit, state, standing, reason)
    if decision is not None and decision.clean is ElectionKind.UNCLEAN:
        # Whatever brought it about: that records may be lost by it is the setting's doing.
        decision = decision._replace(state=replace(decision.state, cause=UNCLEAN_BY_SETTING))
    if decision is None and (assignment.adding or assignment.removing):
        done = reassign.finish_reassignment(state, assignment, standing)
        if done is not None:
            reassign.put_reassignment(reign, draft, unit, done)
            return True
    if decision is None and unit in reign.work.mend:
        decision = StateDecision(rewrite_state(state, standing))
    if decision is None:
        return False
    put_decision(reign, draft, unit, state, decision, reason)
    if assignment.adding or assignment.removing:
        draft.after.append(lambda: reign.look_at((unit,), reason.cause))
    return True


def decide_unit(
    reign: ControllerTerm, unit: TopicPartition, state: PartitionState, standing: ReplicaStanding, reason: ReviewReason
) -> StateDecision | None:
    """What the unit should be.

    A leader that has heard nothing of this reign may go by a minimum that nobody knows. Who becomes eligible beside it
    does so with a new epoch, in which it leads only when it has heard what is set.
    """
    book = reign.book
    anew = state.leader in book.nodes.unsure and unit not in reign.renewed
    cause = reason.cause or f"node {state.leader} is gone"
    if book.is_new_to(state.leader) and unit.topic not in book.lowest:
        standing = standing._replace(lowest=standing.minimum)
        decision = decide_state(state, standing, cause, anew=anew)
        if decision is None or decision.clean is not None or set(decision.state.elr) <= set(state.elr):
            return decision
        anew = True
    return decide_state(state, standing, cause, anew=anew)


def put_decision(
    reign: ControllerTerm,
    draft: WriteDraft,
    unit: TopicPartition,
    state: PartitionState,
    decision: StateDecision,
    reason: ReviewReason,
) -> None:
    """Puts a decision into the write; should it fail, the unit is looked at again."""
    draft.put(unit, state, decision.state, reign.book.second.get(unit, NO_EPOCH))
    draft.elect(unit, state.leader, decision, reason.since_ms, reign.now_ms)
    draft.back.append(lambda: reign.work.add(unit, reason))
    draft.after.append(lambda: reign.work.mend.discard(unit))
    if decision.state.leader in reign.book.nodes.unsure and decision.clean is not None:
        draft.after.append(lambda: reign.renewed.add(unit))


def create_unit(
    reign: ControllerTerm, draft: WriteDraft, unit: TopicPartition, assignment: ReplicaAssignment, reason: ReviewReason
) -> bool:
    """The first state of a unit, once one of its replicas is live, and (a shard) both halves are there."""
    book = reign.book
    if unit.topic == OFFSETS:
        other = book.topics.get(LEDGER)
        if other is None or unit.partition >= len(other.partitions):
            return False
    state = initial_state(book.standing(unit, assignment, NOT_THERE))
    if state is None:
        return False
    put_decision(reign, draft, unit, NOT_THERE, StateDecision(state), reason)
    return True


def rewrite_state(state: PartitionState, standing: ReplicaStanding) -> PartitionState:
    """The same state once more, for a half that differs."""
    return next_state(
        state, leader=state.leader, isr=state.isr, elr=state.elr, cause=state.cause, epoch=standing.epoch, elected=False
    )


NOT_THERE = PartitionState(NO_NODE_ID, NO_EPOCH, ())
"""Instead of a state that has not been written; its partition epoch says so."""
