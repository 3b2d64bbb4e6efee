"""Calls between processes and the node: lost, late, doubled, overtaken, and cut off.

A call is over for its caller when it is answered, times out, is abandoned, or its connection breaks. What is under way
then may still arrive, as a commit of a dead process may; only a JoinGroup and a KIP-848 heartbeat die with their call:
they speak for what the caller owned when they were sent, and HTTP/2 resets the stream of a call that is over before the
same process's next one. Nor is such a heartbeat doubled: nobody but its sender repeats it, and he asks anew.

Session streams keep their order. The first message that is lost breaks one for good; each end finds out later.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import ConsumerHeartbeat, JoinGroup, Request
from tests.sim.faults import CALM, Faults
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.node.node import Node

KEEPALIVE_MS = 20_000
"""After this long the node finds out that a client it cannot reach is gone."""

Answer = Reply | None
"""None: no answer came."""


@dataclass(slots=True)
class Call:
    """One call as its caller sees it. `request` is the event without its request id."""

    caller: str
    request: Any
    on_answer: Callable[[Answer], None]
    over: bool = False
    at_node: list[int] = field(default_factory=list)
    """Request ids under which it has arrived."""


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.node: Node
        self.faults: Faults = CALM
        self.cut_off: dict[str, int] = {}
        """Who cannot reach the node -> until when."""
        self.withheld: dict[str, int] = {}
        """Whose messages do not arrive at the node before a time."""
        self.deaf: dict[str, int] = {}
        """To whom nothing arrives from the node before a time; what he says goes through."""

    def call(self, caller: str, request: Request, timeout_ms: int, on_answer: Callable[[Answer], None]) -> Call:
        """Send a request; `on_answer` hears once, unless the call is abandoned before."""
        call = Call(caller, request, on_answer)
        self.world.after(timeout_ms, lambda: self.timed_out(call))
        doubled = not isinstance(request, ConsumerHeartbeat) and self.world.chance(self.faults.duplicate)
        copies = 2 if doubled else 1
        for _ in range(copies):
            if self.lost(caller):
                self.world.census["messages lost"] += 1
            else:
                self.world.after(self.way_up_ms(caller), lambda: self.arrive(call))
        self.world.census["messages doubled"] += copies - 1
        return call

    def arrive(self, call: Call) -> None:
        if call.over and dies_with_its_call(call.request):
            return
        if call.over:
            self.world.census["requests that came after their call was over"] += 1
        if self.node.up:
            self.node.watch.arrived(call, call.request)
        self.node.ears.hear(lambda: self.read(call))

    def read(self, call: Call) -> None:
        """The node takes it from its socket."""
        if not self.node.up:
            self.world.after(self.delay_ms(), lambda: self.answer(call, None))
        elif call.over and dies_with_its_call(call.request):
            self.node.watch.taken(call, 0)
        else:
            self.node.receive(call)

    def reply(self, call: Call, reply: Reply) -> None:
        """The node answers."""
        if self.lost(call.caller):
            self.world.census["messages lost"] += 1
            return
        self.world.after(self.way_down_ms(call.caller), lambda: self.answer(call, reply))

    def reset(self, call: Call) -> None:
        """The node's end of the connection breaks."""
        if not self.lost(call.caller):
            self.world.after(self.delay_ms(), lambda: self.answer(call, None))

    def answer(self, call: Call, answer: Answer) -> None:
        if not call.over:
            call.over = True
            call.on_answer(answer)

    def timed_out(self, call: Call) -> None:
        if not call.over:
            self.world.census["calls timed out"] += 1
            self.tell_gone(call)
            self.answer(call, None)

    def abandon(self, call: Call) -> None:
        """The caller does not want the answer any more, or is dead."""
        if not call.over:
            call.over = True
            self.tell_gone(call)

    def tell_gone(self, call: Call) -> None:
        """The node learns that nobody waits: soon if the reset gets through, else from its keepalive."""
        delay_ms = KEEPALIVE_MS if self.lost(call.caller) else self.delay_ms()
        self.world.after(delay_ms, lambda: self.node.ears.hear(lambda: self.node.forget(call)))

    def cut(self, caller: str, for_ms: int) -> None:
        self.cut_off[caller] = self.world.now_ms + for_ms

    def lost(self, caller: str) -> bool:
        return self.world.now_ms < self.cut_off.get(caller, 0) or self.world.chance(self.faults.loss)

    def way_up_ms(self, caller: str) -> int:
        """From the caller to the node."""
        delay_ms = self.delay_ms()
        until_ms = self.withheld.get(caller)
        return delay_ms if until_ms is None else max(delay_ms, until_ms - self.world.now_ms)

    def way_down_ms(self, caller: str) -> int:
        """From the node to the caller."""
        delay_ms = self.delay_ms()
        until_ms = self.deaf.get(caller)
        return delay_ms if until_ms is None else max(delay_ms, until_ms - self.world.now_ms)

    def delay_ms(self) -> int:
        if self.world.chance(self.faults.slow):
            return self.world.between(1, self.faults.slow_ms)
        return self.world.between(1, 10)

    def heal(self) -> None:
        self.faults = CALM
        self.cut_off.clear()
        self.withheld.clear()
        self.deaf.clear()


def dies_with_its_call(request: Request) -> bool:
    """Not so a farewell: whoever sends one does not wait for the answer."""
    return isinstance(request, JoinGroup) or (isinstance(request, ConsumerHeartbeat) and request.member_epoch >= 0)
