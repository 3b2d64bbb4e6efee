"""Leaders as operators want them: each partition's first replica (CL-C10), and ElectLeaders (CL-A5)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.effects import AdminMarker
from muster.coordinator.replication.protocol.controller.elections import decide_state
from muster.coordinator.replication.protocol.controller.events import ElectionType, ElectLeadersRequested
from muster.coordinator.replication.protocol.controller.moves import LeaderMove, LeaderMoves
from muster.coordinator.replication.protocol.controller.reign import AdminRequest, ControllerTerm, ReviewReason
from muster.coordinator.replication.protocol.controller.units import put_decision
from muster.coordinator.replication.protocol.controller.writes import WriteDraft
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, TopicPartition, unit_of


@dataclass(slots=True)
class PreferredLeaders:
    """due_ms: when leaders are balanced next; None before the reign has begun. forced: units that an operator wants led
    whatever it costs, and who hears of it."""

    reign: ControllerTerm
    moves: LeaderMoves
    due_ms: int | None = None
    forced: dict[TopicPartition, AdminRequest] = field(default_factory=dict)

    def balance(self) -> None:
        """CL-C10, when it is time: nodes that lead too little of what they are the first replica of get it back."""
        settings, now_ms = self.reign.book.settings, self.reign.now_ms
        if not settings.auto_rebalance:
            return
        if self.due_ms is None:
            self.due_ms = now_ms + settings.imbalance_check_ms
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + settings.imbalance_check_ms
        for node, (elsewhere, count) in self._imbalances().items():
            if node in self.reign.book.nodes.live and len(elsewhere) * 100 > settings.imbalance_percent * count:
                self._return(elsewhere)

    def _imbalances(self) -> dict[int, tuple[list[TopicPartition], int]]:
        """By node: units it should lead and does not, and how many it should."""
        found: dict[int, tuple[list[TopicPartition], int]] = {}
        for unit, state in self.reign.book.states.items():
            assignment = self.reign.book.assignment(unit)
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
                self.moves.want(unit, LeaderMove(to, "preferred", self.reign.now_ms))

    def _first_of(self, unit: TopicPartition) -> int:
        """The first replica, if it may lead; NOBODY if not."""
        book = self.reign.book
        assignment, state = book.assignment(unit), book.states.get(unit)
        if assignment is None or state is None:
            return NO_NODE_ID
        to = assignment.replicas[0]
        standing = book.standing(unit, assignment, state)
        return to if to in state.isr and to in standing.live and to not in standing.leaving else NO_NODE_ID

    def ask(self, event: ElectLeadersRequested) -> None:
        wish = self.reign.wish(event.request)
        units = list(dict.fromkeys(map(unit_of, event.places)))
        wish.open.update(units)
        for unit in units:
            if (code := self._ask_one(unit, event.election, wish)) is not None:
                wish.open.discard(unit)
                wish.results[unit] = code
                if event.request is None and code is not ErrorCode.ELECTION_NOT_NEEDED:
                    self.reign.warn(f"an election of {unit} was asked for: {code.meaning}")
        if event.request is None:
            unclean = event.election is ElectionType.UNCLEAN
            self.reign.remove(AdminMarker.UNCLEAN if unclean else AdminMarker.PREFERRED)
        self.reign.maybe_answer(wish)

    def _ask_one(self, unit: TopicPartition, election: ElectionType, wish: AdminRequest) -> ErrorCode | None:
        """What is known at once; None if the unit has to wait."""
        book = self.reign.book
        assignment, state = book.assignment(unit), book.states.get(unit)
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
            self.reign.look_at((unit,), "preferred")
            return ErrorCode.NONE
        self.moves.want(unit, LeaderMove(to, "preferred", self.reign.now_ms, wish))
        return None

    def decide(self, draft: WriteDraft) -> None:
        """CL-A5: elections that an operator forces."""
        for unit, wish in list(self.forced.items()):
            if unit in draft.states or not draft.has_room(unit):
                continue
            del self.forced[unit]
            self._force(unit, wish, draft)

    def _force(self, unit: TopicPartition, wish: AdminRequest, draft: WriteDraft) -> None:
        reign = self.reign
        assignment, state = reign.book.assignment(unit), reign.book.states.get(unit)
        if assignment is None or state is None:
            reign.come_true(wish, unit, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if state.leader != NO_NODE_ID:
            reign.come_true(wish, unit, ErrorCode.ELECTION_NOT_NEEDED)
            return
        standing = reign.book.standing(unit, assignment, state)._replace(unclean=True)
        decision = decide_state(state, standing, "unclean by operator")
        if decision is None or decision.state.leader == NO_NODE_ID:
            reign.come_true(wish, unit, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
            return
        draft.after.append(lambda: reign.come_true(wish, unit, ErrorCode.NONE))
        draft.back.append(lambda: self._again(unit, wish))
        put_decision(reign, draft, unit, state, decision, ReviewReason("unclean by operator", reign.now_ms))

    def _again(self, unit: TopicPartition, wish: AdminRequest) -> None:
        self.forced.setdefault(unit, wish)
