"""A large cluster's controller holds nobody up: what looks at all of it is done beside the loop, in order."""

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Event as Gate
from threading import get_ident
from typing import Any

import pytest

from muster.coordinator.replication.io.controller_candidate import AT_ONCE, ControllerSteps
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterState,
    ClusterTopic,
    ImageVersion,
    PartitionState,
    PartitionView,
    ReplicaAssignment,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.events_and_effects import WarnOperator

READY = events_and_effects.ClusterVersion()
POLL = events_and_effects.ImagePolled(1, 2, 20, ImageVersion())


def topics(partitions: int) -> events_and_effects.TopicsRead:
    return events_and_effects.TopicsRead(
        (ClusterTopic("orders", b"o" * 16, (ReplicaAssignment((1,)),) * partitions),), True
    )


def states(partitions: int) -> events_and_effects.StatesRead:
    return events_and_effects.StatesRead(
        {TopicPartition("orders", each): PartitionState(1, 0, (1,)) for each in range(partitions)}, READY
    )


def elected(partitions: int) -> events_and_effects.ControllerElected:
    image = ClusterImage()
    views = dict.fromkeys(range(partitions), PartitionView(1, 0, 0, (1,), (), (1,)))
    image.apply(ClusterState(epoch=1, sequence=1, full=True, topics=(TopicView(b"o" * 16, "orders", {}, views),)))
    return events_and_effects.ControllerElected(1, 1, 1, READY, image)


class Machine:
    """Says what it heard, and where it was asked; waits at the gate where that is not the loop."""

    def __init__(self) -> None:
        self.heard: list[events_and_effects.ControllerEvent] = []
        self.beside: list[events_and_effects.ControllerEvent] = []
        self.gate = Gate()
        self._loop = get_ident()

    def step(self, event: events_and_effects.ControllerEvent, now_ms: int) -> list[events_and_effects.ControllerEffect]:
        if get_ident() != self._loop:
            assert self.gate.wait(60)
            self.beside.append(event)
        self.heard.append(event)
        if isinstance(event, events_and_effects.ControllerResigned):
            raise ValueError("a mistake")
        return [WarnOperator(type(event).__name__)]


class Term:
    def __init__(self) -> None:
        self.machine = Machine()
        self.said: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.steps = ControllerSteps(self.machine, lambda: 7, self._perform, self._spawn)

    def _perform(self, wanted: Sequence[events_and_effects.ControllerEffect]) -> None:
        self.said += [each.text for each in wanted if isinstance(each, WarnOperator)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def done(self) -> None:
        self.machine.gate.set()
        await asyncio.gather(*self.tasks)


@pytest.mark.parametrize("first", [topics(AT_ONCE + 1), states(AT_ONCE + 1), elected(AT_ONCE + 1)])
def test_what_tells_of_much_is_taken_beside_the_loop_and_what_comes_meanwhile_waits(
    first: events_and_effects.ControllerEvent,
) -> None:
    async def story() -> None:
        term = Term()
        for event in (first, POLL, events_and_effects.NodesRead({}), POLL):
            term.steps.apply_event(event)
        assert term.said == []
        await term.done()
        assert term.machine.heard == [first, POLL, events_and_effects.NodesRead({}), POLL]
        assert term.machine.beside == [first, events_and_effects.NodesRead({})]
        assert term.said == [type(first).__name__, "ImagePolled", "NodesRead", "ImagePolled"]
        assert not term.steps.busy

    asyncio.run(story())


@pytest.mark.parametrize("first", [topics(AT_ONCE), states(AT_ONCE), elected(AT_ONCE)])
def test_of_a_small_cluster_every_step_is_taken_at_once(first: events_and_effects.ControllerEvent) -> None:
    async def story() -> None:
        term = Term()
        for event in (first, events_and_effects.NodesRead({}), events_and_effects.ControllerTick()):
            term.steps.apply_event(event)
        assert term.said == [type(first).__name__, "NodesRead", "ControllerTick"]
        assert term.tasks == []

    asyncio.run(story())


def test_of_a_large_one_what_looks_at_one_write_is_taken_at_once() -> None:
    async def story() -> None:
        term = Term()
        term.steps.apply_event(topics(AT_ONCE + 1))
        await term.done()
        term.steps.apply_event(events_and_effects.MultiWritten(3))
        term.steps.apply_event(events_and_effects.ControllerTick())
        assert term.said == ["TopicsRead", "MultiWritten"]
        await term.done()
        assert term.said == ["TopicsRead", "MultiWritten", "ControllerTick"]

    asyncio.run(story())


def test_a_mistake_beside_the_loop_is_heard_of_and_nothing_follows_it() -> None:
    async def story() -> None:
        term = Term()
        for event in (topics(AT_ONCE + 1), events_and_effects.ControllerResigned(), POLL):
            term.steps.apply_event(event)
        with pytest.raises(ValueError, match="a mistake"):
            await term.done()
        assert term.said == ["TopicsRead"]
        assert term.steps.busy

    asyncio.run(story())
