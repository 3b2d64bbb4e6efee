"""One term of a controller: what its parts share, how a write is composed and takes effect, and how the term begins.

`ControllerTerm` has the state, the units that wait to be looked at, and the effects of the present step. A
`WriteDraft` becomes one multi (CL-Z5): at most 100 states and 640 KB; it is published only once it is written, and
undone if it fails. A new controller whose own image has the last write does not read the states from ZooKeeper
(CL-Z7).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    COORDINATED,
    NO_EPOCH,
    OFFSETS,
    ClusterImage,
    ClusterState,
    ClusterTopic,
    PartitionState,
    PartitionView,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
    unit_of,
)
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller_state import ControllerState, state_of_view
from muster.coordinator.replication.protocol.controller.elections import StateDecision
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AdminMarker,
    AdminResult,
    AlterPartitionResult,
    ControllerEffect,
    ControllerElected,
    CreateInternalTopic,
    DeletePartitionState,
    DeleteTopicZnode,
    ElectionKind,
    ElectionNote,
    PutPartitionState,
    PutTopicZnode,
    RemoveMarker,
    RequestId,
    Respond,
    ResponseBody,
    ShutdownResult,
    WarnOperator,
    WriteMulti,
    WriteOperation,
)

# Multis: what goes into one, and what is undone when it fails (CL-Z5, CL-Z6)
# ---------------------------------------------------------------------------

MAX_STATES = 100
"""CL-Z5: in one multi. Measured: 20 make it three times as slow for a state, 500 hardly faster."""

MAX_WRITE_BYTES = 640 << 10
"""In one multi. ZooKeeper takes no more than a megabyte (`jute.maxbuffer`) from anybody, and that at once."""


def state_size(place: TopicPartition, state: PartitionState) -> int:
    """At most so many bytes go for a state's znode, with those above it that may have to be made."""
    names = sum([len(text) + 18 for text in state.directories.values()])
    return 450 + 3 * len(place.topic) + 12 * (len(state.isr) + len(state.elr)) + names + 4 * len(state.cause)


def topic_size(topic: ClusterTopic) -> int:
    """At most so many for a topic's, without its settings."""
    total = 250 + len(topic.name)
    for number, each in enumerate(topic.partitions):
        for ids in (each.replicas, each.adding, each.removing):
            if ids:
                total += len(str(number)) + 6 + sum(len(str(node)) + 1 for node in ids)
    return total


@dataclass(slots=True)
class DraftElection:
    """An election in a write, for the ledger."""

    before: int
    clean: ElectionKind
    since_ms: int
    decided_ms: int


@dataclass(slots=True)
class WriteDraft:
    """A write in the making, and then under way. Nothing of it is known to anybody before `Written`.

    after: what is done when it is written; back: what is done when it is not. Both are called without arguments, in
    their order.
    """

    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    versions: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the other halves of shards, as they will be."""
    elections: dict[TopicPartition, DraftElection] = field(default_factory=dict)
    topics: dict[str, ClusterTopic] = field(default_factory=dict)
    assigned: set[TopicPartition] = field(default_factory=set)
    """Partitions that get another assignment."""
    operations: list[WriteOperation] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    back: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    """Znodes of states in it."""
    bytes: int = 0
    """Of all that it writes, at most."""
    sequence: int = NO_EPOCH
    lost: bool = False
    """Its answer was."""

    def has_room(self, unit: TopicPartition, share: int = MAX_STATES, topics: Iterable[ClusterTopic] = ()) -> bool:
        """Whether a unit fits, with the znodes of topics that change by it: a shard is two states, and is never split.
        What is too large beside anything fits by itself."""
        if self.size + len(halves_of(unit)) > share:
            return False
        if self.bytes < MAX_WRITE_BYTES and not topics:
            return True
        more = sum(topic_size(topic) for topic in topics if topic.name not in self.topics)
        return self.bytes + more <= MAX_WRITE_BYTES or self.is_empty

    def put(self, unit: TopicPartition, before: PartitionState | None, decided: PartitionState, second: int) -> None:
        """A unit's state. second: the version of the other half's znode, for a shard."""
        self.states[unit] = decided
        for place in halves_of(unit):
            at = second if place != unit else NO_EPOCH if before is None else before.partition_epoch
            self.operations.append(PutPartitionState(place, decided, at))
            self.size += 1
            self.bytes += state_size(place, decided)
            if place != unit:
                self.versions[unit] = at + 1

    def elect(self, unit: TopicPartition, before: int, decision: StateDecision, since_ms: int, now_ms: int) -> None:
        if decision.clean is not None and decision.state.leader != before:
            self.elections[unit] = DraftElection(before, decision.clean, since_ms, now_ms)

    def drop(self, unit: TopicPartition, at: int) -> None:
        self.operations.append(DeletePartitionState(unit, at))
        self.size += 1
        self.bytes += 300 + 3 * len(unit.topic)

    def assign(self, topic: ClusterTopic, number: int, assignment: ReplicaAssignment) -> None:
        """Another assignment for a partition; one operation for all of a topic's."""
        if topic.name not in self.topics:
            self.bytes += topic_size(topic)
        # Who comes and goes is more than who was there.
        self.bytes += 24 + 12 * (len(assignment.replicas) + len(assignment.adding) + len(assignment.removing))
        self.assigned.add(TopicPartition(topic.name, number))
        topic = self.topics.get(topic.name, topic)
        partitions = (*topic.partitions[:number], assignment, *topic.partitions[number + 1 :])
        self.topics[topic.name] = ClusterTopic(topic.name, topic.topic_id, partitions, topic.configs, topic.version)

    def identify(self, topic: ClusterTopic) -> None:
        """The znode of a topic that lacked its id, with it; one that is assigned anew by the same write has it so."""
        if topic.name not in self.topics:
            self.bytes += topic_size(topic)
            self.topics[topic.name] = topic

    def make(self, topic: CreateInternalTopic) -> None:
        self.operations.append(topic)

    def drop_topic(self, topic: ClusterTopic) -> None:
        self.operations.append(DeleteTopicZnode(topic.name, topic.version))

    @property
    def is_empty(self) -> bool:
        return not self.operations and not self.topics

    def write(self, epoch: int, epoch_version: int, sequence: int, cluster_version: int) -> WriteMulti:
        self.sequence = sequence
        operations = (*map(PutTopicZnode, self.topics.values()), *self.operations)
        return WriteMulti(epoch, epoch_version, sequence, cluster_version, operations)


# The term: state, units to look at, effects of a step
# ----------------------------------------------------


class ReviewReason(NamedTuple):
    """Why a unit is looked at, and since when it waits."""

    cause: str
    since_ms: int


class AdmitNode(NamedTuple):
    """When all that stands before it has been written: a node's former life is dead, and it returns (CL-C7)."""

    node: int
    epoch: int


class ConfirmNode(NamedTuple):
    """When all that stands before it has been written: what a node leads has been elected in this term."""

    node: int


class PublishTopicSettings(NamedTuple):
    """When all that stands before it has been written: a topic's settings may be told (CL-C5)."""

    name: str


class StartPublishing(NamedTuple):
    """When all that stands before it has been written: nodes may be told."""


ReviewMark = StartPublishing | AdmitNode | ConfirmNode | PublishTopicSettings
ReviewItem = TopicPartition | ReviewMark


@dataclass(slots=True)
class ReviewQueue:
    """Units to look at, each once: shards first. A mark stands behind the units that it waits for."""

    shards: dict[TopicPartition, ReviewReason] = field(default_factory=dict)
    rest: dict[ReviewItem, ReviewReason] = field(default_factory=dict)
    mend: set[TopicPartition] = field(default_factory=set)
    """Shards whose halves differ in ZooKeeper."""

    def add(self, unit: TopicPartition, reason: ReviewReason) -> None:
        """A unit that waits already keeps its reason, and its place."""
        if unit.topic in COORDINATED:
            self.shards.setdefault(unit, reason)
        else:
            self.rest.setdefault(unit, reason)

    def mark(self, mark: ReviewMark, now_ms: int) -> None:
        """Behind all that waits now; one that stands further before goes to the end."""
        self.rest.pop(mark, None)
        self.rest[mark] = ReviewReason("", now_ms)

    def marks_last(self) -> None:
        """Units that were decided wait again, and each may be one that a mark waits for."""
        for mark in [item for item in self.rest if not isinstance(item, TopicPartition)]:
            self.rest[mark] = self.rest.pop(mark)

    def done(self, unit: TopicPartition) -> None:
        (self.shards if unit.topic in COORDINATED else self.rest).pop(unit, None)

    def forget(self, unit: TopicPartition) -> None:
        self.done(unit)
        self.mend.discard(unit)

    @property
    def is_empty(self) -> bool:
        return not self.shards and not self.rest


@dataclass(slots=True)
class AdminRequest:
    """What an operator asked, and what has come of it so far: answered when nothing is open any more."""

    request: RequestId | None
    open: set[TopicPartition] = field(default_factory=set)
    results: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(slots=True)
class ControllerTerm:
    controller_state: ControllerState
    work: ReviewQueue = field(default_factory=ReviewQueue)
    out: list[ControllerEffect] = field(default_factory=list)
    now_ms: int = 0
    silent: bool = False
    """Nobody is told anything yet."""
    renewed: set[TopicPartition] = field(default_factory=set)
    """Units whose leader, of which nobody is sure (`Nodes.unsure`), has been elected anew: once is enough."""
    wishes: list[AdminRequest] = field(default_factory=list)
    """Those that somebody waits for."""

    def wish(self, request: RequestId | None) -> AdminRequest:
        """What an operator asks; who asked hears of it when all of it has come true, or cannot."""
        wish = AdminRequest(request)
        if request is not None:
            self.wishes.append(wish)
        return wish

    def answer(self, request: RequestId, body: ResponseBody) -> None:
        self.out.append(Respond(request, body))

    def warn(self, text: str) -> None:
        self.out.append(WarnOperator(text))

    def remove(self, marker: AdminMarker, name: str = "") -> None:
        self.out.append(RemoveMarker(marker, name))

    def look_at(self, units: Iterable[TopicPartition], cause: str) -> None:
        """These may have to change: they are looked at with the next write."""
        reason = ReviewReason(cause, self.now_ms)
        for unit in units:
            self.work.add(unit, reason)

    def come_true(self, wish: AdminRequest, unit: TopicPartition, code: ErrorCode) -> None:
        """What came of a wish for one unit."""
        wish.open.discard(unit)
        wish.results[unit] = code
        self.maybe_answer(wish)

    def maybe_answer(self, wish: AdminRequest) -> None:
        if not wish.open and wish.request is not None:
            self.answer(wish.request, AdminResult(ErrorCode.NONE, wish.results))
            self.wishes = [other for other in self.wishes if other is not wish]
            wish.request = None


# What a successful write makes true
# ----------------------------------

NOT_CONTROLLER: dict[type, ResponseBody] = {
    ev.ImagePolled: ClusterState(ErrorCode.NOT_CONTROLLER),
    ev.AlterPartitionRequested: AlterPartitionResult(ErrorCode.NOT_CONTROLLER),
    ev.ShutdownRequested: ShutdownResult(ErrorCode.NOT_CONTROLLER),
    ev.ElectLeadersRequested: AdminResult(ErrorCode.NOT_CONTROLLER),
    ev.ReassignmentRequested: AdminResult(ErrorCode.NOT_CONTROLLER),
}
"""By request."""


def apply_written(term: ControllerTerm, draft: WriteDraft) -> None:
    """The write is in ZooKeeper: the book says so, all may be told (CL-C1), and those who waited for it hear."""
    controller_state = term.controller_state
    for topic in draft.topics.values():
        _assigned(term, topic)
    for unit, state in draft.states.items():
        if controller_state.assignment(unit) is None:
            continue
        if unit in draft.versions:
            controller_state.second[unit] = draft.versions[unit]
        controller_state.put_state(unit, state)
        controller_state.stage(unit)
    controller_state.publisher.publish(draft.sequence)
    _note(term, draft)
    for act in draft.after:
        act()


def _note(term: ControllerTerm, draft: WriteDraft) -> None:
    for unit, elected in draft.elections.items():
        state = draft.states[unit]
        term.out.append(
            ElectionNote(
                unit=unit,
                epoch=state.leader_epoch,
                before=elected.before,
                after=state.leader,
                clean=elected.clean,
                cause=state.cause,
                isr=state.isr,
                elr=state.elr,
                decided_ms=elected.decided_ms,
                took_ms=term.now_ms - elected.since_ms,
            )
        )


def _assigned(term: ControllerTerm, written: ClusterTopic) -> None:
    """A topic's znode has what was put there, one version up. Settings are not in it: they stay what they are."""
    controller_state = term.controller_state
    here = controller_state.topics.get(written.name)
    if here is None or here.topic_id != written.topic_id or here.version > written.version:
        return
    topic = ClusterTopic(written.name, written.topic_id, written.partitions, here.configs, written.version + 1)
    controller_state.add_topic(topic)
    for number, (before, after) in enumerate(zip(here.partitions, topic.partitions, strict=True)):
        unit = unit_of(TopicPartition(written.name, number))
        if before != after and unit in controller_state.states:
            controller_state.stage(unit)


# How a term begins (CL-Z7)
# -------------------------


def is_image_complete(event: ControllerElected) -> bool:
    """CL-Z7: whether this node's image has the last write, and so the versions of all states. An image may be further
    than the last write, by nodes that came and went; directories have to be known, or it is not all."""
    image = event.image
    if image is None or image.known.epoch != event.version.known.epoch:
        return False
    if image.known.epoch == NO_EPOCH or image.known.sequence < event.version.known.sequence:
        return False
    return all(view.directories is not None for _, view in image.partitions())


def keep_deleted_topics(term: ControllerTerm, image: ClusterImage) -> None:
    """What ZooKeeper does not tell: topics that were deleted."""
    term.controller_state.publisher.deleted.update(image.deleted)


def must_withhold_settings(term: ControllerTerm) -> bool:
    """Whether settings may be told only when all has been looked at: there are eligible replicas that these settings
    allow no more, and who hears of them commits without those (CL-C5)."""
    controller_state = term.controller_state
    for unit, state in controller_state.states.items():
        assignment = controller_state.assignment(unit)
        if state.elr and assignment is not None:
            minimum = controller_state.standing(unit, assignment, state).minimum
            if len(state.isr) >= minimum:
                return True
    return False


def adopt_states(term: ControllerTerm, image: ClusterImage) -> None:
    """CL-Z7: the states as this node was told them, instead of reading all."""
    for place, told in image.partitions():
        if unit_of(place) == place and term.controller_state.assignment(place) is not None:
            _adopt_state(term, place, told, image)


def _adopt_state(term: ControllerTerm, unit: TopicPartition, told: PartitionView, image: ClusterImage) -> None:
    controller_state = term.controller_state
    controller_state.put_state(unit, state_of_view(told, image.known.epoch))
    if unit.topic == OFFSETS and (other := image.partition(halves_of(unit)[1])) is not None:
        controller_state.second[unit] = other.partition_epoch
