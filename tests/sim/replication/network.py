"""Connections between the nodes of a simulated cluster, its clients and ZooKeeper.

A connection delivers in order and whole, late by some milliseconds, or it breaks: what was on its way may have arrived
or not. A process that is gone refuses; a machine that is cut off is silent, and who asked hears nothing until its own
deadline.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.sim.world import World

Reply = Callable[[Any], None]


class Broken(Exception):
    """The connection broke, or nobody answered in time."""


class Refused(Broken):
    """Nobody listens there: the machine says so (ECONNREFUSED)."""


@dataclass(slots=True)
class Host:
    """Somebody who can be reached: `serve(asker, request, reply)` while `listens`."""

    name: str
    serve: Callable[[str, Any, Reply], None]
    listens: Callable[[], bool]
    generation: int = 0
    """Raised when its process dies: what was sent to, or by, a former life is void."""


@dataclass(slots=True)
class Network:
    world: World
    hosts: dict[str, Host] = field(default_factory=dict)
    cut: set[tuple[str, str]] = field(default_factory=set)
    """Pairs (from, to) between which nothing passes, one way."""
    slow_ms: int = 8
    lost: float = 0.0
    """How often a connection breaks under a request or its answer."""
    _last: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def add(self, host: Host) -> None:
        self.hosts[host.name] = host

    def died(self, name: str) -> None:
        """The process is gone: its connections break, which the others hear if they can be reached."""
        self.hosts[name].generation += 1

    def sever(self, left: str, right: str, *, both: bool = True) -> None:
        self.cut.add((left, right))
        if both:
            self.cut.add((right, left))

    def mend(self) -> None:
        self.cut.clear()

    def ask(
        self,
        asker: str,
        asked: str,
        request: Any,
        answered: Callable[[Any | Broken], None],
        *,
        patience_ms: int,
        by: str = "",
    ) -> None:
        """Send `request` to a host; `answered` is called once, with its reply or with how it failed.

        by: the connection's name; requests of one are delivered in order.
        """
        world, source, target = self.world, self.hosts[asker], self.hosts[asked]
        life = source.generation
        done = [False]

        def finish(outcome: Any | Broken) -> None:
            if not done[0] and source.generation == life:
                done[0] = True
                answered(outcome)

        def give_up() -> None:
            finish(Broken(f"{asked} did not answer {asker}"))

        def back(outcome: Any | Broken) -> None:
            if (asked, asker) in self.cut or world.chance(self.lost):
                return  # silence; the asker's patience ends
            self._deliver((asked, asker, by), lambda: finish(outcome))

        def arrive() -> None:
            if (asker, asked) in self.cut:
                return
            if not target.listens():
                back(Refused(f"nobody listens at {asked}"))
                return
            its_life = target.generation

            def reply(body: Any) -> None:
                if target.generation == its_life:
                    back(body)

            def broke() -> None:
                if target.generation != its_life:
                    back(Broken(f"{asked} died"))
                elif not done[0] and source.generation == life:
                    world.after(50, broke)

            target.serve(asker, request, reply)
            world.after(50, broke)

        world.after(patience_ms, give_up)
        if not world.chance(self.lost):
            self._deliver((asker, asked, by), arrive)

    def _deliver(self, connection: tuple[str, str, str], action: Callable[[], None]) -> None:
        at_ms = max(self.world.now_ms + self.world.between(1, self.slow_ms), self._last.get(connection, 0))
        self._last[connection] = at_ms
        self.world.at(at_ms, action)
