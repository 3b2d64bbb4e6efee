"""Topics that appear, change and are deleted in ZooKeeper, and internal topics that the controller creates.

Internal topics are created once there are enough nodes (CL-C12). A deletion is published first, then states, topic
and marker are removed (CL-A3). Changed settings are published only when no ELR contradicts them (CL-C5). Topics whose
znode lacks its id get it back (CL-A11).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_
from functools import partial

from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    NO_EPOCH,
    NO_TOPIC_ID,
    OFFSETS,
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    explain_missing_id,
    halves_of,
)
from muster.coordinator.replication.protocol.controller.controller_term import (
    ControllerTerm,
    PublishTopicSettings,
    WriteDraft,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AdminMarker,
    ControllerElected,
    CreateInternalTopic,
    StatesRead,
    TopicsRead,
    UnidentifiedTopic,
)
from muster.coordinator.replication.protocol.replica_placement import NodeRack, place_replicas

# Topics whose znode lacks its id (CL-A11)
# ----------------------------------------


@dataclass(slots=True)
class TopicIdentification:
    """elected: how the term began. pending: by name, topics whose znode is to be written with its id, NO_TOPIC_ID where
    it is new. unknown: topics that had logs, by an id that this node does not know."""

    term: ControllerTerm
    elected: ControllerElected | None
    pending: dict[str, ClusterTopic] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def identify_topics(self, event: TopicsRead, going: Mapping[str, ClusterTopic]) -> TopicsRead:
        """What was read, with those among the topics whose id is known. going: topics that are being deleted."""
        unidentified = {each.topic.name for each in event.unidentified}
        read = {topic.name for topic in event.topics} | set(event.gone)
        for name in (self.pending.keys() | self.unknown) - unidentified if event.complete else read:
            self.pending.pop(name, None)
            self.unknown.discard(name)
        found = [self._identify(each, going.get(each.topic.name)) for each in event.unidentified]
        return event._replace(topics=(*event.topics, *(topic for topic in found if topic is not None)))

    def _identify(self, read: UnidentifiedTopic, going: ClusterTopic | None) -> ClusterTopic | None:
        """The topic with its id; None where it gets a new one, or nobody knows it."""
        topic = read.topic
        if going is not None:  # made anew before the old one is gone, it has to wait
            return with_(topic, topic_id=going.topic_id) if topic.version > going.version else None
        here = self.term.controller_state.topics.get(topic.name)
        topic = with_(topic, topic_id=self._known_id(read))
        if here is not None and here.topic_id == topic.topic_id:
            topic = with_(topic, partitions=keep_moves(here.partitions, topic.partitions))
        if topic.topic_id == NO_TOPIC_ID and read.in_sync is not None:
            if topic.name not in self.unknown:
                self.unknown.add(topic.name)
                self.term.warn(explain_missing_id(topic))
            return None
        self.unknown.discard(topic.name)
        if here is None or topic.topic_id != here.topic_id or topic.version >= here.version:
            self.pending[topic.name] = topic
        return topic if topic.topic_id else None

    def _known_id(self, read: UnidentifiedTopic) -> bytes:
        name, in_sync = read.topic.name, read.in_sync
        here = self.term.controller_state.topics.get(name)
        if here is not None and (in_sync is not None or read.topic.version > here.version):
            return here.topic_id
        if in_sync is None or self.elected is None:
            return NO_TOPIC_ID  # a log by an id of another topic of that name is none of this one
        if self.elected.image is not None and (told := self.elected.image.topics.get(name)) is not None:
            return told.topic_id
        # A node that is not in sync may have slept through a deletion, and have a log of a former topic.
        return self.elected.copies.get(name, NO_TOPIC_ID) if self.elected.node in in_sync else NO_TOPIC_ID

    def decide(self, draft: WriteDraft) -> None:
        for name, topic in list(self.pending.items()):
            if not draft.has_room(TopicPartition(name, 0), topics=(topic,)):
                return
            del self.pending[name]
            draft.identify(topic)
            draft.back.append(partial(self._again, topic))

    def _again(self, topic: ClusterTopic) -> None:
        self.pending.setdefault(topic.name, topic)

    def waits(self, name: str) -> bool:
        """Whether there is such a topic, of which nothing can be decided yet."""
        return name in self.unknown or name in self.pending


def keep_moves(before: Sequence[ReplicaAssignment], read: Sequence[ReplicaAssignment]) -> tuple[ReplicaAssignment, ...]:
    """The assignments that were read: replicas that come or go, which tools of Kafka before 2.4 leave out, are as they
    were where the replicas are the same.

    >>> keep_moves([ReplicaAssignment((1, 2), adding=(2,))], [ReplicaAssignment((1, 2)), ReplicaAssignment((3,))])
    ... # doctest: +NORMALIZE_WHITESPACE
    (ReplicaAssignment(replicas=(1, 2), adding=(2,), removing=()),
     ReplicaAssignment(replicas=(3,), adding=(), removing=()))
    """
    kept = [old if old.replicas == new.replicas else new for old, new in zip(before, read, strict=False)]
    return (*kept, *read[len(kept) :])


# Internal topics, and topics that are deleted (CL-C12, CL-A3)
# ------------------------------------------------------------


@dataclass(slots=True)
class InternalTopicCreation:
    """made: internal topics that were written, and have not been seen yet. due: something may have to be made."""

    term: ControllerTerm
    identification: TopicIdentification
    due: bool = False
    made: set[str] = field(default_factory=set)

    def decide(self, draft: WriteDraft) -> None:
        """The two of the groups have one assignment, whichever of them is there first: its count holds."""
        controller_state = self.term.controller_state
        self.due = False
        names = (OFFSETS, LEDGER, *controller_state.settings.internal)
        missing = [
            name
            for name in names
            if name not in controller_state.topics and name not in self.made and not self.identification.waits(name)
        ]
        if not missing or len(controller_state.nodes.live) < controller_state.settings.offsets_replicas:
            return
        for name in missing:
            draft.make(CreateInternalTopic(name, self._partitions(name)))
        self.made.update(missing)
        draft.back.append(lambda: self._again(missing))

    def _again(self, names: list[str]) -> None:
        self.made.difference_update(names)
        self.due = True

    def _partitions(self, name: str) -> tuple[ReplicaAssignment, ...]:
        controller_state = self.term.controller_state
        twin = controller_state.topics.get({OFFSETS: LEDGER, LEDGER: OFFSETS}.get(name, ""))
        if twin is not None:
            return tuple(ReplicaAssignment(each.replicas) for each in twin.partitions)
        count = controller_state.settings.offsets_partitions if name in (OFFSETS, LEDGER) else 1
        nodes = (NodeRack(node.id, node.rack) for node in controller_state.nodes.live.values())
        return tuple(map(ReplicaAssignment, place_replicas(nodes, count, controller_state.settings.offsets_replicas)))


@dataclass(slots=True)
class TopicDeletion:
    """going: topics that are deleted, by name, until their znodes are gone. states: what of theirs is yet to go, at
    which version. there: those of `going` that are in ZooKeeper, as they were read last."""

    term: ControllerTerm
    identification: TopicIdentification
    going: dict[str, ClusterTopic] = field(default_factory=dict)
    states: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    there: dict[str, ClusterTopic] = field(default_factory=dict)

    def seen(self, event: TopicsRead) -> None:
        """Topics as they are, before `read`."""
        found = {topic.name: topic for topic in event.topics}
        if event.complete:
            self.there.clear()
        for name, topic in self.going.items():
            if name in found and found[name].topic_id == topic.topic_id:
                self.there[name] = found[name]

    def read(self, event: StatesRead) -> None:
        """All states as they are: what was written meanwhile has given them, and their topics, other versions. What is
        not there is done."""
        for name in list(self.states):
            topic = self.there.get(name)
            if topic is None:
                del self.states[name]
                self.going.pop(name, None)
                continue
            self.going[name] = topic
            units = (TopicPartition(name, number) for number in range(len(topic.partitions)))
            self.states[name] = {unit: event.states[unit].partition_epoch for unit in units if unit in event.states}

    def delete_topics(self, names: Iterable[str]) -> None:
        """The deletion stands in ZooKeeper, so it may be told; the states go next, then the topic and the marker."""
        controller_state, term = self.term.controller_state, self.term
        for name in names:
            topic = controller_state.topics.get(name)
            if name in self.going or (topic is None and self.identification.waits(name)):
                continue
            if topic is None or topic.internal:
                term.warn(f"topic {name} is to be deleted: " + ("it is internal" if topic else "there is none"))
                term.remove(AdminMarker.DELETE, name)
                continue
            units = [TopicPartition(name, number) for number in range(len(topic.partitions))]
            self.going[name] = self.there[name] = topic
            self.states[name] = {
                unit: controller_state.states[unit].partition_epoch for unit in units if unit in controller_state.states
            }
            controller_state.drop_topic(topic)
            for unit in units:
                controller_state.drop_state(unit)
                term.work.forget(unit)
            controller_state.publisher.stage_deleted(name, topic.topic_id)

    def decide(self, draft: WriteDraft) -> None:
        for name, states in list(self.states.items()):
            for unit, at in list(states.items()):
                if not draft.has_room(unit):
                    return
                self._drop(draft, name, unit, at)
            self._drop_topic(draft, name)

    def _drop(self, draft: WriteDraft, name: str, unit: TopicPartition, at: int) -> None:
        del self.states[name][unit]
        draft.drop(unit, at)
        draft.back.append(lambda: self.states.setdefault(name, {}).__setitem__(unit, at))

    def _drop_topic(self, draft: WriteDraft, name: str) -> None:
        """With the last states, or after them."""
        topic = self.going[name]
        del self.states[name]
        draft.drop_topic(topic)
        draft.after.append(lambda: self._gone(name))
        draft.back.append(lambda: self._again(name))

    def _gone(self, name: str) -> None:
        self.going.pop(name, None)

    def _again(self, name: str) -> None:
        self.states.setdefault(name, {})


# Topics and states as read from ZooKeeper
# ----------------------------------------


@dataclass(slots=True)
class TopicTracking:
    term: ControllerTerm
    identification: TopicIdentification
    creation: InternalTopicCreation
    deletion: TopicDeletion

    def seen(self, event: TopicsRead) -> None:
        """Takes topics as they are. What was read before a write of ours, or before a deletion, says nothing new."""
        controller_state = self.term.controller_state
        self.creation.due = True
        event = self.identification.identify_topics(event, self.deletion.going)
        self.deletion.seen(event)
        for topic in event.topics:
            self.creation.made.discard(topic.name)
            going = self.deletion.going.get(topic.name)
            if (
                going is None or going.topic_id != topic.topic_id
            ) and topic.topic_id not in controller_state.publisher.deleted:
                self._one(topic)
        gone = list(event.gone)
        if event.complete:
            there = {topic.name for topic in (*event.topics, *(each.topic for each in event.unidentified))}
            gone += [name for name in controller_state.topics if name not in there]
            self.creation.made.clear()
        for name in gone:
            self._gone(name)

    def _one(self, topic: ClusterTopic) -> None:
        controller_state = self.term.controller_state
        old = controller_state.topics.get(topic.name)
        if old is not None and old.topic_id != topic.topic_id:
            self._gone(old.name)
            old = None
        if old is not None and topic.version < old.version:
            topic = with_(old, configs=topic.configs)
        if old == topic:
            return
        controller_state.add_topic(topic)
        self._partitions(old, topic)
        if old is None:
            controller_state.publisher.stage_topic(topic.name, topic.topic_id, topic.configs)
        elif old.configs != topic.configs:
            self._configs(old, topic)

    def _partitions(self, old: ClusterTopic | None, topic: ClusterTopic) -> None:
        """Looks at partitions that are new, or have other replicas; tells of the latter."""
        before = () if old is None else old.partitions
        controller_state = self.term.controller_state
        for unit in controller_state.units_of(topic):
            if unit.partition >= len(before) or before[unit.partition] != topic.partitions[unit.partition]:
                self.term.look_at((unit,), "")
                if unit in controller_state.states:
                    controller_state.stage(unit)

    def _configs(self, old: ClusterTopic, topic: ClusterTopic) -> None:
        """Settings that change. Another minimum empties the ELR, where enough are in sync by it (CL-C5), before anybody
        may go by it; and until all have heard of it, eligible replicas are counted by the lower of the two."""
        controller_state = self.term.controller_state
        settings = controller_state.settings
        before, after = settings.min_isr_of(old.configs), settings.min_isr_of(topic.configs)
        units = list(controller_state.units_of(topic)) if topic.name != LEDGER else []
        if before != after and units:
            lowest = min(before, after, controller_state.lowest.get(topic.name, (before, None))[0])
            controller_state.lowest[topic.name] = (lowest, None)
        self.term.look_at(units, "")
        self.term.work.mark(PublishTopicSettings(topic.name), self.term.now_ms)

    def publish_topic(self, name: str) -> None:
        """The units are as the settings want it: all may know these."""
        controller_state = self.term.controller_state
        topic = controller_state.topics.get(name)
        if topic is not None:
            controller_state.publisher.stage_topic(name, topic.topic_id, topic.configs)
            if name in controller_state.lowest:
                controller_state.lowest[name] = (
                    controller_state.lowest[name][0],
                    controller_state.publisher.known.sequence + 1,
                )

    def heard(self) -> None:
        """Minima that all nodes go by now need no care any more."""
        controller_state = self.term.controller_state
        applied = min(
            (controller_state.applied.get(node, NO_EPOCH) for node in controller_state.nodes.live), default=NO_EPOCH
        )
        if controller_state.fresh is not None and controller_state.fresh <= applied:
            controller_state.fresh = None
        for name, (_, sequence) in list(controller_state.lowest.items()):
            if sequence is not None and sequence <= applied:
                del controller_state.lowest[name]

    def _gone(self, name: str) -> None:
        """A topic that is not there any more, though nobody asked for its deletion."""
        controller_state = self.term.controller_state
        if (topic := controller_state.topics.get(name)) is None:
            return
        self.term.warn(f"topic {name} is gone from ZooKeeper; nobody deletes its records")
        for number in range(len(topic.partitions)):
            unit = TopicPartition(name, number)
            controller_state.drop_state(unit)
            self.term.work.forget(unit)
        controller_state.drop_topic(topic)
        controller_state.publisher.stage_gone(name)

    def read(self, event: StatesRead) -> None:
        """All states, as ZooKeeper has them: what this node believed counts no more."""
        controller_state = self.term.controller_state
        self.deletion.read(event)
        controller_state.broken = frozenset(event.broken)
        for place in event.broken:
            self.term.warn(f"the state of {place} cannot be read: nothing is decided for it")
        before = dict(controller_state.states)
        found: dict[TopicPartition, None] = {}  # in order: the same events make the same decisions in the same order
        for topic in controller_state.topics.values():
            if topic.name == LEDGER:
                continue
            for number in range(len(topic.partitions)):
                unit = TopicPartition(topic.name, number)
                found[unit] = None
                self._state(unit, event)
        for unit in [unit for unit in controller_state.states if unit not in found]:
            controller_state.drop_state(unit)
        for unit in found:
            if unit in controller_state.states and before.get(unit) != controller_state.states[unit]:
                controller_state.stage(unit)
        self.term.look_at(found, "")
        self.term.work.marks_last()

    def _state(self, unit: TopicPartition, event: StatesRead) -> None:
        controller_state = self.term.controller_state
        state = event.states.get(unit)
        if unit.topic == OFFSETS:
            other = event.states.get(halves_of(unit)[1])
            controller_state.second[unit] = NO_EPOCH if other is None else other.partition_epoch
            if state is not None and (other is None or not halves_agree(state, other)):
                self.term.warn(f"the halves of shard {unit.partition} differ: {state} and {other}; the first counts")
                self.term.work.mend.add(unit)
        if state is None:
            controller_state.drop_state(unit)
            if unit.topic == OFFSETS and other is not None:
                controller_state.second[unit] = other.partition_epoch
        else:
            controller_state.put_state(unit, state)


def halves_agree(one: PartitionState, other: PartitionState) -> bool:
    """Whether the halves of a shard agree: in all but the versions of their znodes."""
    return with_(other, partition_epoch=one.partition_epoch) == one
