"""CL-A8: other replicas for a unit, as KIP-455: some are added, and when they are in sync the others go.

What is under way stands in the topic's znode, so any controller goes on with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.effects import AdminMarker, ElectionKind
from muster.coordinator.replication.protocol.controller.elections import (
    ReplicaStanding,
    StateDecision,
    first_candidate,
    next_elr,
    next_state,
)
from muster.coordinator.replication.protocol.controller.reign import AdminRequest, ControllerTerm
from muster.coordinator.replication.protocol.controller.writes import WriteDraft
from muster.coordinator.replication.protocol.facts import (
    NO_EPOCH,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
    unit_of,
)


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


def put_reassignment(reign: ControllerTerm, draft: WriteDraft, unit: TopicPartition, done: ReassignmentStep) -> None:
    """Puts it into the write: the topic's assignment (of a shard, both topics'), and the state."""
    book = reign.book
    for place in halves_of(unit):
        draft.assign(book.topics[place.topic], place.partition, done.assignment)
    if done.decision is not None:
        state = book.states[unit]
        draft.put(unit, state, done.decision.state, book.second.get(unit, NO_EPOCH))
        draft.elect(unit, state.leader, done.decision, reign.now_ms, reign.now_ms)
    draft.back.append(lambda: reign.look_at((unit,), ""))
    # Whoever is removed may be needed no more, whoever stays may be the better leader: CL-C10 sees to that.
    draft.after.append(lambda: reign.look_at((unit,), ""))


class PlannedReassignment(NamedTuple):
    """What is wanted for a unit: its replicas, None to cancel."""

    target: tuple[int, ...] | None
    wish: AdminRequest


@dataclass(slots=True)
class ReassignmentQueue:
    """Reassignments that were asked for, and are not written yet."""

    reign: ControllerTerm
    plans: dict[TopicPartition, PlannedReassignment] = field(default_factory=dict)

    def ask(self, request: int | None, wanted: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        """Checks each, and takes what can be; a later one for a unit takes the place of an earlier one."""
        wish = self.reign.wish(request)
        for place, target in wanted.items():
            unit = unit_of(place)
            if (code := self._refused(unit, target)) is not ErrorCode.NONE:
                wish.results[unit] = code
                if request is None:
                    self.reign.warn(f"reassignment of {place} to {target}: {code.meaning}")
                continue
            if (old := self.plans.pop(unit, None)) is not None:
                self.reign.come_true(old.wish, unit, ErrorCode.NONE)
            self.plans[unit] = PlannedReassignment(target, wish)
            wish.open.add(unit)
        if request is None:
            self.reign.remove(AdminMarker.REASSIGN)
        self.reign.maybe_answer(wish)

    def _refused(self, unit: TopicPartition, target: tuple[int, ...] | None) -> ErrorCode:
        book = self.reign.book
        assignment = book.assignment(unit)
        if assignment is None or unit not in book.states:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if target is None:
            running = assignment.adding or assignment.removing or unit in self.plans
            return ErrorCode.NONE if running else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        here = (*book.nodes.live, *original_replicas(assignment))
        if not target or len(set(target)) != len(target) or any(each not in here for each in target):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return ErrorCode.NONE

    def decide(self, draft: WriteDraft) -> None:
        for unit, plan in list(self.plans.items()):
            topics = self.reign.book.topics_of(unit)
            if unit in draft.states or not draft.has_room(unit, topics=topics):
                continue
            del self.plans[unit]
            self._one(draft, unit, plan)

    def _one(self, draft: WriteDraft, unit: TopicPartition, plan: PlannedReassignment) -> None:
        reign, book = self.reign, self.reign.book
        assignment, state = book.assignment(unit), book.states.get(unit)
        if assignment is None or state is None:
            reign.come_true(plan.wish, unit, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        after = start_reassignment(assignment, original_replicas(assignment) if plan.target is None else plan.target)
        if after == assignment:
            reign.come_true(plan.wish, unit, ErrorCode.NONE)
            return
        draft.back.append(lambda: self._again(unit, plan))
        draft.after.append(lambda: reign.come_true(plan.wish, unit, ErrorCode.NONE))
        put_reassignment(reign, draft, unit, ReassignmentStep(after, None))

    def _again(self, unit: TopicPartition, plan: PlannedReassignment) -> None:
        self.plans.setdefault(unit, plan)
