"""Assignors and patterns off the loop: answers, failures, deadlines."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.assignors.api import Member, RebalanceProtocol, Snapshot
from muster.assignors.plugin_pool import Isolation, IsolationLimits
from muster.coordinator.core.model.effects import ResolveRegex
from muster.coordinator.core.model.events import Planned, RegexResolved, Shadowed
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.shadow_scoring import ShadowRequest, candidate_of
from muster.coordinator.core.model.types import Cause, Limits, MemberPlan, Outcome, RebalanceEntry
from muster.coordinator.server.driver.driver import AssignorWorkers
from tests.support.pace import Patience, pace

SNAPSHOT = Snapshot({"t": 2}, [Member("a", ("t",))])
HANGING = threading.Event()


class Hanging:
    """An assignor that does not come back before the test is over."""

    name = "hanging"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> dict[str, dict[str, list[int]]]:
        HANGING.wait()
        return {"a": {"t": [0, 1]}}


class Noting:
    """Says whether HANGING had been let go when it was asked."""

    name = "noting"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> dict[str, dict[str, list[int]]]:
        NOTED.append(HANGING.is_set())
        BEGUN.set()
        return {"a": {"t": [0, 1]}}


NOTED: list[bool] = []
BEGUN = threading.Event()


def plan(assignor: str) -> PlanRequest:
    return PlanRequest("g", 7, assignor, SNAPSHOT)


class Endless:
    """One that no process of its own survives."""

    name = "endless"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> dict[str, dict[str, list[int]]]:
        while True:
            pass


ENDLESS = f"{Endless.__module__}:Endless"


def shadows(*words: str, snapshot: str = SNAPSHOT.to_json()) -> ShadowRequest:
    member = MemberPlan("a", "a", "host", None, (("t", (0, 1)),))
    entry = RebalanceEntry(
        *(7, 1, 2, "consumer", "uniform", Cause.MEMBER_JOINED, "", "", "", "", "", Outcome.COMPLETED, 0, 0),
        members=(member,),
        snapshot_json=snapshot,
        snapshot_source="target",
    )
    return ShadowRequest("g", 3, tuple(candidate_of(word, LIMITS) for word in words), entry)


LIMITS = Limits()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_a_plan_comes_back_under_its_epoch() -> None:
    async def story() -> None:
        answer = await AssignorWorkers(60_000).answer(plan("range"))
        assert isinstance(answer, Planned)
        assert (answer.group_id, answer.epoch, answer.plan, answer.error) == ("g", 7, {"a": {"t": (0, 1)}}, "")

    run(story)


@pytest.mark.parametrize(("assignor", "why"), [("rnge", "is not known"), ("no.such:Thing", "cannot be imported")])
def test_an_assignor_that_is_not_there_is_named(assignor: str, why: str) -> None:
    async def story() -> None:
        answer = await AssignorWorkers(60_000).answer(plan(assignor))
        assert isinstance(answer, Planned)
        assert answer.plan is None
        assert assignor in answer.error
        assert why in answer.error

    run(story)


def test_in_a_thread_one_that_hangs_is_given_up_and_keeps_its_place() -> None:
    async def story() -> None:
        workers = AssignorWorkers(50, max_threads=1, isolation=Isolation(IsolationLimits("thread")))
        word = f"{__name__}:Hanging"
        try:
            for _ in range(2):  # the second one finds no place before its deadline
                answer = await workers.answer(plan(word))
                assert isinstance(answer, Planned)
                assert "was not done after 50 ms" in answer.error
        finally:
            HANGING.set()

    run(story)


def test_plugins_that_hang_take_no_place_from_ours_and_give_theirs_back() -> None:
    async def story() -> None:
        isolation = Isolation()
        workers = AssignorWorkers(60_000, max_threads=1, isolation=isolation)
        hanging = asyncio.ensure_future(workers.answer(plan("tests.support.plugins:Counts")))
        ours = await workers.answer(plan("range"))
        assert isinstance(ours, Planned)
        assert ours.plan == {"a": {"t": (0, 1)}}
        assert not hanging.done()
        isolation.close()
        given_up = await hanging
        assert isinstance(given_up, Planned)
        assert given_up.plan is None
        short = AssignorWorkers(50, max_threads=1, isolation=Isolation())
        for _ in range(2):
            late = await short.answer(plan("tests.support.plugins:Counts"))
            assert isinstance(late, Planned)
            assert "was not done after 50 ms" in late.error
        # It has the place that they gave back. On a busy machine it overruns, too, now and then.
        good, patience = await short.answer(plan("tests.support.plugins:Deals")), Patience(30)
        while isinstance(good, Planned) and good.plan is None and patience.lasts():
            good = await short.answer(plan("tests.support.plugins:Deals"))
        assert isinstance(good, Planned)
        assert good.plan == {"a": {"t": (0, 1)}}

    run(story)


def test_a_plugins_place_is_given_back_whatever_came_of_its_work() -> None:
    async def story() -> None:
        workers = AssignorWorkers(60_000, max_threads=1, isolation=Isolation())
        for word in ("no.such:Thing", "tests.support.plugins:Deals", "tests.support.plugins:Deals"):
            # Without its place the next one would wait for ever: no deadline runs before its process does.
            async with asyncio.timeout(30 * pace()):
                answer = await workers.answer(plan(word))
            assert isinstance(answer, Planned)
            assert (answer.plan is None) is (word == "no.such:Thing")

    run(story)


def test_a_place_is_given_back_whatever_came_of_the_work() -> None:
    async def story() -> None:
        # The deadline counts from the question: who finds no place hears that it was not done.
        workers = AssignorWorkers(5_000, max_threads=1, isolation=Isolation(IsolationLimits("thread")))
        for word in ("range", "rnge", "no.such:Thing", "uniform"):
            answer = await workers.answer(plan(word))
            assert isinstance(answer, Planned)
            assert (answer.plan is None) is (word in ("rnge", "no.such:Thing"))
        for regex in ("(", "t"):
            await workers.answer(ResolveRegex("g", regex, ("t",), 1))
        assert await workers.answer(ResolveRegex("g", "t", ("t",), 2)) == RegexResolved("g", "t", ("t",), 2)

    run(story)


def test_patterns_match_whole_names() -> None:
    async def story() -> None:
        workers = AssignorWorkers(60_000)
        asked = ResolveRegex("g", "t[0-9]", ("t1", "t10", "at1", "t2"), 5)
        assert await workers.answer(asked) == RegexResolved("g", "t[0-9]", ("t1", "t2"), 5)
        broken = await workers.answer(ResolveRegex("g", "(", (), 5))
        assert isinstance(broken, RegexResolved)
        assert broken.error

    run(story)


def test_shadows_are_scored_under_their_ticket_each_by_itself() -> None:
    isolation = Isolation()

    async def story() -> None:
        answer = await AssignorWorkers(60_000, isolation=isolation).answer(
            shadows("range", "no.such:Thing", "roundrobin")
        )
        assert isinstance(answer, Shadowed)
        assert (answer.group_id, answer.ticket) == ("g", 3)
        real, first, missing, last = answer.scores
        assert (real.assignor, real.took_ms, real.moves, real.unassigned) == ("uniform", None, 0, 0)
        assert (first.assignor, first.failure, first.differs) == ("range", "", 0)
        assert first.took_ms is not None
        assert "cannot be imported" in missing.failure
        assert last.failure == ""

    try:
        run(story)
    finally:
        isolation.close()


def test_a_shadow_that_never_ends_is_ended_and_the_next_one_has_its_turn() -> None:
    isolation = Isolation()

    async def story() -> None:
        answer = await AssignorWorkers(1_000, isolation=isolation).answer(shadows(ENDLESS, "range"))
        assert isinstance(answer, Shadowed)
        _, endless, ranged = answer.scores
        assert "was not done after 1000 ms" in endless.failure
        assert ranged.failure == ""

    try:
        run(story)
    finally:
        isolation.close()


def test_no_shadow_begins_while_somebody_waits_for_a_plan() -> None:
    HANGING.clear()

    async def story() -> None:
        workers = AssignorWorkers(60_000, isolation=Isolation(IsolationLimits(mode="thread")))
        real = asyncio.create_task(workers.answer(plan(f"{Hanging.__module__}:Hanging")))
        beside = asyncio.create_task(workers.answer(shadows(f"{Noting.__module__}:Noting")))
        await asyncio.to_thread(BEGUN.wait, 0.2)  # as long as a shadow that does not wait may take to be found out
        HANGING.set()
        await real
        answer = await beside
        assert isinstance(answer, Shadowed)
        assert (answer.scores[1].failure, NOTED) == ("", [True])

    run(story)


def test_a_snapshot_that_cannot_be_read_fails_the_shadows_only() -> None:
    async def story() -> None:
        answer = await AssignorWorkers(60_000).answer(shadows("range", snapshot="{"))
        assert isinstance(answer, Shadowed)
        assert [score.assignor for score in answer.scores] == ["range"]
        assert "the snapshot cannot be read" in answer.scores[0].failure

    run(story)
