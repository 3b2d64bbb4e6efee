"""A large cluster's controller holds nobody up: what looks at all of it is done beside the loop, in order."""

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Event as Gate
from threading import get_ident
from typing import Any

import pytest

from muster.coordinator.cluster.controller import effects, events
from muster.coordinator.cluster.controller.effects import Warn
from muster.coordinator.cluster.facts import Assignment, State, Topic, TopicPartition
from muster.coordinator.cluster.image import ClusterState, Image, Known, PartitionView, TopicView
from muster.coordinator.replication.controlling.steps import AT_ONCE, Steps

READY = events.ClusterVersion()
POLL = events.Polled(1, 2, 20, Known())


def topics(partitions: int) -> events.TopicsSeen:
    return events.TopicsSeen((Topic("orders", b"o" * 16, (Assignment((1,)),) * partitions),), True)


def states(partitions: int) -> events.StatesRead:
    return events.StatesRead({TopicPartition("orders", each): State(1, 0, (1,)) for each in range(partitions)}, READY)


def elected(partitions: int) -> events.Elected:
    image = Image()
    views = dict.fromkeys(range(partitions), PartitionView(1, 0, 0, (1,), (), (1,)))
    image.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(TopicView(b"o" * 16, "orders", {}, views),)))
    return events.Elected(1, 1, 1, READY, image)


class Machine:
    """Says what it heard, and where it was asked; waits at the gate where that is not the loop."""

    def __init__(self) -> None:
        self.heard: list[events.Event] = []
        self.beside: list[events.Event] = []
        self.gate = Gate()
        self._loop = get_ident()

    def step(self, event: events.Event, now_ms: int) -> list[effects.Effect]:
        if get_ident() != self._loop:
            assert self.gate.wait(60)
            self.beside.append(event)
        self.heard.append(event)
        if isinstance(event, events.Resigned):
            raise ValueError("a mistake")
        return [Warn(type(event).__name__)]


class Reign:
    def __init__(self) -> None:
        self.machine = Machine()
        self.said: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.steps = Steps(self.machine, lambda: 7, self._perform, self._spawn)

    def _perform(self, wanted: Sequence[effects.Effect]) -> None:
        self.said += [each.text for each in wanted if isinstance(each, Warn)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def done(self) -> None:
        self.machine.gate.set()
        await asyncio.gather(*self.tasks)


@pytest.mark.parametrize("first", [topics(AT_ONCE + 1), states(AT_ONCE + 1), elected(AT_ONCE + 1)])
def test_what_tells_of_much_is_taken_beside_the_loop_and_what_comes_meanwhile_waits(first: events.Event) -> None:
    async def story() -> None:
        reign = Reign()
        for event in (first, POLL, events.NodesSeen({}), POLL):
            reign.steps.take(event)
        assert reign.said == []
        await reign.done()
        assert reign.machine.heard == [first, POLL, events.NodesSeen({}), POLL]
        assert reign.machine.beside == [first, events.NodesSeen({})]
        assert reign.said == [type(first).__name__, "Polled", "NodesSeen", "Polled"]
        assert not reign.steps.busy

    asyncio.run(story())


@pytest.mark.parametrize("first", [topics(AT_ONCE), states(AT_ONCE), elected(AT_ONCE)])
def test_of_a_small_cluster_every_step_is_taken_at_once(first: events.Event) -> None:
    async def story() -> None:
        reign = Reign()
        for event in (first, events.NodesSeen({}), events.Tick()):
            reign.steps.take(event)
        assert reign.said == [type(first).__name__, "NodesSeen", "Tick"]
        assert reign.tasks == []

    asyncio.run(story())


def test_of_a_large_one_what_looks_at_one_write_is_taken_at_once() -> None:
    async def story() -> None:
        reign = Reign()
        reign.steps.take(topics(AT_ONCE + 1))
        await reign.done()
        reign.steps.take(events.Written(3))
        reign.steps.take(events.Tick())
        assert reign.said == ["TopicsSeen", "Written"]
        await reign.done()
        assert reign.said == ["TopicsSeen", "Written", "Tick"]

    asyncio.run(story())


def test_a_mistake_beside_the_loop_is_heard_of_and_nothing_follows_it() -> None:
    async def story() -> None:
        reign = Reign()
        for event in (topics(AT_ONCE + 1), events.Resigned(), POLL):
            reign.steps.take(event)
        with pytest.raises(ValueError, match="a mistake"):
            await reign.done()
        assert reign.said == ["TopicsSeen"]
        assert reign.steps.busy

    asyncio.run(story())
