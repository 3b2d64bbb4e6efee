"""A controller that reigns, and as much of ZooKeeper as its writes need: their checks, and what they leave.

Everything is written at once, unless a test holds writes back.
"""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.cluster.controller import effects as ef
from muster.coordinator.cluster.controller import events as ev
from muster.coordinator.cluster.controller.machine import Controller
from muster.coordinator.cluster.controller.settings import Settings
from muster.coordinator.cluster.facts import NO_EPOCH, Assignment, Node, State, Topic, TopicPartition
from muster.coordinator.cluster.image import NOTHING, ClusterState, Image, Known

SMALL = Settings(offsets_replicas=99, auto_rebalance=False)
"""No internal topics, unless a test wants them."""


def node(node_id: int, epoch: int = 0, directory: str = "", *, unclean: bool = False, rack: str | None = None) -> Node:
    """A registration: of epoch 100 + id and directory `d` + id, where nothing else is said."""
    return Node(node_id, epoch or 100 + node_id, directory or f"d{node_id}", unclean, (), rack)


def nodes(*ids: int) -> dict[int, Node]:
    return {each: node(each) for each in ids}


def topic(name: str, *replicas: tuple[int, ...], topic_id: bytes = b"", version: int = 0, **configs: str) -> Topic:
    """A topic; settings by their names, with _ for the dot."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return Topic(name, topic_id or name.encode().ljust(16, b"-"), tuple(map(Assignment, replicas)), settings, version)


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
        self.version = ev.ClusterVersion(Known(1, 0), 0)
        self.topics: dict[str, Topic] = {}
        self.states: dict[TopicPartition, State] = {}
        self.writes: list[ef.Write] = []

    def refusal(self, write: ef.Write) -> ev.Failure | None:
        if write.epoch_version != self.epoch:
            return ev.Failure.EPOCH
        wrong = [
            each
            for each in write.operations
            if isinstance(each, ef.PutState | ef.DropState) and self.version_of(each.place) != each.at
        ]
        topics = [each for each in write.operations if isinstance(each, ef.PutTopic)]
        wrong_topics = [each for each in topics if self.topics[each.topic.name].version != each.topic.version]
        if wrong or wrong_topics or write.cluster_version != self.version.version:
            return ev.Failure.VERSION
        return None

    def version_of(self, place: TopicPartition) -> int:
        return self.states[place].partition_epoch if place in self.states else NO_EPOCH

    def perform(self, write: ef.Write) -> None:
        places = [each.place for each in write.operations if isinstance(each, ef.PutState)]
        assert len(places) == len(set(places)) <= 100
        for operation in write.operations:
            match operation:
                case ef.PutState(at=at):
                    self.states[operation.place] = as_read(operation.state, at + 1)
                case ef.DropState():
                    del self.states[operation.place]
                case ef.PutTopic(topic=topic):
                    old = self.topics[topic.name]
                    self.topics[topic.name] = Topic(
                        topic.name, topic.topic_id, topic.partitions, old.configs, topic.version + 1
                    )
                case ef.DropTopic():
                    del self.topics[operation.name]
        self.version = ev.ClusterVersion(Known(write.epoch, write.sequence), self.version.version + 1)
        self.writes.append(write)


class Reigning(Store):
    """notes, answers (by request), others: what came of the steps. hold: writes wait in `held`."""

    def __init__(self, settings: Settings = SMALL) -> None:
        super().__init__()
        self.controller = Controller(settings)
        self.now_ms = 1_000
        self.nodes: dict[int, Node] = {}
        self.notes: list[ef.Note] = []
        self.answers: dict[int, Any] = {}
        self.others: list[ef.Effect] = []
        self.hold = False
        self.held: list[ef.Write] = []
        self.requests = 0

    # What the controller hears.

    def begin(
        self, *topics: Topic, on: Mapping[int, Node], image: Image | None = None, heard: bool = True
    ) -> "Reigning":
        """It is elected, and reads what there is; all nodes hear of that, if not said otherwise."""
        self.nodes = dict(on)
        self.topics.update({each.name: each for each in topics})
        self.say(ev.Elected(9, self.epoch, self.epoch, self.version, image))
        self.say(ev.NodesSeen(dict(self.nodes)))
        self.say(ev.TopicsSeen(tuple(self.topics.values()), complete=True))
        if any(isinstance(each, ef.ReadStates) for each in self.others):
            self.say(ev.StatesRead(dict(self.states), self.version))
        return self.hear() if heard else self

    def hear(self) -> "Reigning":
        """All nodes that are there apply all there is, and say so."""
        for each in self.nodes:
            self.poll(each, self.controller.reign.book.teller.known)
        return self

    def say(self, event: ev.Event) -> list[ef.Effect]:
        """One event, and all that follows from its writes. The effects of all of it, in order."""
        effects = self.controller.step(event, self.now_ms)
        for effect in list(effects):
            if isinstance(effect, ef.Write):
                if self.hold:
                    self.held.append(effect)
                else:
                    effects += self.do(effect)
            elif isinstance(effect, ef.Answer):
                assert effect.request not in self.answers, "answered twice"
                self.answers[effect.request] = effect.body
            elif isinstance(effect, ef.Note):
                self.notes.append(effect)
            elif isinstance(effect, ef.WakeAt) and effect.at_ms <= self.now_ms:
                effects += self.say(ev.Tick())
            else:
                self.others.append(effect)
        return effects

    def request(self) -> int:
        self.requests += 1
        return self.requests

    def see(self, *, gone: tuple[int, ...] = (), **changed: Node) -> list[ef.Effect]:
        """Registrations change: `see(gone=(1,))`, `see(n2=node(2, 205))`."""
        for each in gone:
            del self.nodes[each]
        for each in changed.values():
            self.nodes[each.id] = each
        return self.say(ev.NodesSeen(dict(self.nodes)))

    def see_topic(self, topic: Topic) -> list[ef.Effect]:
        self.topics[topic.name] = topic
        return self.say(ev.TopicsSeen((topic,)))

    def poll(
        self, node_id: int, known: Known = NOTHING, *, epoch: int = 0, offline: tuple[ev.Offline, ...] = ()
    ) -> int:
        request = self.request()
        self.say(ev.Polled(request, node_id, epoch or self.nodes[node_id].epoch, known, offline))
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
        self.say(ev.AlterIsr(request, sender, sender_epoch, (item._replace(**other),)))
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
        self.say(ev.Tick())

    # What it writes.

    def do(self, write: ef.Write) -> list[ef.Effect]:
        """Performs a multi, or refuses it whole."""
        failure = self.refusal(write)
        if failure is not None:
            return self.say(ev.WriteFailed(write.sequence, failure))
        self.perform(write)
        return self.say(ev.Written(write.sequence))

    def release(self) -> list[ef.Effect]:
        """Performs the write that was held back, and holds the next."""
        write = self.held.pop(0)
        return self.do(write)

    # What there is.

    def state(self, text: str) -> State:
        return self.states[place(text)]

    def led(self, text: str) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Leader, leader epoch, ISR, ELR."""
        state = self.state(text)
        return state.leader, state.leader_epoch, state.isr, state.elr


def as_read(state: State, version: int) -> State:
    return State(
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
