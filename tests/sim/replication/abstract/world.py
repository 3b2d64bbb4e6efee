"""Schedules: which step comes next is drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID
from tests.sim.replication.abstract.checkers import Check, Violation
from tests.sim.replication.abstract.controller import Controller, Registration, Rules
from tests.sim.replication.abstract.node import MIN_ISR, SESSION_MS, Machines, Node

CONTROLLER = 0
REPLICAS = (1, 2, 3)
STEPS = 2_500


@dataclass(slots=True)
class Message:
    sender: int
    to: int
    life: int
    """Of whom it is for: a reply reaches the life that asked, or nobody. A request reaches whoever listens."""
    body: tuple[Any, ...]


@dataclass(slots=True)
class Figures:
    steps: int = 0
    crashes: int = 0
    lost_disks: int = 0
    freezes: int = 0
    cuts: int = 0
    lost_messages: int = 0
    handovers: int = 0
    acknowledged: int = 0
    epochs: int = 0
    answering_steps: int = 0
    violation: str = ""

    def add(self, other: "Figures") -> None:
        for name in self.__slots__:
            if name != "violation":
                setattr(self, name, getattr(self, name) + getattr(other, name))


FAULTS = {
    "kill": 2,
    "power": 1.5,
    "bounce": 1.5,
    "disk": 1,
    "freeze": 2,
    "cut": 4,
    "lose": 10,
    "hand_over": 2,
    "drain": 1,
}
"""What befalls the nodes, in a thousand steps of the worst schedules."""

MENDING = {"thaw": 5, "start": 8, "heal": 6, "undrain": 3}


class World:
    def __init__(self, seed: int, machines: Machines, rules: Rules) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.min_isr = MIN_ISR
        self.values = 0
        self.czxid = 100
        self.messages: list[Message] = []
        self.cut: set[frozenset[int]] = set()
        self.figures = Figures()
        share = self.random.choice((0.1, 0.3, 1.0))
        self.chances = {name: chance * share for name, chance in FAULTS.items()} | MENDING
        self.check = Check(self)
        self.nodes = {
            node: Node(node, self, machines, 1 + self.random.uniform(-0.01, 0.01), REPLICAS) for node in REPLICAS
        }
        self.registered: dict[int, Registration] = {}
        self.seen_ms = dict.fromkeys(REPLICAS, 0)
        for node in self.nodes.values():
            self.register(node)
        self.controller = Controller(self.registered, REPLICAS, MIN_ISR, rules)

    @property
    def disks_gone_now(self) -> int:
        return sum(not self._has_its_disk(node) for node in REPLICAS)

    def _has_its_disk(self, node: int) -> bool:
        return self.nodes[node].directory == self.controller.state.directories[node]

    def next_value(self) -> int:
        self.values += 1
        return self.values

    def register(self, node: Node) -> None:
        """CL-Z3: a stale registration is replaced by its own directory's next life, and by no other."""
        at = self.registered.get(node.id)
        if at is not None and (at.directory != node.directory or at.epoch == node.node_epoch):
            return
        self.czxid += 1
        node.node_epoch = self.czxid
        self.registered[node.id] = Registration(self.czxid, node.directory)
        self.seen_ms[node.id] = self.now_ms

    def send(self, sender: int, to: int, body: tuple[Any, ...]) -> None:
        life = self.nodes[to].life if to != CONTROLLER else 0
        self.messages.append(Message(sender, to, life, body))

    # One step.

    def run(self, steps: int = STEPS) -> Figures:
        try:
            for number in range(steps):
                self.figures.steps += 1
                self.step()
                self.check.step()
                if number % 100 == 0:
                    self.check.logs()
            self.end()
        except Violation as violation:
            self.figures.violation = str(violation)
        self.figures.acknowledged = len(self.check.acked)
        self.figures.epochs = self.controller.state.leader_epoch
        return self.figures

    def step(self) -> None:
        random = self.random
        self.now_ms += random.randrange(20) if random.random() < 0.97 else random.randrange(1_000)
        self._sessions()
        draw = random.random() * 1_000
        for name, chance in self.chances.items():
            draw -= chance
            if draw < 0:
                getattr(self, f"do_{name}")()
                return
        if self.messages and random.random() < 0.6:
            self.deliver(random.randrange(len(self.messages)))
        elif random.random() < 0.1:
            self.controller.look()
        else:
            node = self.nodes[random.choice(REPLICAS)]
            if node.alive and not node.frozen:
                self.act(node, random.choices(ACTIONS, cum_weights=CHANCES)[0])
        self.figures.answering_steps += any(node.answers() for node in self.nodes.values())

    def act(self, node: Node, action: str) -> None:
        if action == "poll":
            self.send(node.id, CONTROLLER, ("poll", node.id, node.life, node.node_epoch))
        elif action == "register":
            if self.registered.get(node.id) is None or self.registered[node.id].epoch != node.node_epoch:
                self.register(node)
        else:
            getattr(node, action)()
        node.release()

    def _sessions(self) -> None:
        """ZooKeeper ends the sessions of those it has not heard of."""
        for node in self.nodes.values():
            at = self.registered.get(node.id)
            if at is None:
                continue
            if node.alive and not node.frozen and not self.is_cut(node.id, CONTROLLER) and at.epoch == node.node_epoch:
                self.seen_ms[node.id] = self.now_ms
            elif self.now_ms - self.seen_ms[node.id] > SESSION_MS:
                del self.registered[node.id]

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self.cut

    def deliver(self, place: int) -> None:
        message = self.messages[place]
        if self.is_cut(message.sender, message.to):
            return
        if message.to == CONTROLLER:
            self.messages.pop(place)
            self._ask_controller(message.body)
            return
        node = self.nodes[message.to]
        if node.frozen:
            return
        self.messages.pop(place)
        if node.alive:
            self._hand_over(node, message)
            node.release()

    def _hand_over(self, node: Node, message: Message) -> None:
        kind, *body = message.body
        if kind == "fetch":
            node.serve(body[0])
        elif kind == "led?":
            node.shown(*body)
        elif message.life != node.life:
            return
        elif kind == "told":
            node.told(*body)
        elif kind == "image":
            node.learn(body[0])
        elif kind == "altered":
            node.altered(*body)
        elif kind == "let go":
            node.former_let_go(*body)

    def _ask_controller(self, body: tuple[Any, ...]) -> None:
        kind, node, life, node_epoch, *more = body
        if kind == "poll":
            image = self.controller.image(node, node_epoch)
            answer = None if image is None else ("image", image)
        else:
            answer = ("altered", more[0], self.controller.alter(node, node_epoch, more[0]))
        if answer is not None and self.nodes[node].life == life:
            self.messages.append(Message(CONTROLLER, node, life, answer))

    # Faults.

    def _some(self, fits: Callable[[Node], bool]) -> Node | None:
        fitting = [node for node in self.nodes.values() if fits(node)]
        return self.random.choice(fitting) if fitting else None

    def do_kill(self) -> None:
        if (node := self._some(lambda node: node.alive)) is not None:
            node.die()
            self.figures.crashes += 1

    def do_power(self) -> None:
        if (node := self._some(lambda node: node.alive)) is not None:
            node.die()
            node.log.lose_power(self.random.choice((0, 0, 1, 2)))
            self.figures.crashes += 1

    def do_bounce(self) -> None:
        if (node := self._some(lambda node: node.alive)) is not None:
            node.die()
            self.figures.crashes += 1
            node.start()
            self.register(node)

    def do_disk(self) -> None:
        """RF - min disks at most are away at once, that is one: until its node is in sync again, no other goes. And of
        those that may lead, one other has its own still."""
        state = self.controller.state
        able = {node for node in (*state.isr, *state.elr) if self._has_its_disk(node)}
        away = {node for node in REPLICAS if not self._has_its_disk(node)}
        node = self._some(lambda node: not away - {node.id} and bool(able - {node.id}))
        if node is not None:
            if node.alive:
                self.figures.crashes += 1
            node.die()
            node.new_disk()
            self.figures.lost_disks += 1

    def do_start(self) -> None:
        if (node := self._some(lambda node: not node.alive)) is not None:
            node.start()
            self.register(node)

    def do_freeze(self) -> None:
        if (node := self._some(lambda node: node.alive and not node.frozen)) is not None:
            node.frozen = True
            self.figures.freezes += 1

    def do_thaw(self) -> None:
        if (node := self._some(lambda node: node.frozen)) is not None:
            node.frozen = False

    def do_cut(self) -> None:
        one, other = self.random.sample((CONTROLLER, *REPLICAS), 2)
        self.cut.add(frozenset((one, other)))
        self.figures.cuts += 1

    def do_heal(self) -> None:
        if self.cut:
            self.cut.remove(self.random.choice(sorted(self.cut, key=sorted)))

    def do_lose(self) -> None:
        if self.messages:
            self.messages.pop(self.random.randrange(len(self.messages)))
            self.figures.lost_messages += 1

    def do_hand_over(self) -> None:
        self.figures.handovers += self.controller.hand_over()

    def do_drain(self) -> None:
        self.controller.drain(self.random.choice(REPLICAS), begins=True)

    def do_undrain(self) -> None:
        if self.controller.leaving:
            self.controller.drain(min(self.controller.leaving), begins=False)

    # The end.

    def end(self) -> None:
        """CL-S14: no more faults. Within a session and ten seconds all is as it should be."""
        self.cut.clear()
        while self.controller.leaving:
            self.do_undrain()
        for node in self.nodes.values():
            node.frozen = False
            if not node.alive:
                node.start()
        until = self.now_ms + SESSION_MS + 10_000
        while self.now_ms < until:
            self.now_ms += 20
            self._sessions()
            self.controller.look()
            for node in self.nodes.values():
                for action in ("register", *QUIET, "fetch"):
                    self.act(node, action)
                    while self.messages:
                        self.deliver(0)
                self.act(node, "unpark")
                while self.messages:
                    self.deliver(0)
            if self.now_ms % 1_000 < 20:
                for node in self.nodes.values():
                    node.give_up_asking()
                    node.hang_up()
            self.check.step()
        self.check.logs()
        self._all_is_well()

    def _all_is_well(self) -> None:
        state = self.controller.state
        if state.leader == NO_NODE_ID or state.isr != REPLICAS:
            self.check.fail("14 liveness", f"the unit stays {state}")
        leader = self.nodes[state.leader].leader
        if leader is None or leader.high_watermark != self.nodes[state.leader].log.end:
            self.check.fail("14 liveness", "not all is committed")
        if not self.nodes[state.leader].answers():
            self.check.fail("14 liveness", "nobody answers")
        for offset, (epoch, value) in self.check.acked.items():
            log = self.nodes[state.leader].log
            if offset >= log.start and log.at(offset) != (epoch, value):
                self.check.fail("1 acked never lost", f"{offset} is not in the final log")


QUIET = ("flush", "look", "poll", "ask_former")
WEIGHTS = {
    "produce": 3,
    "flush": 5,
    "fetch": 8,
    "look": 2,
    "poll": 3,
    "unpark": 4,
    "ask_former": 0.5,
    "checkpoint": 0.5,
    "register": 1,
    "retain": 0.4,
    "give_up_asking": 0.3,
    "hang_up": 0.3,
}
ACTIONS, CHANCES = tuple(WEIGHTS), tuple(accumulate(WEIGHTS.values()))


def run(seed: int, machines: Machines | None = None, rules: Rules | None = None, steps: int = STEPS) -> Figures:
    return World(seed, machines or Machines(), rules or Rules()).run(steps)
