"""A controller in office, and as much of ZooKeeper as its writes need: their checks, and what they leave.

Everything is written at once, unless a test holds writes back.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_TOPIC_ID,
    NO_VERSION,
    ClusterImage,
    ClusterNode,
    ClusterState,
    ClusterTopic,
    ImageVersion,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller import Controller
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings

SMALL = ControllerSettings(offsets_replicas=99, auto_rebalance=False)
"""No internal topics, unless a test wants them."""

DRAWN = b"drawn".ljust(16, b"-")
"""The id of a topic that has none yet."""


def node(
    node_id: int, epoch: int = 0, directory: str = "", *, unclean: bool = False, rack: str | None = None
) -> ClusterNode:
    """A registration: of epoch 100 + id and directory `d` + id, where nothing else is said."""
    return ClusterNode(node_id, epoch or 100 + node_id, directory or f"d{node_id}", unclean, (), rack)


def nodes(*ids: int) -> dict[int, ClusterNode]:
    return {each: node(each) for each in ids}


def topic(
    name: str, *replicas: tuple[int, ...], topic_id: bytes = b"", version: int = 0, **configs: str
) -> ClusterTopic:
    """A topic; settings by their names, with _ for the dot."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return ClusterTopic(
        name, topic_id or name.encode().ljust(16, b"-"), tuple(map(ReplicaAssignment, replicas)), settings, version
    )


def place(text: str) -> TopicPartition:
    """
    >>> place("t-0")
    TopicPartition(topic='t', partition=0)
    """
    name, _, number = text.rpartition("-")
    return TopicPartition(name, int(number))


class Store:
    """As much of ZooKeeper as writes need. states: by partition, with their znodes' versions. writes: all
    multis that were done."""

    def __init__(self) -> None:
        self.epoch = 1
        self.version = ev.ClusterVersion(ImageVersion(1, 0), 0)
        self.topics: dict[str, ClusterTopic] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.writes: list[ef.WriteMulti] = []

    def refusal(self, write: ef.WriteMulti) -> ev.WriteFailure | None:
        if write.epoch_version != self.epoch:
            return ev.WriteFailure.EPOCH
        wrong = [
            each
            for each in write.operations
            if isinstance(each, ef.PutPartitionState | ef.DeletePartitionState)
            and self.version_of(each.place) != each.at
        ]
        topics = [each for each in write.operations if isinstance(each, ef.PutTopicZnode)]
        wrong_topics = [each for each in topics if self.topics[each.topic.name].version != each.topic.version]
        if wrong or wrong_topics or write.cluster_version != self.version.version:
            return ev.WriteFailure.VERSION
        return None

    def version_of(self, place: TopicPartition) -> int:
        return self.states[place].partition_epoch if place in self.states else NO_EPOCH

    def perform(self, write: ef.WriteMulti) -> None:
        places = [each.place for each in write.operations if isinstance(each, ef.PutPartitionState)]
        assert len(places) == len(set(places)) <= 100
        for operation in write.operations:
            match operation:
                case ef.PutPartitionState(at=at):
                    self.states[operation.place] = as_read(operation.state, at + 1)
                case ef.DeletePartitionState():
                    del self.states[operation.place]
                case ef.PutTopicZnode(topic=topic):
                    old = self.topics[topic.name]
                    self.topics[topic.name] = ClusterTopic(
                        topic.name, topic.topic_id or DRAWN, topic.partitions, old.configs, topic.version + 1
                    )
                case ef.DeleteTopicZnode():
                    del self.topics[operation.name]
        self.version = ev.ClusterVersion(ImageVersion(write.epoch, write.sequence), self.version.version + 1)
        self.writes.append(write)


class ControllerStory(Store):
    """notes, answers (by request), others: what came of the steps. hold: writes wait in `held`."""

    def __init__(self, settings: ControllerSettings = SMALL) -> None:
        super().__init__()
        self.controller = Controller(settings)
        self.now_ms = 1_000
        self.nodes: dict[int, ClusterNode] = {}
        self.notes: list[ef.ElectionNote] = []
        self.answers: dict[int, Any] = {}
        self.others: list[ef.ControllerEffect] = []
        self.hold = False
        self.held: list[ef.WriteMulti] = []
        self.requests = 0

    # What the controller hears.

    def begin(
        self,
        *topics: ClusterTopic,
        on: Mapping[int, ClusterNode],
        image: ClusterImage | None = None,
        heard: bool = True,
        copies: Mapping[str, bytes] | None = None,
    ) -> "ControllerStory":
        """It is elected, and reads what there is; all nodes hear of that, if not said otherwise."""
        self.nodes = dict(on)
        self.topics.update({each.name: each for each in topics})
        self.say(ev.ControllerElected(9, self.epoch, self.epoch, self.version, image, copies or {}))
        self.say(ev.NodesRead(dict(self.nodes)))
        self.say(self.all_topics())
        if any(isinstance(each, ef.ReadPartitionStates) for each in self.others):
            self.say(ev.StatesRead(dict(self.states), self.version))
        return self.hear() if heard else self

    def all_topics(self) -> ev.TopicsRead:
        """As they are in ZooKeeper."""
        topics = tuple(each for each in self.topics.values() if each.topic_id)
        without = tuple(
            ev.UnidentifiedTopic(each, self.in_sync(each.name)) for each in self.topics.values() if not each.topic_id
        )
        return ev.TopicsRead(topics, complete=True, unidentified=without)

    def in_sync(self, name: str) -> frozenset[int] | None:
        found = [state for place_, state in self.states.items() if place_.topic == name]
        return frozenset(node for state in found for node in (*state.isr, *state.elr)) if found else None

    def hear(self) -> "ControllerStory":
        """All nodes that are there apply all there is, and say so."""
        for each in self.nodes:
            self.poll(each, self.controller.term.controller_state.publisher.known)
        return self

    def say(self, event: ev.ControllerEvent) -> list[ef.ControllerEffect]:
        """One event, and all that follows from its writes. The effects of all of it, in order."""
        effects = self.controller.step(event, self.now_ms)
        for effect in list(effects):
            if isinstance(effect, ef.WriteMulti):
                if self.hold:
                    self.held.append(effect)
                else:
                    effects += self.do(effect)
            elif isinstance(effect, ef.Respond):
                assert effect.request not in self.answers, "answered twice"
                self.answers[effect.request] = effect.body
            elif isinstance(effect, ef.ElectionNote):
                self.notes.append(effect)
            elif isinstance(effect, ef.WakeControllerAt) and effect.at_ms <= self.now_ms:
                effects += self.say(ev.ControllerTick())
            else:
                self.others.append(effect)
        return effects

    def request(self) -> int:
        self.requests += 1
        return self.requests

    def see(self, *, gone: tuple[int, ...] = (), **changed: ClusterNode) -> list[ef.ControllerEffect]:
        """Registrations change: `see(gone=(1,))`, `see(n2=node(2, 205))`."""
        for each in gone:
            del self.nodes[each]
        for each in changed.values():
            self.nodes[each.id] = each
        return self.say(ev.NodesRead(dict(self.nodes)))

    def see_topic(self, topic: ClusterTopic) -> list[ef.ControllerEffect]:
        self.topics[topic.name] = topic
        return self.say(ev.TopicsRead((topic,)))

    def see_without_id(self, topic: ClusterTopic) -> list[ef.ControllerEffect]:
        """As kafka-topics of an older Kafka writes it."""
        self.topics[topic.name] = replace(topic, topic_id=NO_TOPIC_ID)
        read = ev.UnidentifiedTopic(self.topics[topic.name], self.in_sync(topic.name))
        return self.say(ev.TopicsRead((), unidentified=(read,)))

    def read_topics(self) -> list[ef.ControllerEffect]:
        """All that have an id, as a watch reads them after a write."""
        return self.say(ev.TopicsRead(tuple(each for each in self.topics.values() if each.topic_id)))

    def poll(
        self,
        node_id: int,
        known: ImageVersion = NO_VERSION,
        *,
        epoch: int = 0,
        offline: tuple[ev.OfflineReplica, ...] = (),
    ) -> int:
        request = self.request()
        self.say(ev.ImagePolled(request, node_id, epoch or self.nodes[node_id].epoch, known, offline))
        return request

    def ask(self, sender: int, place_text: str, isr: tuple[int, ...], **other: Any) -> int:
        """AlterPartition, as a leader that knows all would send it; `other` changes its item."""
        place_ = place(place_text)
        state = self.states[place_]
        epochs = {each.id: each.epoch for each in self.nodes.values()} | other.pop("epochs", {})
        members = tuple(ev.IsrMember(each, epochs.get(each, 0)) for each in isr)
        sender_epoch = other.pop("sender_epoch", self.nodes[sender].epoch)
        item = ev.IsrItem(
            self.topics[place_.topic].topic_id, place_.partition, state.leader_epoch, state.partition_epoch, members
        )
        request = self.request()
        self.say(ev.AlterPartitionRequested(request, sender, sender_epoch, (item._replace(**other),)))
        return request

    def result(self, request: int) -> ef.IsrResult:
        [result] = self.answers[request].results
        assert isinstance(result, ef.IsrResult)
        return result

    def told(self, request: int) -> ClusterState:
        answer = self.answers[request]
        assert isinstance(answer, ClusterState)
        return answer

    def later(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.say(ev.ControllerTick())

    # What it writes.

    def do(self, write: ef.WriteMulti) -> list[ef.ControllerEffect]:
        """Performs a multi, or refuses it whole."""
        failure = self.refusal(write)
        if failure is not None:
            return self.say(ev.WriteFailed(write.sequence, failure))
        self.perform(write)
        return self.say(ev.MultiWritten(write.sequence))

    def release(self) -> list[ef.ControllerEffect]:
        """Performs the write that was held back, and holds the next."""
        write = self.held.pop(0)
        return self.do(write)

    # What there is.

    def state(self, text: str) -> PartitionState:
        return self.states[place(text)]

    def led(self, text: str) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Leader, leader epoch, ISR, ELR."""
        state = self.state(text)
        return state.leader, state.leader_epoch, state.isr, state.elr


def as_read(state: PartitionState, version: int) -> PartitionState:
    return PartitionState(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.elr,
        dict(state.directories),
        state.controller_epoch,
        version,
        state.unclean_epoch,
        state.cause,
    )
