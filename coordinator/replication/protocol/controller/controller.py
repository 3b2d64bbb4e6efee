"""The controller as a pure machine: an event in, its effects out (CL-C1, CL-Z5 to CL-Z7).

`Controller.step(event, now_ms)` is all of it. One write is in flight at a time. What arrives meanwhile is taken in
and decided with the next write; nothing is published before it is written. Units to look at wait as a set, and each
is decided by what is known then, so that no order of events can leave one behind.
"""

from collections.abc import Callable
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, ImageVersion
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings, ControllerState
from muster.coordinator.replication.protocol.controller.controller_term import (
    NOT_CONTROLLER,
    AdmitNode,
    ConfirmNode,
    ControllerTerm,
    PublishTopicSettings,
    ReviewMark,
    StartPublishing,
    WriteDraft,
    adopt_states,
    apply_written,
    is_image_complete,
    keep_deleted_topics,
    must_withhold_settings,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AdminResult,
    AlterPartitionRequested,
    ConnectionBroken,
    ConnectionsRefused,
    ControllerEffect,
    ControllerElected,
    ControllerEvent,
    ControllerResigned,
    ControllerTick,
    DrainedNodesRead,
    ElectLeadersRequested,
    ImagePolled,
    MultiWritten,
    NodesRead,
    ProbeNode,
    ReadClusterVersion,
    ReadPartitionStates,
    ReassignmentRequested,
    ResignController,
    ShutdownRequested,
    ShutdownResult,
    StatesRead,
    TopicDeletionsRead,
    TopicsRead,
    VersionRead,
    WakeControllerAt,
    WriteFailed,
    WriteFailure,
)
from muster.coordinator.replication.protocol.controller.leader_handover import (
    ControlledShutdowns,
    LeaderMoves,
    PreferredLeaders,
)
from muster.coordinator.replication.protocol.controller.node_requests import AlterPartitionQueue, ImagePolls
from muster.coordinator.replication.protocol.controller.partition_state_machine import ReassignmentQueue, ReviewPass
from muster.coordinator.replication.protocol.controller.topic_lifecycle import (
    InternalTopicCreation,
    TopicDeletion,
    TopicIdentification,
    TopicTracking,
)

MAX_DEFERRED = 1_000
"""Requests of operators that wait for the term to have read all; the next is refused."""

REFUSALS = 3
WITHIN_MS = 300
"""CL-C9: so many refused connections within that time."""


class Controller:
    """The controller of a cluster, while this node is it. Between terms it answers NOT_CONTROLLER (41)."""

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.wake_ms: int | None = None
        self._begin_term(None)

    def _begin_term(self, elected: ControllerElected | None) -> None:
        """A term, of which nothing is known yet; or none."""
        self.elected = elected
        controller_state = ControllerState(self.settings, epoch=NO_EPOCH if elected is None else elected.epoch)
        self.term = ControllerTerm(controller_state)
        self.polls = ImagePolls(self.term)
        self.asks = AlterPartitionQueue(self.term)
        self.moves = LeaderMoves(self.term)
        self.preferred = PreferredLeaders(self.term, self.moves)
        self.shutdowns = ControlledShutdowns(self.term, self.moves)
        self.reassigning = ReassignmentQueue(self.term)
        self.identification = TopicIdentification(self.term, elected)
        self.creation = InternalTopicCreation(self.term, self.identification)
        self.deletion = TopicDeletion(self.term, self.identification)
        self.topics = TopicTracking(self.term, self.identification, self.creation, self.deletion)
        self.flight: WriteDraft | None = None
        self.fence = False
        """A write whose answer was lost may be done yet: the next one says no to it, and decides nothing."""
        self.used = NO_EPOCH
        """The last sequence."""
        self.reading = False
        self.read_states = False
        """States were read, and not taken from what this node knew."""
        self.ready = False
        """Nodes, topics and states have all been read."""
        self.first_nodes: NodesRead | None = None
        self.have_topics = False
        self.have_states = False
        self.later: list[ControllerEvent] = []
        self.cluster_version = NO_EPOCH if elected is None else elected.version.version
        self.probing: set[int] = set()

    def step(self, event: ControllerEvent, now_ms: int) -> list[ControllerEffect]:
        """What follows from an event at this moment (milliseconds of a monotonic clock). Never raises for what comes
        from outside: what cannot be applied is named in a `WarnOperator`, and skipped (CL-C13)."""
        self.term.now_ms = now_ms
        out: list[ControllerEffect] = []
        self.term.out = out
        handler = HANDLERS[type(event)]
        if isinstance(event, ControllerElected) or self.elected is not None:
            handler(self, event)
            self._advance_term()
            # The term may be another by now, and what the old one said last is said first.
            out += [] if self.term.out is out else self.term.out
        else:
            self._not_controller(event)
        return out

    def _not_controller(self, event: ControllerEvent) -> None:
        match event:
            case (
                ImagePolled()
                | AlterPartitionRequested()
                | ShutdownRequested()
                | ElectLeadersRequested()
                | ReassignmentRequested()
            ):
                if event.request is not None:  # an operator's may come from ZooKeeper: nobody waits for its answer
                    self.term.answer(event.request, NOT_CONTROLLER[type(event)])

    # What is heard.

    def on_elected(self, event: ControllerElected) -> None:
        out = self.term.out
        self._end()
        now_ms = self.term.now_ms
        self._begin_term(event)
        self.term.now_ms, self.term.out = now_ms, out
        publisher = self.term.controller_state.publisher
        publisher.node, publisher.known = event.node, ImageVersion(event.epoch, event.version.known.sequence)
        self.have_states = is_image_complete(event)
        if not self.have_states:
            self._read_states()

    def _read_states(self) -> None:
        self.reading = self.read_states = True
        self.term.out.append(ReadPartitionStates())

    def on_nodes(self, event: NodesRead) -> None:
        if not self.ready:
            self.first_nodes = event
            self._maybe_ready()
            return
        term, controller_state = self.term, self.term.controller_state
        self.creation.due = True
        seen = controller_state.nodes.seen(event.nodes)
        for node_id, cause in seen.gone.items():
            self._dead(node_id, cause)
        for node in seen.coming:
            term.look_at(controller_state.holds.get(node.id, ()), f"node {node.id} registered anew")
            term.work.mark(AdmitNode(node.id, node.epoch), term.now_ms)

    def _dead(self, node_id: int, cause: str) -> None:
        """A node's life is over."""
        term, controller_state = self.term, self.term.controller_state
        term.look_at(controller_state.holds.get(node_id, ()), cause)
        controller_state.publisher.stage_node(controller_state.nodes.view(node_id))
        controller_state.applied.pop(node_id, None)
        self.moves.gone(node_id)
        self.shutdowns.gone(node_id)
        self.polls.gone(node_id)
        self.probing.discard(node_id)

    def on_topics(self, event: TopicsRead) -> None:
        self.topics.seen(event)
        self.have_topics = self.have_topics or event.complete
        self._maybe_ready()

    def on_states(self, event: StatesRead) -> None:
        if not self.reading:
            return
        self.reading = False
        self.have_states = True
        self.cluster_version = event.version.version
        # Not told as known before the states are: whoever is elected next takes an image of that sequence for whole.
        self.used = max(self.used, event.version.known.sequence)
        self.topics.read(event)
        self._maybe_ready()

    def _maybe_ready(self) -> None:
        """All there is to know has been read: the term begins."""
        if self.ready or self.first_nodes is None or not self.have_topics or not self.have_states:
            return
        self.ready = True
        assert self.elected is not None
        term, controller_state, image = self.term, self.term.controller_state, self.elected.image
        controller_state.nodes.load_registrations(self.first_nodes.nodes, image)
        self.creation.due = True
        if image is not None:
            keep_deleted_topics(term, image)
            if not self.read_states:
                adopt_states(term, image)
        for node_id in controller_state.nodes.live.keys() - controller_state.nodes.unsure.keys():
            controller_state.publisher.stage_node(controller_state.nodes.view(node_id))
        for topic in controller_state.topics.values():
            controller_state.publisher.stage_topic(topic.name, topic.topic_id, topic.configs)
            term.look_at(controller_state.units_of(topic), "")
        for unit in controller_state.states:
            controller_state.stage(unit)
        self.shutdowns.move_drained()
        term.silent = must_withhold_settings(term)
        if term.silent:
            term.work.mark(StartPublishing(), term.now_ms)
        for node_id in controller_state.nodes.unsure:
            term.work.mark(ConfirmNode(node_id), term.now_ms)
        controller_state.publisher.publish(self._next_sequence())
        controller_state.fresh = self.used
        later, self.later = self.later, []
        for event in later:
            HANDLERS[type(event)](self, event)

    def on_request(
        self,
        event: AlterPartitionRequested
        | ShutdownRequested
        | ElectLeadersRequested
        | ReassignmentRequested
        | TopicDeletionsRead,
    ) -> None:
        """What somebody asks for: at once, or when all has been read."""
        if self.ready:
            self._dispatch_request(event)
        elif len(self.later) < MAX_DEFERRED:
            self.later.append(event)
        else:
            self._not_controller(event)

    def _dispatch_request(
        self,
        event: AlterPartitionRequested
        | ShutdownRequested
        | ElectLeadersRequested
        | ReassignmentRequested
        | TopicDeletionsRead,
    ) -> None:
        if isinstance(event, AlterPartitionRequested):
            self.asks.enqueue_request(event)
        elif isinstance(event, ShutdownRequested):
            self.shutdowns.begin_shutdown(event)
        elif isinstance(event, ElectLeadersRequested):
            self.preferred.elect_leaders(event)
        elif isinstance(event, ReassignmentRequested):
            self.reassigning.enqueue_reassignments(event.request, event.wanted)
        else:
            self.deletion.delete_topics(event.names)

    def on_poll(self, event: ImagePolled) -> None:
        sequence = self.polls.poll(event, self.ready)
        if sequence is not None:
            self.moves.applied(event.node, sequence)
            if self.term.controller_state.lowest or self.term.controller_state.fresh is not None:
                self.topics.heard()

    def on_broken(self, event: ConnectionBroken) -> None:
        """CL-C9: somebody's connection to a node broke: is there still a process?"""
        node = self.term.controller_state.nodes.live.get(event.node)
        if self.settings.eviction and node is not None and event.node not in self.probing:
            self.probing.add(event.node)
            self.term.out.append(ProbeNode(event.node, node.epoch))

    def on_refused(self, event: ConnectionsRefused) -> None:
        """CL-C9: refused so often, so shortly after another, that it is not one that restarts its door: it is dead."""
        self.probing.discard(event.node)
        nodes = self.term.controller_state.nodes
        node = nodes.live.get(event.node)
        times = sorted(event.times_ms)
        sure = any(late - early <= WITHIN_MS for early, late in zip(times, times[REFUSALS - 1 :], strict=False))
        if self.settings.eviction and node is not None and node.epoch == event.node_epoch and sure:
            nodes.fence(event.node)
            self._dead(event.node, f"node {event.node} evicted")

    def on_tick(self, event: ControllerTick) -> None:
        if self.wake_ms is not None and self.wake_ms <= self.term.now_ms:
            self.wake_ms = None

    def on_resigned(self, event: ControllerResigned) -> None:
        self._end()
        self._begin_term(None)

    # What becomes of a write.

    def on_written(self, event: MultiWritten) -> None:
        if self.flight is not None and self.flight.sequence == event.sequence:
            self._done(self.flight)

    def on_failed(self, event: WriteFailed) -> None:
        if self.flight is None or self.flight.sequence != event.sequence:
            return
        if event.failure is WriteFailure.LOST:
            self.flight.lost = True
            self.term.out.append(ReadClusterVersion())
            return
        if event.failure is WriteFailure.EPOCH:
            self._resign()
            return
        self._undo(self.flight)
        self._read_states()

    def on_version(self, event: VersionRead) -> None:
        """CL-Z6: what became of a write whose answer was lost."""
        if self.flight is None or not self.flight.lost:
            return
        known = event.version.known
        if known.epoch > self.term.controller_state.epoch:
            self._resign()
        elif known == ImageVersion(self.term.controller_state.epoch, self.flight.sequence):
            self._done(self.flight)
        else:
            self._undo(self.flight)
            self.fence = True

    def _done(self, draft: WriteDraft) -> None:
        """It is in ZooKeeper: now it is so, and may be told."""
        self.flight, self.fence = None, False
        self.cluster_version += 1
        apply_written(self.term, draft)
        self.shutdowns.written(draft.states)

    def _undo(self, draft: WriteDraft) -> None:
        """It is not, or nobody knows: what was decided is decided again."""
        self.flight = None
        for act in reversed(draft.back):
            act()
        self.term.work.marks_last()

    def _resign(self) -> None:
        self._end()
        out = self.term.out
        self._begin_term(None)
        self.term.out = out
        out.append(ResignController())

    def _end(self) -> None:
        """Whoever waits hears that this node is not the controller."""
        if self.elected is None:
            return
        self.polls.end()
        self.asks.end()
        for node_id in list(self.shutdowns.waiting):
            request = self.shutdowns.waiting.pop(node_id).request
            self.term.answer(request, ShutdownResult(ErrorCode.NOT_CONTROLLER))
        for wish in self.term.wishes:
            if wish.request is not None:
                self.term.answer(wish.request, AdminResult(ErrorCode.NOT_CONTROLLER))
                wish.request = None
        for event in self.later:
            self._not_controller(event)

    # What follows.

    def _advance_term(self) -> None:
        if not self.ready:
            self.polls.answer_polls(self.ready)
            self._sleep()
            return
        self.preferred.balance()
        if self.flight is None and not self.reading:
            self._decide()
            publisher = self.term.controller_state.publisher
            if self.flight is None and publisher.has_news:
                publisher.publish(self._next_sequence())
        self.polls.answer_polls(self.ready)
        self.shutdowns.answer_shutdowns()
        self._sleep()

    def _decide(self) -> None:
        """Fills the next write, and sends it. A mark that is reached is passed, and may bring more to decide."""
        if not self.fence and not self._has_work():
            return
        draft = WriteDraft()
        if not self.fence:
            self.identification.decide(draft)
            work = ReviewPass(self.term, draft)
            work.shards()
            self.moves.decide(draft)
            self.asks.decide(draft)
            self.preferred.decide(draft)
            self.reassigning.decide(draft)
            self.deletion.decide(draft)
            while (mark := work.rest()) is not None:
                self._pass(mark)
            self.creation.decide(draft)
        if draft.is_empty and not self.fence:
            return
        assert self.elected is not None
        controller_state = self.term.controller_state
        sequence = self._next_sequence()
        self.flight = draft
        write = draft.write(controller_state.epoch, self.elected.epoch_version, sequence, self.cluster_version)
        self.term.out.append(write)

    def _next_sequence(self) -> int:
        """None is used twice: who finds that of a write whose answer was lost has to know that it was that one."""
        self.used = max(self.used, self.term.controller_state.publisher.known.sequence) + 1
        return self.used

    def _has_work(self) -> bool:
        return bool(
            not self.term.work.is_empty
            or self.asks.queue
            or self.moves.ready
            or self.preferred.forced
            or self.reassigning.plans
            or self.identification.pending
            or self.deletion.states
            or self.creation.due
        )

    def _pass(self, mark: ReviewMark) -> None:
        term, controller_state = self.term, self.term.controller_state
        if isinstance(mark, PublishTopicSettings):
            self.topics.publish_topic(mark.name)
        elif isinstance(mark, StartPublishing):
            term.silent = False
        elif isinstance(mark, ConfirmNode):
            # Told of as live only now: whoever is elected next takes a node that it has been told of for sure.
            controller_state.nodes.unsure.pop(mark.node, None)
            controller_state.publisher.stage_node(controller_state.nodes.view(mark.node))
        elif (
            mark.node in controller_state.nodes.coming and controller_state.nodes.coming[mark.node].epoch == mark.epoch
        ):
            why = controller_state.nodes.why_back(controller_state.nodes.coming[mark.node], "returned")
            controller_state.nodes.take_in(mark.node)
            self.creation.due = True
            controller_state.publisher.stage_node(controller_state.nodes.view(mark.node))
            term.look_at(controller_state.holds.get(mark.node, ()), why)

    def _sleep(self) -> None:
        """Asks to be woken when the next of those who wait has waited long enough."""
        wanted = [self.polls.wake_ms, self.shutdowns.wake_ms, self.preferred.due_ms]
        if self.ready and self.flight is None and not self.reading and not self.term.work.is_empty:
            wanted.append(self.term.now_ms)
        at_ms = min((each for each in wanted if each is not None), default=None)
        if at_ms is not None and (self.wake_ms is None or at_ms < self.wake_ms):
            self.wake_ms = at_ms
            self.term.out.append(WakeControllerAt(at_ms))


HANDLERS: dict[type, Callable[[Controller, Any], None]] = {
    ControllerElected: Controller.on_elected,
    NodesRead: Controller.on_nodes,
    TopicsRead: Controller.on_topics,
    StatesRead: Controller.on_states,
    AlterPartitionRequested: Controller.on_request,
    ImagePolled: Controller.on_poll,
    ShutdownRequested: Controller.on_request,
    DrainedNodesRead: lambda controller, event: controller.shutdowns.drain(event.nodes),
    ElectLeadersRequested: Controller.on_request,
    ReassignmentRequested: Controller.on_request,
    TopicDeletionsRead: Controller.on_request,
    ConnectionBroken: Controller.on_broken,
    ConnectionsRefused: Controller.on_refused,
    MultiWritten: Controller.on_written,
    WriteFailed: Controller.on_failed,
    VersionRead: Controller.on_version,
    ControllerTick: Controller.on_tick,
    ControllerResigned: Controller.on_resigned,
}
