"""Stories of the abstract model: the same nodes, and somebody who says what happens next."""

from collections.abc import Callable

from tests.sim.replication.abstract.controller import Rules
from tests.sim.replication.abstract.node import Machines, Node
from tests.sim.replication.abstract.world import CONTROLLER, REPLICAS, Message, World


class Stage(World):
    """Nothing befalls anybody by chance; all clocks go alike."""

    def __init__(self, machines: Machines | None = None, rules: Rules | None = None) -> None:
        super().__init__(0, machines or Machines(), rules or Rules())
        for node in self.nodes.values():
            node.rate = 1.0
        self.held: Callable[[Message], bool] = lambda _message: False
        self.rounds(14, 500)  # The first leader waits for a session: nobody knows what was before.

    def node(self, node: int) -> Node:
        return self.nodes[node]

    def goes_by(self, ms: int) -> None:
        self.now_ms += ms
        self._sessions()
        self.check.step()

    def deliver_all(self) -> None:
        """All that is not held and not cut off, in order, and what follows from it."""
        while (place := self._next()) is not None:
            self.deliver(place)
            self.check.step()

    def _next(self) -> int | None:
        for place, message in enumerate(self.messages):
            reached = message.to == CONTROLLER or not self.nodes[message.to].frozen
            if reached and not self.held(message) and not self.is_cut(message.sender, message.to):
                return place
        return None

    def drop(self, kind: str) -> None:
        self.messages = [message for message in self.messages if message.body[0] != kind]

    def act_all(self, *actions: str) -> None:
        for action in actions:
            for node in self.nodes.values():
                if node.alive and not node.frozen:
                    self.act(node, action)
                    self.deliver_all()

    def image(self) -> None:
        """Everybody that can hears what the controller knows."""
        while self.controller.look():
            pass
        self.act_all("poll")

    def fetches(self, times: int = 1) -> None:
        for _ in range(times):
            self.act_all("fetch", "unpark", "flush")

    def rounds(self, times: int, ms: int = 0) -> None:
        """All is as it should be for so often: polls, fetches, looks."""
        for _ in range(times):
            self.goes_by(ms)
            self.act_all("register")
            self.image()
            self.fetches()
            self.act_all("look")

    def cut_off(self, one: int, *others: int) -> None:
        self.cut |= {frozenset((one, other)) for other in others}

    def heal(self, one: int, *others: int) -> None:
        self.cut -= {frozenset((one, other)) for other in others}

    def isolate(self, node: int) -> None:
        self.cut_off(node, *({CONTROLLER, *REPLICAS} - {node}))

    def do(self, node: int, *actions: str) -> None:
        for action in actions:
            self.act(self.nodes[node], action)
            self.deliver_all()

    def lose_disk(self, node: int) -> None:
        self.nodes[node].die()
        self.nodes[node].new_disk()

    def start(self, node: int) -> None:
        self.nodes[node].start()
        self.register(self.nodes[node])

    @property
    def answering(self) -> list[int]:
        return [node.id for node in self.nodes.values() if node.answers()]
