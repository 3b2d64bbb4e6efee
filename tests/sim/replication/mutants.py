"""Whole nodes that break one rule each: a world in which none is caught proves nothing.

Where the rule is one of a single unit, the abstract model has a mutant of its own (`abstract/mutants.py`): its
schedules meet more in a second than this world in a minute.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from muster.coordinator.core.groups.state import PendingPositions
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, ReplicaAssignment
from muster.coordinator.replication.protocol.controller import events_and_effects, partition_state_machine
from muster.coordinator.replication.protocol.controller.controller_state import NodeRegistry
from muster.coordinator.replication.protocol.controller.controller_term import ControllerTerm, WriteDraft
from muster.coordinator.replication.protocol.controller.leader_handover import LeaderMoves
from muster.coordinator.replication.protocol.follower import LeaderFetcher
from muster.coordinator.replication.protocol.hosted_copies import CopyRemoval
from muster.coordinator.replication.protocol.leader import Leader
from muster.coordinator.runtime.leased import LeasedAnswers, LeasedDeadlines, LeasedEngine
from muster.coordinator.runtime.ports import TxnMarkerFound
from muster.coordinator.transactions import ends
from muster.coordinator.transactions.events import TransactionsLoaded
from muster.coordinator.transactions.shard import TransactionShard
from tests.sim.replication import node as simulated
from tests.sim.replication.candidate import SimulatedCandidate
from tests.sim.replication.groups.coordinator import SimGroups, WatchedShard
from tests.sim.replication.groups.log import SimTail
from tests.sim.replication.transactions.coordinator import SimTransactions
from tests.sim.replication.transactions.messages import MarkerAsk

Mutant = Callable[[], AbstractContextManager[Any]]


def instead(owner: type | ModuleType, name: str, make: Callable[[Any], Any]) -> Mutant:
    """`make` is given what is there."""
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def fires_without_lease(honest: Any) -> Any:
    return lambda self, slot: True


def acks_before_the_flush(honest: Any) -> Any:
    def appended(self: Leader, half: int, end: int) -> None:
        honest(self, half, end)
        self.halves[half].kept = end

    return appended


def tells_before_it_is_written(honest: Any) -> Any:
    def write(self: SimulatedCandidate, order: Any) -> None:
        honest(self, order)
        self._node.later(0, lambda: self.tell(events_and_effects.MultiWritten(order.sequence)))

    return write


def ignores_directories(honest: Any) -> Any:
    def standing(self: NodeRegistry, unit: Any, replicas: Any, directories: Any, **rest: Any) -> Any:
        return honest(self, unit, replicas, {}, **rest)

    return standing


def deletes_what_is_not_named(honest: Any) -> Any:
    def forgotten(self: CopyRemoval, name: str, known: bytes | None) -> None:
        honest(self, name, known)
        for place, topic_id in list(self.strays.items()):
            self._logs.delete(place, topic_id)

    return forgotten


def knows_no_former_life(honest: Any) -> Any:
    """A bounced node goes on as if it had never been away."""

    def seen(self: NodeRegistry, nodes: Any) -> Any:
        for node in nodes.values():
            if node.id in self.live and self.live[node.id].epoch < node.epoch:
                self.live[node.id], self.highest[node.id] = node, node.epoch
        return honest(self, nodes)

    return seen


def tells_at_once(honest: Any) -> Any:
    def tell(self: LeasedAnswers, slot: Any, replies: Any, notices: Any, *, wrote: bool) -> None:
        self.release(slot, replies, notices)

    return tell


def ignores_lost_power(honest: Any) -> Any:
    def standing(self: NodeRegistry, unit: Any, replicas: Any, directories: Any, **rest: Any) -> Any:
        return honest(self, unit, replicas, directories, **{**rest, "loose": False})

    return standing


def forgets_at_once(honest: Any) -> Any:
    return lambda node, image, is_loose: True


def counts_no_cost(honest: Any) -> Any:
    return lambda self, copy, to: None


def leaves_what_was_asked(honest: Any) -> Any:
    return lambda self, marker, name="": None


def elects_one_half(honest: Any) -> Any:
    def put(self: WriteDraft, unit: Any, before: Any, decided: Any, second: int) -> None:
        others = len(self.operations)
        honest(self, unit, before, decided, second)
        if before is not None and before.leader not in (NO_NODE_ID, decided.leader):
            del self.operations[others + 1 :]

    return put


def never_ends_a_step(honest: Any) -> Any:
    return lambda self, node, sequence: None


def elects_again_and_again(honest: Any) -> Any:
    """Who may have bounced before this term is elected anew with every look at a unit."""

    def looked(term: ControllerTerm, unit: Any, *rest: Any) -> Any:
        term.renewed.clear()
        return honest(term, unit, *rest)

    return looked


def finishes_at_once(honest: Any) -> Any:
    """Whoever is to go does before those that come are in sync."""

    def finished(state: Any, assignment: Any, now: Any) -> Any:
        target = tuple(each for each in assignment.replicas if each not in assignment.removing)
        decision = partition_state_machine.restrict_state(state, now._replace(minimum=1), target, "reassigned")
        return (
            None if decision is None else partition_state_machine.ReassignmentStep(ReplicaAssignment(target), decision)
        )

    return finished


def knows_no_epoch(honest: Any) -> Any:
    return lambda self, shard: 0


def forgets_what_waits(honest: Any) -> Any:
    def loaded(self: LeasedEngine, job: Any, now_ms: int) -> None:
        """A new coordinator of groups knows no positions of transactions that are open."""
        if isinstance(job.core, WatchedShard):
            job.core.state.pending = PendingPositions()
        honest(self, job, now_ms)

    return loaded


def counts_markers_at_once(honest: Any) -> Any:
    """Whoever was the leader of the group's shard has been told; what becomes of the marker is not waited for."""

    def end_positions(self: SimGroups, asked: MarkerAsk, told: Callable[[int], None]) -> None:
        honest(self, asked, lambda code: None)
        told(0)

    return end_positions


def commits_after_a_move(honest: Any) -> Any:
    """A later leader of the group's shard takes every end of a transaction for a commit."""

    def end_positions(self: SimGroups, asked: MarkerAsk, told: Callable[[int], None]) -> None:
        if self.coordinating.epoch_of(asked.place.partition) > 0:
            asked = asked._replace(marker=replace(asked.marker, commit=True))
        honest(self, asked, told)

    return end_positions


def passes_markers_over(honest: Any) -> Any:
    """A standby takes positions in, and never hears how their transactions end."""

    def more(self: SimTail, *, committed: bool) -> Any:
        found = honest(self, committed=committed)
        return None if found is None else (each for each in found if not isinstance(each, TxnMarkerFound))

    return more


def knows_no_repeated_commit(honest: Any) -> Any:
    """Whoever has lost the answer to a commit is told that there was nothing to commit."""
    refused = (ends.EndMeaning.NOT_OPEN, ends.EndMeaning.NOT_OPEN)
    return {**honest, (ends.COMMITTED, True): refused}


def hears_nobody_behind_a_load(honest: Any) -> Any:
    """Timeouts ran on while the shard had no coordinator."""

    def handle(self: TransactionShard, event: Any, step: Any) -> None:
        honest(self, event, step)
        if not isinstance(event, TransactionsLoaded):
            return
        for known in step.open_ids():
            if not known.stored.state.prepared:
                due_ms = max(known.stored.started_ms + known.stored.timeout_ms, step.now_ms)
                step.arm(("timeout", known.stored.transactional_id), due_ms)

    return handle


def gives_the_fence(honest: Any) -> Any:
    """A fenced producer may ask for the epoch that fenced it."""

    def handle(self: TransactionShard, event: Any, step: Any) -> None:
        for known in self.state.ids.values():
            if known.fencing:
                known.fencing, known.last_epoch = False, known.stored.epoch - 1
        honest(self, event, step)

    return handle


MUTANTS: Mapping[str, Mutant] = {
    "ack before the flush": instead(Leader, "appended", acks_before_the_flush),
    "directory id ignored": instead(NodeRegistry, "standing", ignores_directories),
    "bounced node not treated as dead first": instead(NodeRegistry, "seen", knows_no_former_life),
    "state told before it is written": instead(SimulatedCandidate, "_write", tells_before_it_is_written),
    "delete what the image does not name": instead(CopyRemoval, "forgotten", deletes_what_is_not_named),
    "timers run without the lease": instead(LeasedDeadlines, "may_fire", fires_without_lease),
    "answers before they are committed": instead(LeasedAnswers, "deliver_answers", tells_at_once),
    "loss of power ignored": instead(NodeRegistry, "standing", ignores_lost_power),
    "loss of power forgotten at once": instead(simulated, "is_power_loss_settled", forgets_at_once),
    "cost of an unclean election not counted": instead(LeaderFetcher, "_undo", counts_no_cost),
    "what was asked for is not taken away": instead(ControllerTerm, "remove", leaves_what_was_asked),
    "one half of a shard elected": instead(WriteDraft, "put", elects_one_half),
    "handover never ends": instead(LeaderMoves, "applied", never_ends_a_step),
    "elected anew again and again": instead(partition_state_machine, "decide_unit", elects_again_and_again),
    "data before its addition is committed": instead(SimTransactions, "together", lambda honest: True),
    "coordinator epoch 0 in markers": instead(SimTransactions, "coordinator_epoch", knows_no_epoch),
    "a new coordinator forgets what waits": instead(LeasedEngine, "loaded", forgets_what_waits),
    "positions' marker at an old leader counts": instead(SimGroups, "end_positions", counts_markers_at_once),
    "positions commit after a move": instead(SimGroups, "end_positions", commits_after_a_move),
    "a standby passes markers over": instead(SimTail, "more", passes_markers_over),
    "a repeated commit is not known again": instead(ends, "MEANING_BY_EPOCH", knows_no_repeated_commit),
    "timeout while nobody is heard": instead(TransactionShard, "_handle", hears_nobody_behind_a_load),
    "the fence is given to a client": instead(TransactionShard, "_handle", gives_the_fence),
    "moved before the others have it": instead(partition_state_machine, "finish_reassignment", finishes_at_once),
}
