"""The controller's steps, one after the other in the order of the events.

One that looks at all of a large cluster takes a hundred milliseconds: it is taken beside the loop, and what comes
meanwhile waits for it. A step is one decision on one state of what is known, wherever it is taken: nobody else looks at
the machine while it is under way.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from muster.coordinator.replication.protocol.controller import effects, events

AT_ONCE: Final = 250
"""Partitions of a cluster of which every step is taken on the loop: about 3 ms for the longest."""

SHORT: Final = (
    events.AlterPartitionRequested,
    events.ConnectionBroken,
    events.ImagePolled,
    events.ConnectionsRefused,
    events.ShutdownRequested,
    events.VersionRead,
    events.WriteFailed,
    events.MultiWritten,
)
"""Events whose steps look at no more of a large cluster than of a small one: at what goes into one write."""


class ControllerMachine(Protocol):
    """See `Controller`."""

    def step(self, event: events.ControllerEvent, now_ms: int) -> list[effects.ControllerEffect]: ...


class ControllerSteps:
    """Of one reign. perform: told on the loop what follows from each event. spawn: starts what goes on beside."""

    def __init__(
        self,
        machine: ControllerMachine,
        now_ms: Callable[[], int],
        perform: Callable[[Sequence[effects.ControllerEffect]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._machine = machine
        self._now_ms = now_ms
        self._perform = perform
        self._spawn = spawn
        self._waiting: deque[events.ControllerEvent] = deque()
        """Bounded by who feeds: watches and writes wait for one answer each, and requests are counted (`Seat`)."""
        self._large = False
        self.busy = False
        """A step is under way beside the loop, or was when the reign ended: the machine is nobody else's to touch."""

    def take(self, event: events.ControllerEvent) -> None:
        """At once, or when its turn comes. Raises what the machine raises, if it is taken at once."""
        self._large = self._large or event_size(event) > AT_ONCE
        if self.busy:
            self._waiting.append(event)
        elif self._is_long(event):
            self._waiting.append(event)
            self.busy = True
            self._spawn(self._catch_up())
        else:
            self._perform(self._machine.step(event, self._now_ms()))

    async def _catch_up(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            if self._is_long(event):
                wanted = await asyncio.to_thread(self._machine.step, event, self._now_ms())
            else:
                wanted = self._machine.step(event, self._now_ms())
            self._perform(wanted)
        self.busy = False

    def _is_long(self, event: events.ControllerEvent) -> bool:
        return self._large and not isinstance(event, SHORT)


def event_size(event: events.ControllerEvent) -> int:
    """Partitions that an event tells of."""
    match event:
        case events.ControllerElected(image=image):
            return 0 if image is None else image.size
        case events.TopicsRead(topics=topics):
            return sum(len(topic.partitions) for topic in topics)
        case events.StatesRead(states=states):
            return len(states)
        case _:
            return 0
