"""CL-A6: leaders that go to another node while the one there lives, a few at a time.

For whoever stops, is drained, is asked to, or for the preferred leader's sake. The units of one node go in steps; the
next is taken when the new leaders have applied the one before (CL-N3).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.elections import ReplicaStanding, hand_over_leader
from muster.coordinator.replication.protocol.controller.reign import AdminRequest, ControllerTerm
from muster.coordinator.replication.protocol.controller.writes import WriteDraft
from muster.coordinator.replication.protocol.facts import NO_EPOCH, NO_NODE_ID, PartitionState, TopicPartition

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

    reign: ControllerTerm
    wanted: dict[int, dict[TopicPartition, LeaderMove]] = field(default_factory=dict)
    flying: Counter[int] = field(default_factory=Counter)
    ahead: dict[int, dict[int, int]] = field(default_factory=dict)

    def want(self, unit: TopicPartition, move: LeaderMove) -> None:
        leader = self.reign.book.leader(unit)
        if leader != NO_NODE_ID:
            old = self.wanted.setdefault(leader, {}).pop(unit, None)
            if old is not None:
                self._tell(unit, old, ErrorCode.NONE)
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
            self._tell(unit, move, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)

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
        book = self.reign.book
        assignment, state = book.assignment(unit), book.states.get(unit)
        if assignment is None or state is None or state.leader != node:
            self._tell(unit, move, ErrorCode.NONE if state is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return False
        standing = book.standing(unit, assignment, state)
        to = move.to if move.to != NO_NODE_ID else next_leader(state, standing)
        decision = hand_over_leader(state, to, standing, move.cause)
        if decision is None:
            self._tell(unit, move, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            return False
        draft.put(unit, state, decision.state, book.second.get(unit, NO_EPOCH))
        draft.elect(unit, state.leader, decision, move.since_ms, self.reign.now_ms)
        draft.after.append(lambda: self._written(node, to, unit, move, draft))
        draft.back.append(lambda: self._again(node, unit, move))
        self.flying[node] += 1
        return True

    def _again(self, node: int, unit: TopicPartition, move: LeaderMove) -> None:
        self.flying[node] -= 1
        self.want(unit, move)

    def _written(self, node: int, to: int, unit: TopicPartition, move: LeaderMove, draft: WriteDraft) -> None:
        self.flying[node] -= 1
        if to in self.reign.book.nodes.live:
            self.ahead.setdefault(node, {})[to] = draft.sequence
        self._tell(unit, move, ErrorCode.NONE)

    def _tell(self, unit: TopicPartition, move: LeaderMove, code: ErrorCode) -> None:
        if move.wish is not None:
            self.reign.come_true(move.wish, unit, code)


def next_leader(state: PartitionState, now: ReplicaStanding) -> int:
    """The first in order of assignment that may take over; NOBODY if none may."""
    may = (each for each in now.live if each in state.isr and each != state.leader and each not in now.leaving)
    return next(may, NO_NODE_ID)
