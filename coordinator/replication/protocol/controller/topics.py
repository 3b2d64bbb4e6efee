"""Topics and states as they are read from ZooKeeper."""

from dataclasses import dataclass
from dataclasses import replace as with_

from muster.coordinator.replication.protocol.controller.creation import InternalTopicCreation, TopicDeletion
from muster.coordinator.replication.protocol.controller.events import StatesRead, TopicsRead
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm, PublishTopicSettings
from muster.coordinator.replication.protocol.facts import (
    LEDGER,
    NO_EPOCH,
    OFFSETS,
    ClusterTopic,
    PartitionState,
    TopicPartition,
    halves_of,
)


@dataclass(slots=True)
class TopicTracking:
    reign: ControllerTerm
    creation: InternalTopicCreation
    deletion: TopicDeletion

    def seen(self, event: TopicsRead) -> None:
        """Takes topics as they are. What was read before a write of ours, or before a deletion, says nothing new."""
        book = self.reign.book
        self.creation.due = True
        self.deletion.seen(event)
        for topic in event.topics:
            self.creation.made.discard(topic.name)
            going = self.deletion.going.get(topic.name)
            if (going is None or going.topic_id != topic.topic_id) and topic.topic_id not in book.teller.deleted:
                self._one(topic)
        gone = list(event.gone)
        if event.complete:
            there = {topic.name for topic in event.topics}
            gone += [name for name in book.topics if name not in there]
            self.creation.made.clear()
        for name in gone:
            self._gone(name)

    def _one(self, topic: ClusterTopic) -> None:
        book = self.reign.book
        old = book.topics.get(topic.name)
        if old is not None and old.topic_id != topic.topic_id:
            self._gone(old.name)
            old = None
        if old is not None and topic.version < old.version:
            topic = with_(old, configs=topic.configs)
        if old == topic:
            return
        book.add_topic(topic)
        self._partitions(old, topic)
        if old is None:
            book.teller.stage_topic(topic.name, topic.topic_id, topic.configs)
        elif old.configs != topic.configs:
            self._configs(old, topic)

    def _partitions(self, old: ClusterTopic | None, topic: ClusterTopic) -> None:
        """Looks at partitions that are new, or have other replicas; tells of the latter."""
        before = () if old is None else old.partitions
        book = self.reign.book
        for unit in book.units_of(topic):
            if unit.partition >= len(before) or before[unit.partition] != topic.partitions[unit.partition]:
                self.reign.look_at((unit,), "")
                if unit in book.states:
                    book.stage(unit)

    def _configs(self, old: ClusterTopic, topic: ClusterTopic) -> None:
        """Settings that change. Another minimum empties the ELR, where enough are in sync by it (CL-C5), before anybody
        may go by it; and until all have heard of it, eligible replicas are counted by the lower of the two."""
        book = self.reign.book
        settings = book.settings
        before, after = settings.min_isr_of(old.configs), settings.min_isr_of(topic.configs)
        units = list(book.units_of(topic)) if topic.name != LEDGER else []
        if before != after and units:
            lowest = min(before, after, book.lowest.get(topic.name, (before, None))[0])
            book.lowest[topic.name] = (lowest, None)
        self.reign.look_at(units, "")
        self.reign.work.mark(PublishTopicSettings(topic.name), self.reign.now_ms)

    def tell(self, name: str) -> None:
        """The units are as the settings want it: all may know these."""
        book = self.reign.book
        topic = book.topics.get(name)
        if topic is not None:
            book.teller.stage_topic(name, topic.topic_id, topic.configs)
            if name in book.lowest:
                book.lowest[name] = (book.lowest[name][0], book.teller.known.sequence + 1)

    def heard(self) -> None:
        """Minima that all nodes go by now need no care any more."""
        book = self.reign.book
        applied = min((book.applied.get(node, NO_EPOCH) for node in book.nodes.live), default=NO_EPOCH)
        if book.fresh is not None and book.fresh <= applied:
            book.fresh = None
        for name, (_, sequence) in list(book.lowest.items()):
            if sequence is not None and sequence <= applied:
                del book.lowest[name]

    def _gone(self, name: str) -> None:
        """A topic that is not there any more, though nobody asked for its deletion."""
        book = self.reign.book
        if (topic := book.topics.get(name)) is None:
            return
        self.reign.warn(f"topic {name} is gone from ZooKeeper; nobody deletes its records")
        for number in range(len(topic.partitions)):
            unit = TopicPartition(name, number)
            book.drop_state(unit)
            self.reign.work.forget(unit)
        book.drop_topic(topic)
        book.teller.stage_gone(name)

    def read(self, event: StatesRead) -> None:
        """All states, as ZooKeeper has them: what this node believed counts no more."""
        book = self.reign.book
        self.deletion.read(event)
        book.broken = frozenset(event.broken)
        for place in event.broken:
            self.reign.warn(f"the state of {place} cannot be read: nothing is decided for it")
        before = dict(book.states)
        found: dict[TopicPartition, None] = {}  # in order: the same events make the same decisions in the same order
        for topic in book.topics.values():
            if topic.name == LEDGER:
                continue
            for number in range(len(topic.partitions)):
                unit = TopicPartition(topic.name, number)
                found[unit] = None
                self._state(unit, event)
        for unit in [unit for unit in book.states if unit not in found]:
            book.drop_state(unit)
        for unit in found:
            if unit in book.states and before.get(unit) != book.states[unit]:
                book.stage(unit)
        self.reign.look_at(found, "")
        self.reign.work.marks_last()

    def _state(self, unit: TopicPartition, event: StatesRead) -> None:
        book = self.reign.book
        state = event.states.get(unit)
        if unit.topic == OFFSETS:
            other = event.states.get(halves_of(unit)[1])
            book.second[unit] = NO_EPOCH if other is None else other.partition_epoch
            if state is not None and (other is None or not halves_agree(state, other)):
                self.reign.warn(f"the halves of shard {unit.partition} differ: {state} and {other}; the first counts")
                self.reign.work.mend.add(unit)
        if state is None:
            book.drop_state(unit)
            if unit.topic == OFFSETS and other is not None:
                book.second[unit] = other.partition_epoch
        else:
            book.put_state(unit, state)


def halves_agree(one: PartitionState, other: PartitionState) -> bool:
    """Whether the halves of a shard agree: in all but the versions of their znodes."""
    return with_(other, partition_epoch=one.partition_epoch) == one
