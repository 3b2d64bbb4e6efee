"""A controller that makes a mistake is none any more, whatever it was about to do: another node is elected."""

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.controller_candidate import CandidateContext, ControllerCandidate
from muster.coordinator.replication.io.wire.node_api import NodeName
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterTopic,
    ImageVersion,
    ReplicaAssignment,
)
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    ControllerTick,
    ImagePolled,
    TopicsRead,
    WarnOperator,
)


class Elected:
    """The election, of which this node is the winner until it resigns."""

    def __init__(self) -> None:
        self.term: object | None = object()
        self.ended: Any = None

    def resign(self, why: str) -> None:
        if self.term is not None:
            self.term = None
            self.ended()


class Mistaken:
    """Decides something with the first poll, and then cannot say what."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def step(self, event: object, now_ms: int) -> list[Any]:
        self.heard.append(event)
        if len(self.heard) > 1:
            raise ValueError("a mistake")
        return []


def test_a_mistake_in_any_step_ends_the_term_and_all_who_wait_hear_of_it() -> None:
    async def story() -> None:
        session = SimpleNamespace(on_state=lambda listener: None, session_timeout_ms=6_000)
        around = CandidateContext(ClusterImage, lambda: 0, lambda: 0, lambda: b"")
        candidate = ControllerCandidate(cast(Any, session), 1, ControllerSettings(), around)
        election, machine = Elected(), Mistaken()
        election.ended = candidate._ended
        candidate._election = cast(Any, election)
        candidate._sit(cast(Any, machine))
        first = asyncio.create_task(candidate.cluster_state(NodeName(2, 20), ImageVersion(), (), 500))
        await asyncio.sleep(0)
        with capture_logs() as lines:
            candidate._woken(0)
        assert [type(each) for each in machine.heard] == [ImagePolled, ControllerTick]
        assert [line["event"] for line in lines] == ["the controller failed; another is elected"]
        assert (await first).error is ErrorCode.NOT_CONTROLLER
        assert not candidate.is_controller
        assert (
            await candidate.cluster_state(NodeName(3, 30), ImageVersion(), (), 500)
        ).error is ErrorCode.NOT_CONTROLLER

    asyncio.run(story())


class Slow:
    """Takes its time for topics."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.gate = Event()

    def step(self, event: object, now_ms: int) -> list[Any]:
        self.heard.append(event)
        if isinstance(event, TopicsRead):
            assert self.gate.wait(60)
        return [WarnOperator("decided")]


def test_a_term_that_ends_while_a_long_step_is_taken_does_nothing_of_it() -> None:
    """And nobody else touches the machine meanwhile."""

    async def story() -> None:
        session = SimpleNamespace(on_state=lambda listener: None, session_timeout_ms=6_000)
        told: list[str] = []
        candidate = ControllerCandidate(
            cast(Any, session),
            1,
            ControllerSettings(),
            CandidateContext(ClusterImage, lambda: 0, lambda: 0, bytes, warn=told.append),
        )
        election, machine = Elected(), Slow()
        election.ended = candidate._ended
        candidate._election = cast(Any, election)
        candidate._sit(cast(Any, machine))
        topics = TopicsRead((ClusterTopic("orders", b"o" * 16, (ReplicaAssignment((1,)),) * 1_000),), True)
        candidate._step(topics)
        asked = asyncio.create_task(candidate.cluster_state(NodeName(2, 20), ImageVersion(), (), 500))
        await asyncio.sleep(0)
        election.resign("its session is over")
        machine.gate.set()
        assert (await asked).error is ErrorCode.NOT_CONTROLLER
        await candidate._tasks.ended()
        assert (machine.heard, told, candidate.is_controller) == ([topics], [], False)

    asyncio.run(story())
