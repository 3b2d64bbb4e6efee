"""Background tasks: none ends without being noticed."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.edge import background_tasks
from muster.coordinator.edge.background_tasks import (
    TASK_FAILURES,
    BackgroundTask,
    RestartedTask,
    SupervisedTasks,
    TaskFailures,
)


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_tasks, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(background_tasks, "LONGEST_PAUSE_S", 0.004)


def test_a_loop_that_ends_by_a_mistake_is_begun_again_counted_and_reported() -> None:
    async def story() -> None:
        heard: list[tuple[str, str, bool]] = []
        failures = TaskFailures(lambda name, error, again: heard.append((name, repr(error), again)))
        TASK_FAILURES.set(failures)
        again = asyncio.Event()
        ends = [ZeroDivisionError("once"), KeyError("twice"), None]

        async def work() -> None:
            if ends:
                if (error := ends.pop(0)) is not None:
                    raise error
                return
            again.set()
            await asyncio.Event().wait()

        task = RestartedTask("looks for groups", work)
        task.start()
        await again.wait()
        assert heard == [
            ("looks for groups", "ZeroDivisionError('once')", True),
            ("looks for groups", "KeyError('twice')", True),
            ("looks for groups", "RuntimeError('it returned')", True),
        ]
        assert failures.counts == {"looks for groups": 3}
        await task.stop()

    play(story())


def test_one_that_is_stopped_while_it_pauses_is_not_begun_again() -> None:
    async def story() -> None:
        begun = 0
        often = asyncio.Event()

        async def work() -> None:
            nonlocal begun
            begun += 1
            if begun == 4:
                often.set()
            raise ZeroDivisionError

        task = RestartedTask("looks for groups", work)
        task.start()
        await often.wait()
        await task.stop()
        before = begun
        await asyncio.sleep(0.02)
        assert begun == before

    play(story())


@pytest.mark.parametrize("many", [True, False])
def test_an_error_is_heard_with_the_name_of_its_task_and_counted(many: bool) -> None:
    async def story() -> None:
        failures = TaskFailures()
        TASK_FAILURES.set(failures)
        heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def mistaken() -> None:
            raise ZeroDivisionError

        owner = SupervisedTasks(heard.set_result) if many else BackgroundTask(heard.set_result)
        owner.start(mistaken(), "divides")
        error = await heard
        assert error.__notes__ == ["It ended the background task 'divides'."]
        assert failures.counts == {"divides": 1}
        if isinstance(owner, BackgroundTask):
            await owner.stop()

    play(story())


def test_whoever_waits_for_the_end_of_many_sees_that_none_is_left() -> None:
    async def story() -> None:
        ends: list[str] = []
        owner = SupervisedTasks(lambda error: None, on_end=lambda: ends.append("one"))
        owner.start(asyncio.sleep(0))
        owner.start(asyncio.sleep(60))
        assert owner.busy
        await owner.close()
        await asyncio.sleep(0)
        assert not owner.busy
        assert ends == ["one", "one"]

    play(story())


def test_work_that_returns_has_done_what_it_was_to_do_and_is_tried_until_then() -> None:
    async def story() -> None:
        failures = TaskFailures()
        TASK_FAILURES.set(failures)
        done = asyncio.Event()
        ends = [ZeroDivisionError(), None]

        async def work() -> None:
            if (error := ends.pop(0)) is not None:
                raise error
            done.set()

        task = RestartedTask("makes salts", work, returns=True)
        assert not task.busy
        task.start()
        assert task.busy
        await done.wait()
        await asyncio.sleep(0)
        assert not task.busy
        assert failures.counts == {"makes salts": 1}

    play(story())


def test_who_waits_for_the_end_of_one_and_is_cancelled_does_not_end_it() -> None:
    async def story() -> None:
        go_on = asyncio.Event()
        owner = BackgroundTask()
        owner.start(go_on.wait())
        waiting = asyncio.create_task(owner.ended())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert owner.busy
        go_on.set()
        await owner.ended()
        assert not owner.busy

    play(story())


@pytest.mark.parametrize("many", [True, False])
def test_what_nobody_is_told_of_is_logged_with_the_name_of_its_task(many: bool) -> None:
    async def story() -> None:
        over = asyncio.Event()
        heard: list[tuple[str, bool]] = []

        def record(name: str, error: BaseException, again: bool) -> None:
            heard.append((name, again))
            asyncio.get_running_loop().call_soon(over.set)

        async def mistaken() -> None:
            raise ZeroDivisionError

        TASK_FAILURES.set(TaskFailures(record))
        with capture_logs() as lines:
            (SupervisedTasks() if many else BackgroundTask()).start(mistaken(), "divides")
            await over.wait()
        assert heard == [("divides", False)]
        [line] = lines
        assert line["log_level"] == "error"
        assert line["exc_info"].__notes__ == ["It ended the background task 'divides'."]

    play(story())
