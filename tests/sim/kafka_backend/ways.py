"""The network between clients and simulated nodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.replication.groups.coordinator import GroupAsk
from tests.sim.replication.network import Broken, Refused

if TYPE_CHECKING:
    from tests.sim.kafka_backend.whole import WholeWorld

LOST_MS = 1_000
"""After so long a client knows that a connection is lost."""


class Ways:
    """The network between clients and nodes."""

    def __init__(self, world: "WholeWorld") -> None:
        self._world = world

    def add(self, host: Any) -> None:
        """Clients are always there."""

    def ask(
        self, asker: str, asked: str, request: GroupAsk, told: Callable[[Any], None], *, patience_ms: int, by: str = ""
    ) -> None:
        world, done = self._world, [False]

        def finish(outcome: Any) -> None:
            if not done[0]:
                done[0] = True
                told(outcome)

        def back(outcome: Any) -> None:
            if world.calm or world.random.random() > 0.01:
                world.later(world._delay(), lambda: finish(outcome))
            else:
                world.later(LOST_MS, lambda: finish(Broken("the connection was lost")))

        def look() -> None:
            """Who dies is not waited for."""
            if not node.alive:
                finish(Broken(f"{asked} is gone"))
            elif not done[0]:
                world.later(LOST_MS, look)

        node = world.nodes.get(int(asked[1:]))
        world.later(patience_ms, lambda: finish(Broken(f"{asked} did not answer {asker}")))
        if node is None or not node.alive:
            back(Refused(f"nobody listens at {asked}"))
        else:
            world.later(world._delay(), lambda: node.run(lambda: node.receive(request.request, back)))
            world.later(LOST_MS, look)
