"""The table of situations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.truth.clients import Client
from tests.truth.expectation import Expectation
from tests.truth.nodes import KAFKA_ITSELF
from tests.truth.scene import Scene

MUSTER = "node kafka cluster"
"""Backends where nodes of Muster's coordinate."""

WATCHED = " ".join(KAFKA_ITSELF)
"""Backends where Kafka itself does, and is watched."""

Script = Callable[[Scene], Expectation]


@dataclass(frozen=True, slots=True)
class Situation:
    """A row of the table.

    needs: features that the client must have (`Client.can`).
    modes: values of `Client.mode` that can play it; empty: all.
    own: it disturbs the node, so it gets a node of its own.
    settings: of that node.
    backends: that can play it; empty: all.
    brokers: how many, where Kafka itself is watched.
    proxied: clients reach the node through proxies.
    """

    name: str
    title: str
    script: Script
    needs: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset()
    own: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    backends: frozenset[str] = frozenset()
    proxied: bool = False
    brokers: int = 1

    def refusal(self, client: Client, backend: str) -> str:
        """Why this client cannot play it; empty if it can."""
        if self.modes and client.mode not in self.modes:
            return f"{client.mode} groups have no such thing"
        if lacking := self.needs - client.can:
            return f"{client.library} has no {', '.join(sorted(lacking))}"
        if why := client.cannot.get(self.name):
            return f"{client.library}: {why}"
        return f"not with {backend}" if self.backends and backend not in self.backends else ""


SITUATIONS: dict[str, Situation] = {}


def situation(
    *,
    needs: str = "",
    modes: str = "",
    own: bool = False,
    settings: Mapping[str, str] | None = None,
    backends: str = "",
    proxied: bool = False,
    brokers: int = 1,
) -> Callable[[Script], Script]:
    """Add a script to the table; its docstring is the title."""

    def enter(script: Script) -> Script:
        name = script.__name__.replace("_", "-")
        SITUATIONS[name] = Situation(
            name,
            " ".join((script.__doc__ or name).split()),
            script,
            frozenset(needs.split()),
            frozenset(modes.split()),
            own,
            settings or {},
            frozenset(backends.split()),
            proxied,
            brokers,
        )
        return script

    return enter
