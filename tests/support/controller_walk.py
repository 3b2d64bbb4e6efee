"""A unit of three replicas under controllers that come and go: what is committed is kept, whatever happens.

Controller and images are the real ones; nodes, logs and ZooKeeper are as small as can be. A leader goes by its image:
it appends, those it waits for copy its log, and if they are enough it calls that committed (CL-L3). Everything else is
chance: nodes die, bounce, lose a disk, are told late; writes are done late, their answers get lost; another node is
elected while the writes of the one before are on their way.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    ClusterImage,
    ClusterNode,
    ClusterState,
    PartitionView,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects as ef
from muster.coordinator.replication.protocol.controller import events_and_effects as ev
from muster.coordinator.replication.protocol.controller.controller import Controller
from tests.support.controller_story import SMALL, Store, topic

UNIT = TopicPartition("t", 0)
IDS = (1, 2, 3, 4)
REPLICAS = (1, 2, 3)
"""At the beginning; operators have others, when they move them."""
MINIMUM = 2


class Lost(AssertionError):
    """A rule is broken; says which."""


Record = tuple[int, int]
"""Leader epoch, and a number that no other has."""


@dataclass
class Life:
    """A node's process. asked: the ISR that it asked for, as a leader, and has heard nothing final of."""

    node: ClusterNode
    image: ClusterImage = field(default_factory=ClusterImage)
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    asked: frozenset[int] = frozenset()

    @property
    def view(self) -> PartitionView | None:
        return self.image.partition(UNIT)

    @property
    def leads(self) -> int | None:
        """The epoch in which it leads, as far as it knows."""
        view = self.view
        return view.leader_epoch if view is not None and view.leader == self.node.id else None

    def learn(self) -> None:
        view = self.view
        if view is not None and view.partition_epoch > self.partition_epoch:
            self.isr, self.partition_epoch, self.asked = view.isr, view.partition_epoch, frozenset()


class Walk:
    def __init__(self, seed: int, *, machine: type[Controller] = Controller, store: type[Store] = Store) -> None:
        self.random = Random(seed)
        self.machine = machine
        self.store = store()
        self.changes_minimum = seed % 3 == 0
        """A minimum of 1 keeps one copy, and no disk may be lost then."""
        self.operators = seed % 2 == 0
        """They shut nodes down, drain them, move replicas, and ask for leaders."""
        self.now_ms = 1_000
        self.czxid = 100
        self.numbers = 0
        self.requests = 0
        self.disks = {each: (f"d{each}", list[Record]()) for each in IDS}
        self.lives: dict[int, Life] = {}
        self.registered: dict[int, ClusterNode] = {}
        self.wounded: set[int] = set()
        self.committed: list[Record] = []
        self.appender: dict[int, tuple[int, int]] = {}
        self.written: set[tuple[Any, ...]] = set()
        self.controller = machine(SMALL)
        self.pipe: list[tuple[Controller, ef.WriteMulti]] = []
        self.asks: dict[int, tuple[Life, Any]] = {}
        self.highest = (-1, -1)
        self.commits = self.crashes = self.elections = 0
        self.store.topics["t"] = topic("t", REPLICAS)
        for each in IDS:
            self.start(each)
        self.elect()

    # Nodes.

    def start(self, node_id: int) -> None:
        self.czxid += 1
        node = ClusterNode(node_id, self.czxid, self.disks[node_id][0])
        self.lives[node_id] = Life(node)
        self.registered[node_id] = node

    def stop(self, node_id: int) -> None:
        self.crashes += 1
        del self.lives[node_id]

    def lose_disk(self, node_id: int) -> None:
        if not self.changes_minimum and self.wounded <= {node_id}:
            self.wounded = {node_id}
            self.disks[node_id] = (f"{self.disks[node_id][0]}'", [])

    def any_life(self) -> Life | None:
        return self.random.choice(list(self.lives.values())) if self.lives else None

    def any_leader(self) -> Life | None:
        """One that leads, as far as it knows."""
        leaders = [life for life in self.lives.values() if life.leads is not None]
        return self.random.choice(leaders) if leaders else None

    # What happens.

    def step(self) -> None:
        self.now_ms += self.random.randint(0, 60)
        often = (self.poll, self.commit, self.deliver)
        now_and_then = (self.ask, self.see, self.expire, self.back, self.crash, self.tick)
        seldom = (self.bounce, self.elect, self.operate if self.operators else self.set_minimum)
        [act] = self.random.choices(
            [*often, *now_and_then, *seldom], weights=[60] * 3 + [15, 12, 6, 10, 3, 4] + [2] * 3
        )
        act()
        self.check()

    def crash(self) -> None:
        if (life := self.any_life()) is not None:
            self.stop(life.node.id)
            if self.random.random() < 0.3:
                self.lose_disk(life.node.id)

    def expire(self) -> None:
        for each in list(self.registered):
            if each not in self.lives:
                del self.registered[each]

    def back(self) -> None:
        for each in IDS:
            if each not in self.lives and self.random.random() < 0.5:
                self.start(each)

    def bounce(self) -> None:
        """Gone and back before anybody looks."""
        if (life := self.any_life()) is not None:
            self.stop(life.node.id)
            if self.random.random() < 0.5:
                self.lose_disk(life.node.id)
            self.start(life.node.id)

    def set_minimum(self) -> None:
        if self.changes_minimum:
            settings = {"min_insync_replicas": self.random.choice("123")}
            old = self.store.topics["t"]
            changed = topic("t", REPLICAS, version=old.version, **settings)
            self.store.topics["t"] = replace(changed, partitions=old.partitions)
            self.say(ev.TopicsRead((self.store.topics["t"],)))

    def operate(self) -> None:
        """Something that an operator asks for; who waits for it is nobody here."""
        node_id = self.random.choice(IDS)
        life = self.lives.get(node_id)
        self.requests += 1
        target = tuple(self.random.sample(IDS, 3))
        wishes: list[ev.ControllerEvent] = [
            ev.DrainedNodesRead(frozenset({node_id} if self.random.random() < 0.4 else ())),
            ev.ReassignmentRequested(self.requests, {UNIT: target}),
            ev.ReassignmentRequested(self.requests, {UNIT: None}),
            ev.ElectLeadersRequested(self.requests, (UNIT,)),
        ]
        if life is not None:
            wishes.append(ev.ShutdownRequested(self.requests, node_id, life.node.epoch))
        self.say(self.random.choice(wishes))

    def see(self) -> None:
        self.say(ev.NodesRead(dict(self.registered)))

    def tick(self) -> None:
        self.now_ms += 200
        self.say(ev.ControllerTick())

    def elect(self) -> None:
        """Another controller, with the image of a node that is there; what the last one wrote may come later."""
        self.elections += 1
        self.controller.step(ev.ControllerResigned(), self.now_ms)
        self.asks = {}
        self.controller = self.machine(SMALL)
        self.store.epoch += 1
        life = self.any_life()
        image = None if life is None else life.image
        self.say(ev.ControllerElected(9, self.store.epoch, self.store.epoch, self.store.version, image))
        self.see()
        self.say(ev.TopicsRead(tuple(self.store.topics.values()), complete=True))

    def poll(self) -> None:
        if (life := self.any_life()) is not None:
            self.requests += 1
            self.asks[self.requests] = (life, None)
            self.say(ev.ImagePolled(self.requests, life.node.id, life.node.epoch, life.image.known))

    def ask(self) -> None:
        """A leader asks for somebody who has all it has, or asks to let somebody go."""
        life = self.any_leader()
        if life is None or (view := life.view) is None:
            return
        other = self.random.choice([each for each in view.replicas if each != life.node.id])
        isr = {*life.isr, life.node.id}
        if other in isr:
            isr.discard(other)
        elif self.copies(life, other):
            isr.add(other)
            life.asked |= {other}
        else:
            return
        epochs = {each.id: each.epoch for each in life.image.nodes.values()}
        members = tuple(ev.IsrMember(each, epochs.get(each, 0)) for each in sorted(isr))
        item = ev.IsrItem(self.store.topics["t"].topic_id, 0, view.leader_epoch, life.partition_epoch, members)
        self.requests += 1
        self.asks[self.requests] = (life, other)
        self.say(ev.AlterPartitionRequested(self.requests, life.node.id, life.node.epoch, (item,)))

    def copies(self, leader: Life, node_id: int) -> bool:
        """The node copies the leader's log, if both know each other (CL-L4, CL-L6)."""
        life = self.lives.get(node_id)
        known = leader.image.nodes.get(node_id)
        if life is None or known is None or known.epoch != life.node.epoch or life.view is None:
            return False
        if life.view.leader != leader.node.id or life.view.leader_epoch != leader.leads:
            return False
        mine, theirs = self.disks[leader.node.id][1], self.disks[node_id][1]
        theirs[:] = mine
        return True

    def commit(self) -> None:
        """A leader appends; if all it waits for have it, and they are enough, it is committed."""
        life = self.any_leader()
        if life is None or (epoch := life.leads) is None:
            return
        me = (life.node.id, life.node.epoch)
        if self.appender.setdefault(epoch, me) != me:
            raise Lost(f"epoch {epoch} is led by node and registration {me} and by {self.appender[epoch]}")
        log = self.disks[life.node.id][1]
        self.numbers += 1
        log.append((epoch, self.numbers))
        configs = life.image.topics["t"].configs
        if len(life.isr) < SMALL.min_isr_of(configs):
            return
        waited_for = {*life.isr, *life.asked} - {life.node.id}
        copied = [self.copies(life, each) for each in sorted(waited_for) if self.random.random() < 0.9]
        if len(copied) == len(waited_for) and all(copied):
            if log[: len(self.committed)] != self.committed:
                raise Lost(f"node {life.node.id} leads epoch {epoch} and lacks what was committed")
            self.committed = list(log)
            self.commits += 1

    # The controller and ZooKeeper.

    def say(self, event: ev.ControllerEvent) -> None:
        for effect in self.controller.step(event, self.now_ms):
            self.perform(effect)

    def perform(self, effect: ef.ControllerEffect) -> None:
        if isinstance(effect, ef.WriteMulti):
            self.pipe.append((self.controller, effect))
        elif isinstance(effect, ef.ReadClusterVersion):
            self.say(ev.VersionRead(self.store.version))
        elif isinstance(effect, ef.ReadPartitionStates):
            self.say(ev.TopicsRead(tuple(self.store.topics.values()), complete=True))
            self.say(ev.StatesRead(dict(self.store.states), self.store.version))
        elif isinstance(effect, ef.Respond):
            self.answered(effect)

    def deliver(self) -> None:
        """The oldest write arrives, or is believed lost: then it may arrive later."""
        if not self.pipe:
            return
        controller, write = self.pipe.pop(self.random.randrange(len(self.pipe)))
        mine = controller is self.controller
        chance = self.random.random()
        if chance < 0.1 and mine:
            self.pipe.append((Controller(SMALL), write))
            self.say(ev.WriteFailed(write.sequence, ev.WriteFailure.LOST))
            return
        failure = self.store.refusal(write)
        if failure is None:
            self.store.perform(write)
            self.wrote(write)
        if not mine:
            return
        if chance < 0.2:
            failure = ev.WriteFailure.LOST
        self.say(ev.MultiWritten(write.sequence) if failure is None else ev.WriteFailed(write.sequence, failure))

    def wrote(self, write: ef.WriteMulti) -> None:
        if write.epoch != self.store.epoch:
            raise Lost(f"a write of controller epoch {write.epoch} was done in epoch {self.store.epoch}")
        state = self.store.states.get(UNIT)
        if state is None:
            return
        self.written.add((state.leader, state.leader_epoch, state.partition_epoch, state.isr, state.elr))
        replicas = self.store.topics["t"].partitions[0].replicas
        self.wounded -= {each for each in state.isr if state.directories.get(each) == self.disks[each][0]}
        self.wounded &= set(replicas)

    def answered(self, effect: ef.Respond) -> None:
        life, other = self.asks.pop(effect.request, (None, None))
        if life is None or self.lives.get(life.node.id) is not life or self.random.random() < 0.1:
            return
        if isinstance(effect.body, ClusterState):
            self.told(life, effect.body)
        elif isinstance(effect.body, ef.AlterPartitionResult) and effect.body.error is ErrorCode.NONE:
            [result] = effect.body.results
            if result.state is not None and result.state.partition_epoch > life.partition_epoch:
                life.isr, life.partition_epoch = result.state.isr, result.state.partition_epoch
                life.asked = frozenset()
            elif result.error is ErrorCode.INELIGIBLE_REPLICA:
                life.asked -= {other}

    def told(self, life: Life, body: ClusterState) -> None:
        for topic_ in body.topics:
            for view in topic_.partitions.values():
                if (view.leader, view.leader_epoch, view.partition_epoch, view.isr, view.elr) not in self.written:
                    raise Lost(f"node {life.node.id} is told of {view}, which is not written")
        life.image.apply(body)
        life.learn()
        view = life.view
        if view is not None and life.node.id not in view.replicas and len(view.isr) >= MINIMUM:
            self.disks[life.node.id][1].clear()  # CL-F11

    # What has to hold.

    def check(self) -> None:
        state = self.store.states.get(UNIT)
        if state is None:
            return
        now = (state.leader_epoch, state.partition_epoch)
        if now[0] < self.highest[0] or now[1] < self.highest[1]:
            raise Lost(f"epochs fall from {self.highest} to {now}")
        self.highest = now
        replicas = set(self.store.topics["t"].partitions[0].replicas)
        if not state.isr or set(state.isr) & set(state.elr) or not {*state.isr, *state.elr} <= replicas:
            raise Lost(f"ISR {state.isr} and ELR {state.elr}")
        if state.leader != NO_NODE_ID and state.leader not in state.isr:
            raise Lost(f"leader {state.leader} is not in the ISR {state.isr}")
        for each in (*state.isr, *state.elr):
            directory, log = self.disks[each]
            if state.directories.get(each) == directory and log[: len(self.committed)] != self.committed:
                raise Lost(f"node {each} is in sync or eligible ({state}) and lacks what was committed")

    def end(self) -> None:
        """Faults end: the unit has a leader again, that has all, and all are in sync."""
        self.say(ev.DrainedNodesRead(frozenset()))
        for each in IDS:
            if each not in self.lives:
                self.start(each)
            if self.operators:  # who shuts down is through with it
                self.stop(each)
                self.start(each)
        for _ in range(400):
            self.see()
            while self.pipe:
                controller, write = self.pipe.pop(0)
                if controller is not self.controller:
                    continue
                failure = self.store.refusal(write)
                if failure is None:
                    self.store.perform(write)
                    self.wrote(write)
                self.say(
                    ev.MultiWritten(write.sequence) if failure is None else ev.WriteFailed(write.sequence, failure)
                )
            for act in (self.poll, self.ask_to_join, self.commit, self.tick):
                act()
                self.check()
            state = self.store.states[UNIT]
            if state.leader != NO_NODE_ID and set(state.isr) == set(self.store.topics["t"].partitions[0].replicas):
                return
        raise Lost(f"nothing is wrong any more, and the state is {state}")

    def ask_to_join(self) -> None:
        leader = next((life for life in self.lives.values() if life.leads is not None), None)
        if leader is not None and leader.view is not None and len(leader.isr) < len(leader.view.replicas):
            self.ask()


def walk(seed: int, steps: int = 400, **parts: Any) -> Walk:
    found = Walk(seed, **parts)
    for _ in range(steps):
        found.step()
    found.end()
    return found
