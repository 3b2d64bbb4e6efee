"""CL-C12: the internal topics, made when there are enough nodes. CL-A3: topics that are deleted."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.coordinator.replication.protocol.controller.effects import AdminMarker, CreateInternalTopic
from muster.coordinator.replication.protocol.controller.events import StatesRead, TopicsRead
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm
from muster.coordinator.replication.protocol.controller.writes import WriteDraft
from muster.coordinator.replication.protocol.facts import (
    LEDGER,
    OFFSETS,
    ClusterTopic,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.replication.protocol.placement import NodeRack, place_replicas


@dataclass(slots=True)
class InternalTopicCreation:
    """made: internal topics that were written, and have not been seen yet. due: something may have to be made."""

    reign: ControllerTerm
    due: bool = False
    made: set[str] = field(default_factory=set)

    def decide(self, draft: WriteDraft) -> None:
        """The two of the groups have one assignment, whichever of them is there first: its count holds."""
        book = self.reign.book
        self.due = False
        names = (OFFSETS, LEDGER, *book.settings.internal)
        missing = [name for name in names if name not in book.topics and name not in self.made]
        if not missing or len(book.nodes.live) < book.settings.offsets_replicas:
            return
        for name in missing:
            draft.make(CreateInternalTopic(name, self._partitions(name)))
        self.made.update(missing)
        draft.back.append(lambda: self._again(missing))

    def _again(self, names: list[str]) -> None:
        self.made.difference_update(names)
        self.due = True

    def _partitions(self, name: str) -> tuple[ReplicaAssignment, ...]:
        book = self.reign.book
        twin = book.topics.get({OFFSETS: LEDGER, LEDGER: OFFSETS}.get(name, ""))
        if twin is not None:
            return tuple(ReplicaAssignment(each.replicas) for each in twin.partitions)
        count = book.settings.offsets_partitions if name in (OFFSETS, LEDGER) else 1
        nodes = (NodeRack(node.id, node.rack) for node in book.nodes.live.values())
        return tuple(map(ReplicaAssignment, place_replicas(nodes, count, book.settings.offsets_replicas)))


@dataclass(slots=True)
class TopicDeletion:
    """going: topics that are deleted, by name, until their znodes are gone. states: what of theirs is yet to go, at
    which version. there: those of `going` that are in ZooKeeper, as they were read last."""

    reign: ControllerTerm
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

    def ask(self, names: Iterable[str]) -> None:
        """The deletion stands in ZooKeeper, so it may be told; the states go next, then the topic and the marker."""
        book, reign = self.reign.book, self.reign
        for name in names:
            topic = book.topics.get(name)
            if name in self.going:
                continue
            if topic is None or topic.internal:
                reign.warn(f"topic {name} is to be deleted: " + ("it is internal" if topic else "there is none"))
                reign.remove(AdminMarker.DELETE, name)
                continue
            units = [TopicPartition(name, number) for number in range(len(topic.partitions))]
            self.going[name] = self.there[name] = topic
            self.states[name] = {unit: book.states[unit].partition_epoch for unit in units if unit in book.states}
            book.drop_topic(topic)
            for unit in units:
                book.drop_state(unit)
                reign.work.forget(unit)
            book.teller.stage_deleted(name, topic.topic_id)

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
