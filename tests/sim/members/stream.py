"""One connection between a process and the node, for a session stream: in order both ways, until a message is lost."""

from collections.abc import Callable
from typing import Any

from tests.sim.network import KEEPALIVE_MS, Network

Deliver = Callable[[Any], None]


class Stream:
    """Each end has a handler for what arrives and one for the end of it all. `broken` carries nothing any more."""

    def __init__(self, network: Network, caller: str) -> None:
        self.network = network
        self.caller = caller
        self.broken = False
        self.at_client: Deliver = ignore
        self.at_node: Deliver = ignore
        self.client_gone: Callable[[bool], None] = ignore
        """Told the node's end; True: the process closed its side in good order."""
        self.node_gone: Callable[[], None] = nothing
        self._arrivals = {True: 0, False: 0}

    def up(self, message: Any) -> None:
        """From the process to the node."""
        self._send(True, lambda: self.at_node(message))

    def down(self, message: Any) -> None:
        self._send(False, lambda: self.at_client(message))

    def close(self, *, orderly: bool) -> None:
        """The process ends it, or dies."""
        self._send(True, lambda: self.client_gone(orderly))
        self.at_client, self.node_gone = ignore, nothing

    def finish(self) -> None:
        """The node ends it, or dies."""
        self._send(False, lambda: self.node_gone())
        self.at_node, self.client_gone = ignore, ignore

    def _send(self, up: bool, arrive: Callable[[], None]) -> None:
        world = self.network.world
        if self.broken:
            return
        if self.network.lost(self.caller):
            world.census["session streams broken"] += 1
            self.broken = True
            # Both ends find out from their keepalive, if from nothing else before.
            world.after(KEEPALIVE_MS, lambda: self.client_gone(False))
            world.after(KEEPALIVE_MS, lambda: self.node_gone())
            return
        delay_ms = (self.network.way_up_ms if up else self.network.way_down_ms)(self.caller)
        self._arrivals[up] = max(self._arrivals[up], world.now_ms + delay_ms)
        world.at(self._arrivals[up], lambda: None if self.broken else arrive())


def ignore(_: Any) -> None:
    """Whoever is gone hears nothing."""


def nothing() -> None:
    """The same for who would have to be told of an end."""
