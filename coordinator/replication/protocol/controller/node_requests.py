"""What nodes ask of the controller: other in-sync replicas (AlterPartition), and what is new in the cluster (polls).

AlterPartition follows KIP-497, KIP-841 and KIP-903, in the order of CL-C8. A poll is answered or parked (CL-N1); a
node that has not been admitted, or is fenced, has to register again (CL-C7, CL-C9).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterNode,
    ClusterNodeStatus,
    ClusterState,
    ImageVersion,
    NodeView,
    PartitionState,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller.controller_state import NO_LIMIT
from muster.coordinator.replication.protocol.controller.controller_term import MAX_STATES, ControllerTerm, WriteDraft
from muster.coordinator.replication.protocol.controller.elections import ReplicaStanding, next_elr, next_state
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionRequested,
    AlterPartitionResult,
    ImagePolled,
    IsrItem,
    IsrResult,
    OfflineReplica,
)
from muster.coordinator.replication.protocol.controller.metadata_publisher import ParkedPoll

# AlterPartition: the checks (CL-C8)
# ----------------------------------


def check_alter_partition(
    item: IsrItem, sender: int, state: PartitionState, now: ReplicaStanding, live: Mapping[int, ClusterNode]
) -> ErrorCode:
    """The first rule that speaks against it; NONE if none does, also where it is so already.

    live: the nodes that are, whatever the unit: a replica with a new disk is not live for the unit (CL-C3) before it
    has joined, so that cannot be asked of it here. The same set is answered as done; of the present partition epoch it
    is written anew (tasks.asks.settles). Who shuts down may not join; one that is in sync still does not keep the
    leader from asking for others, or nobody could join while a drained node waits to be let go.
    """
    if item.leader_epoch > state.leader_epoch or item.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if item.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    asked = {member.node for member in item.isr}
    if asked == set(state.isr):
        return ErrorCode.NONE
    if item.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    for member in item.isr:
        node = live.get(member.node)
        if (
            node is None
            or node.epoch != member.epoch
            or (member.node in now.replicas and member.node not in now.present)
        ):
            return ErrorCode.INELIGIBLE_REPLICA
        if member.node in now.stopping and member.node not in state.isr:
            return ErrorCode.INELIGIBLE_REPLICA
    if state.leader not in asked or sender != state.leader or not asked <= set(now.replicas):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def altered_state(item: IsrItem, state: PartitionState, now: ReplicaStanding) -> PartitionState:
    """The state with the in-sync replicas that were asked for, in order of assignment.

    CL-C6: who joins is known by the directory it registered with; who is in already keeps what it is known by.
    """
    asked = {member.node for member in item.isr}
    isr = tuple(each for each in now.replicas if each in asked)
    joining = [each for each in isr if each not in state.isr]
    return next_state(
        state,
        leader=state.leader,
        isr=isr,
        elr=next_elr(state.elr, state.isr, isr, now),
        cause=state.cause,
        epoch=now.epoch,
        elected=False,
        directories={**state.directories, **{each: now.tokens[each] for each in joining}} if joining else None,
    )


# AlterPartition: requests that wait for a write
# ----------------------------------------------

MAX_WAITING = 1_000
"""Requests; the next hears REQUEST_TIMED_OUT, and its leader asks again."""

SHARE = MAX_STATES // 2
"""Of a write: leaders that ask do not keep those who have none waiting."""


def settles_doubt(item: IsrItem, sender: int, state: PartitionState) -> bool:
    """Whether a leader that asks for what is so already does so to end a doubt. A question of its that was not answered
    may be on its way still, and be done after a later one was refused; in another partition epoch it is void."""
    return sender == state.leader and item.partition_epoch == state.partition_epoch


@dataclass(slots=True)
class PendingAlterPartition:
    request: AlterPartitionRequested
    results: list[IsrResult | None]
    open: int


@dataclass(slots=True)
class AlterPartitionQueue:
    term: ControllerTerm
    queue: deque[tuple[PendingAlterPartition, int]] = field(default_factory=deque)
    """Items to be decided, in their order."""
    waiting: dict[int, PendingAlterPartition] = field(default_factory=dict)
    """By request."""

    def enqueue_request(self, event: AlterPartitionRequested) -> None:
        if self._is_stale(event):
            self.term.answer(event.request, AlterPartitionResult(ErrorCode.STALE_BROKER_EPOCH))
        elif len(self.waiting) >= MAX_WAITING:
            self.term.answer(event.request, AlterPartitionResult(ErrorCode.REQUEST_TIMED_OUT))
        elif not event.items:
            self.term.answer(event.request, AlterPartitionResult(ErrorCode.NONE))
        else:
            ask = self.waiting[event.request] = PendingAlterPartition(
                event, [None] * len(event.items), len(event.items)
            )
            self.queue.extend((ask, index) for index in range(len(event.items)))

    def _is_stale(self, event: AlterPartitionRequested) -> bool:
        node = self.term.controller_state.nodes.live.get(event.node)
        return node is None or node.epoch != event.node_epoch

    def decide(self, draft: WriteDraft) -> None:
        later: list[tuple[PendingAlterPartition, int]] = []
        most = min(MAX_STATES, draft.size + SHARE)
        while self.queue:
            ask, index = self.queue[0]
            item = ask.request.items[index]
            unit = self.term.controller_state.unit_at(item.topic_id, item.partition)
            if unit is not None and not draft.has_room(unit, most):
                break
            self.queue.popleft()
            if ask.request.request not in self.waiting:
                continue
            if self._is_stale(ask.request):
                del self.waiting[ask.request.request]
                self.term.answer(ask.request.request, AlterPartitionResult(ErrorCode.STALE_BROKER_EPOCH))
            elif unit is None:
                self._result(ask, index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif unit in draft.states:
                later.append((ask, index))
            else:
                self._one(ask, index, item, unit, draft)
        self.queue.extendleft(reversed(later))

    def _one(
        self, ask: PendingAlterPartition, index: int, item: IsrItem, unit: TopicPartition, draft: WriteDraft
    ) -> None:
        controller_state = self.term.controller_state
        state, assignment = controller_state.states[unit], controller_state.assignment(unit)
        assert assignment is not None
        standing = controller_state.standing(unit, assignment, state)
        code = check_alter_partition(item, ask.request.node, state, standing, controller_state.nodes.live)
        if code is not ErrorCode.NONE:
            self._result(ask, index, code)
            return
        wanted = altered_state(item, state, standing)
        if set(wanted.isr) == set(state.isr) and not settles_doubt(item, ask.request.node, state):
            self._result(ask, index, ErrorCode.NONE, state)
            return
        if set(altered_state(item, state, standing._replace(lowest=NO_LIMIT)).elr) != set(wanted.elr):
            # Who leaves has all that is committed, if the leader goes by what is set; it asks again when it does.
            self._result(ask, index, ErrorCode.NOT_CONTROLLER)
            return
        draft.put(unit, state, wanted, controller_state.second.get(unit, NO_EPOCH))
        draft.back.append(lambda: self.queue.appendleft((ask, index)))
        draft.after.append(lambda: self._result(ask, index, ErrorCode.NONE, wanted))
        if assignment.adding or assignment.removing or standing.stopping:
            # Who joined may be the one whom others wait for, to go.
            draft.after.append(lambda: self.term.look_at((unit,), "reassigned"))

    def _result(
        self, ask: PendingAlterPartition, index: int, code: ErrorCode, state: PartitionState | None = None
    ) -> None:
        item = ask.request.items[index]
        ask.results[index] = IsrResult(item.topic_id, item.partition, code, state)
        ask.open -= 1
        if not ask.open and self.waiting.pop(ask.request.request, None) is not None:
            results = tuple(each for each in ask.results if each is not None)
            self.term.answer(ask.request.request, AlterPartitionResult(ErrorCode.NONE, results))

    def end(self) -> None:
        """The term is over."""
        for request in self.waiting:
            self.term.answer(request, AlterPartitionResult(ErrorCode.NOT_CONTROLLER))
        self.waiting.clear()
        self.queue.clear()


# Polls: nodes that ask what is new (CL-N1, CL-C7, CL-C9)
# -------------------------------------------------------

NOT_ADMITTED = ClusterState(ErrorCode.STALE_BROKER_EPOCH)
"""CL-C7: the registration has not been taken in: it waited as long as it said it would, and asks again."""


@dataclass(slots=True)
class ImagePolls:
    """offline: by node, what it said last of logs that it cannot use. told: up to where parked polls were looked at."""

    term: ControllerTerm
    offline: dict[int, tuple[OfflineReplica, ...]] = field(default_factory=dict)
    told: tuple[ImageVersion, int] = (ImageVersion(), 0)
    wake_ms: int | None = None
    """When the first parked poll has waited long enough, or earlier."""

    def poll(self, event: ImagePolled, ready: bool) -> int | None:
        """Answers a poll, or parks it. Returns the sequence that the node has applied, where that is of this term."""
        publisher = self.term.controller_state.publisher
        if (old := publisher.waiting.pop(event.node, None)) is not None:
            # It asks anew, for its connection broke: nobody hears this.
            self.term.answer(old.request, publisher.nothing(old.known))
        if not ready or not self.may_hear(event.node, event.node_epoch):
            if ready and self._is_over(event.node, event.node_epoch):
                self.term.answer(event.request, self._over(event.node, event.node_epoch))
            else:
                self._park(event)
            return None
        if event.offline or event.node in self.offline:
            self._offline(event)
        if event.known == publisher.known:
            self._park(event)
        else:
            self.term.answer(event.request, publisher.answer(event.known))
            if event.known.epoch != publisher.known.epoch:
                return None
        controller_state = self.term.controller_state
        controller_state.applied[event.node] = event.known.sequence
        publisher.heard = min(controller_state.applied.get(each, NO_EPOCH) for each in controller_state.nodes.live)
        return event.known.sequence

    def may_hear(self, node_id: int, node_epoch: int) -> bool:
        """CL-C7: only who has been taken in, in this life, and leads nothing by a former one."""
        if self.term.silent:
            return False
        nodes = self.term.controller_state.nodes
        node = nodes.live.get(node_id)
        return node is not None and node.epoch == node_epoch and node_id not in nodes.unsure

    def _is_over(self, node_id: int, node_epoch: int) -> bool:
        """A registration that was fenced, or is not the last one. A later one than the last has not been seen yet."""
        nodes = self.term.controller_state.nodes
        fenced = nodes.fenced.get(node_id) == node_epoch
        return fenced or node_epoch < nodes.highest.get(node_id, NO_EPOCH)

    def _over(self, node_id: int, node_epoch: int) -> ClusterState:
        gone = NodeView(node_id, node_epoch, ClusterNodeStatus.GONE)
        return ClusterState(ErrorCode.STALE_BROKER_EPOCH, self.term.controller_state.publisher.node, nodes=(gone,))

    def _park(self, event: ImagePolled) -> None:
        until_ms = self.term.now_ms + max(0, event.max_wait_ms)
        waiting = ParkedPoll(event.request, event.node_epoch, event.known, until_ms)
        self.term.controller_state.publisher.waiting[event.node] = waiting
        if self.wake_ms is None or until_ms < self.wake_ms:
            self.wake_ms = until_ms

    def _offline(self, event: ImagePolled) -> None:
        """CL-F9: logs that a node cannot use, all of them each time."""
        if event.offline == self.offline.get(event.node, ()):
            return
        controller_state = self.term.controller_state
        found = (controller_state.unit_at(each.topic_id, each.partition) for each in event.offline)
        units = frozenset(unit for unit in found if unit is not None)
        before = controller_state.nodes.offline.get(event.node, frozenset())
        if units:
            controller_state.nodes.offline[event.node] = units
        else:
            controller_state.nodes.offline.pop(event.node, None)
        self.offline[event.node] = event.offline
        self.term.look_at(sorted(units - before), f"log offline on node {event.node}")
        self.term.look_at(sorted(before - units), f"log back on node {event.node}")

    def gone(self, node_id: int) -> None:
        """A node's life is over. What its next one asks may wait here already."""
        self.offline.pop(node_id, None)
        waiting = self.term.controller_state.publisher.waiting.get(node_id)
        if waiting is not None and self._is_over(node_id, waiting.node_epoch):
            del self.term.controller_state.publisher.waiting[node_id]
            self.term.answer(waiting.request, self._over(node_id, waiting.node_epoch))

    def answer_polls(self, ready: bool) -> None:
        """Answers parked polls, where there is something new or they have waited long enough."""
        controller_state = self.term.controller_state
        now = (
            controller_state.publisher.known,
            len(controller_state.nodes.live) - len(controller_state.nodes.unsure) + (not self.term.silent),
        )
        due = self.wake_ms is not None and self.wake_ms <= self.term.now_ms
        if now == self.told and not due:
            return
        self.told = now
        for node_id, waiting in list(controller_state.publisher.waiting.items()):
            hears = ready and self.may_hear(node_id, waiting.node_epoch)
            if hears and waiting.known != controller_state.publisher.known:
                answer = controller_state.publisher.answer(waiting.known)
            elif waiting.until_ms > self.term.now_ms:
                continue
            else:
                answer = controller_state.publisher.nothing(waiting.known) if hears or not ready else NOT_ADMITTED
            del controller_state.publisher.waiting[node_id]
            self.term.answer(waiting.request, answer)
        self.wake_ms = min((each.until_ms for each in controller_state.publisher.waiting.values()), default=None)

    def end(self) -> None:
        """The term is over."""
        for waiting in self.term.controller_state.publisher.waiting.values():
            self.term.answer(waiting.request, ClusterState(ErrorCode.NOT_CONTROLLER))
        self.term.controller_state.publisher.waiting.clear()
