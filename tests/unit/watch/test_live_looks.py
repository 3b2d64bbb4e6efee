"""Looks ask little, seldom, and one thing at a time of each broker; what they see is told once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.group_requests import ListedUpstreamGroup
from muster.coordinator.kafka_backend.upstream.protocol import SUPPORTED_APIS, UpstreamAddress, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.watch.live_looks import (
    CALM_S,
    CALMLY,
    LEFT_ALONE,
    LONGEST_S,
    REBALANCING,
    VERY_CALM_S,
    VERY_CALMLY,
    LiveLooks,
    LookPace,
)
from tests.fakes.upstream_broker import UpstreamBroker, metadata

PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"


class Heard:
    """A LooksListener. all_seen: set once all groups of a broker were listed."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.settled: list[str] = []
        self.groups: list[str] = []
        self.troubles: list[str] = []
        self.all_seen = asyncio.Event()
        self.troubled = asyncio.Event()

    def saw_state(self, group_id: str, state: str) -> None:
        self.states.append((group_id, state))

    async def saw_settled(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        self.settled += [each.group for each in groups]

    async def saw_groups(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        self.groups += [each.group for each in groups]
        self.all_seen.set()

    def looks_troubled(self, broker: int, why: str) -> None:
        self.troubles.append(why)
        self.troubled.set()


class Scene:
    """One broker with groups in these states."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.broker, self.heard = broker, Heard()
        self.groups = {"calm": "Stable"}
        self.code = self.throttle_ms = 0
        broker.answers = {
            "Metadata": lambda request: metadata({1: broker.address}, {}),
            "ListGroups": self._list,
            "DescribeGroups": self._describe,
        }
        self.upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=30))
        self.looks = LiveLooks(self.upstream, self.heard, poll_ms=3_600_000, describe_ms=3_600_000)

    def _list(self, request: Any) -> Any:
        states = getattr(request, "states_filter", [])
        told = [
            struct("ListGroupsResponse.groups")(group_id=name, protocol_type="consumer", group_state=state)
            for name, state in self.groups.items()
            if not states or state in states
        ]
        return struct("ListGroupsResponse")(error_code=self.code, throttle_time_ms=self.throttle_ms, groups=told)

    def _describe(self, request: Any) -> Any:
        told = [
            struct("DescribeGroupsResponse.groups")(group_id=name, group_state=self.groups.get(name, "Dead"))
            for name in request.groups
        ]
        return struct("DescribeGroupsResponse")(groups=told)

    async def look(self) -> float:
        return await self.looks.look(1)


def run(story: Callable[[Scene], Coroutine[Any, Any, None]], *, lists_by_state: bool = True) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            if not lists_by_state:
                broker.offers[SUPPORTED_APIS["ListGroups"].key] = (0, 3)
            scene = Scene(broker)
            await scene.upstream.refresh([])
            scene.looks.start()
            await scene.heard.all_seen.wait()
            try:
                await story(scene)
            finally:
                await scene.looks.stop()
                scene.upstream.close()

    asyncio.run(whole())


def test_a_look_asks_by_state_and_tells_what_changed() -> None:
    async def story(scene: Scene) -> None:
        scene.groups["orders"] = PREPARING
        await scene.look()
        await scene.look()
        scene.groups["orders"] = COMPLETING
        await scene.look()
        scene.groups["orders"] = "Stable"
        await scene.look()
        assert scene.heard.states == [("orders", PREPARING), ("orders", COMPLETING), ("orders", "")]
        assert scene.heard.settled == ["orders"]
        assert scene.broker.of("DescribeGroups") == []
        asked = [list(request.states_filter) for request in scene.broker.of("ListGroups")]
        assert asked == [list(REBALANCING), [], *[list(REBALANCING)] * 4]

    run(story)


def test_all_groups_are_listed_at_the_start() -> None:
    async def story(scene: Scene) -> None:
        assert scene.heard.groups == ["calm"]

    run(story)


def test_a_broker_that_does_not_know_states_is_asked_to_describe() -> None:
    async def story(scene: Scene) -> None:
        scene.groups["orders"] = PREPARING
        await scene.look()
        scene.groups["orders"] = "Stable"
        await scene.look()
        assert scene.heard.states == [("orders", PREPARING), ("orders", "")]
        assert [list(request.groups) for request in scene.broker.of("DescribeGroups")][1:] == [["calm", "orders"]] * 2

    run(story, lists_by_state=False)


def test_a_broker_that_refuses_is_an_error_that_says_so() -> None:
    async def story(scene: Scene) -> None:
        scene.groups["orders"] = PREPARING
        await scene.look()
        scene.code = 15
        with pytest.raises(UpstreamRefused, match="COORDINATOR_NOT_AVAILABLE"):
            await scene.look()

    run(story)


def test_trouble_is_told_and_takes_back_what_was_seen() -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            scene = Scene(broker)
            scene.code = 15
            await scene.upstream.refresh([])
            scene.looks.start()
            await scene.heard.troubled.wait()
            await scene.looks.stop()
            scene.upstream.close()
            [why] = scene.heard.troubles
            assert why.startswith("broker 1 does not tell which groups rebalance: ")
            assert "COORDINATOR_NOT_AVAILABLE (15)" in why

    asyncio.run(whole())


def test_a_throttled_look_says_how_long_the_broker_wants_to_be_left_alone() -> None:
    async def story(scene: Scene) -> None:
        scene.throttle_ms = 2_500
        assert await scene.look() == 2.5

    run(story)


# How often
# ---------


def test_a_broker_that_takes_long_is_asked_less_often() -> None:
    pace = LookPace(0.5)
    assert pace.after_answer(0.001, 0) == 0.5
    for _ in range(5):
        pause_s = pace.after_answer(0.1, 0)
    assert pause_s == LEFT_ALONE * 0.1


def test_one_slow_answer_does_not_make_it_slow() -> None:
    pace = LookPace(0.5)
    assert pace.after_answer(3.0, 0) == 0.5
    for _ in range(4):
        pace.after_answer(0.002, 0)
    assert pace.after_answer(3.0, 0) == 0.5


def test_a_broker_that_throttles_is_left_alone_for_as_long_as_it_says() -> None:
    assert LookPace(0.5).after_answer(0.001, 7.0) == 7.0


def test_failures_make_pauses_longer_until_it_answers_again() -> None:
    pace = LookPace(0.5)
    pauses = [pace.after_failure() for _ in range(20)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert max(pauses) == LONGEST_S
    pace.after_answer(0.001, 0)
    assert pace.after_failure() == 1.0


def test_where_nothing_rebalances_for_long_looks_are_rarer_until_something_does() -> None:
    pace = LookPace(0.5)
    assert pace.after_answer(0.001, 0, busy=False) == 0.5 * CALMLY, "in the beginning nothing is known to rebalance"
    assert pace.after_answer(0.001, 0, busy=True) == 0.5
    pauses = [pace.after_answer(0.001, 0, busy=False) for _ in range(500)]
    assert pauses[:60] == [0.5] * 60
    assert set(pauses[60:]) == {0.5 * CALMLY, 0.5 * VERY_CALMLY}
    assert sum(pauses[: pauses.index(0.5 * VERY_CALMLY)]) == VERY_CALM_S
    pace.after_answer(0.001, 0, busy=True)
    assert pace.after_answer(0.001, 0, busy=False) == 0.5


def test_what_else_tells_that_groups_rebalance_makes_looks_frequent() -> None:
    async def story(scene: Scene) -> None:
        pace = scene.looks._paces[1]
        assert pace.calm_s >= CALM_S
        scene.looks.stir()
        assert pace.after_answer(0.001, 0, busy=False) == pace.poll_s

    run(story)
