"""Which of many groups is looked at when."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster.coordinator.core.model.events import GroupObserved
from muster.coordinator.edge import background_tasks
from muster.coordinator.edge.background_tasks import TASK_FAILURES, TaskFailures
from muster.coordinator.zookeeper import group_observer as observer_module
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.group_observer import ClusterSnapshot, GroupObserver
from muster.coordinator.zookeeper.session import SessionState, WatchEvent

RESTLESS = "a"


class Groups:
    """A session in which three groups are there and nothing else."""

    state = SessionState.CONNECTED

    def on_state(self, listener: object) -> None: ...

    async def connected(self) -> None: ...

    async def children(self, path: str, watch: object = None) -> list[str] | None:
        return [RESTLESS, "b", "c"] if path == layout.CONSUMERS else None

    async def get(self, path: str, watch: object = None) -> None: ...


def test_a_group_that_changes_all_the_time_keeps_nobody_from_looking_at_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    enough = asyncio.Event()

    class Watch:
        def __init__(self, session: object, group_id: str, changed: Callable[[], None], *, was_there: bool) -> None:
            self._group_id = group_id
            self._changed = changed

        async def observe_group(self, around: ClusterSnapshot) -> GroupObserved:
            looked.append(self._group_id)
            if self._group_id == RESTLESS:
                self._changed()
            if looked.count(RESTLESS) == 3:
                enough.set()
            await asyncio.sleep(0)
            return GroupObserved(self._group_id, (), {}, {}, ())

    async def story() -> None:
        seen: list[str] = []
        observer = GroupObserver(Groups(), lambda event: seen.append(event.group_id))  # type: ignore[arg-type]
        observer.start()
        await enough.wait()
        await observer.stop()
        assert {"b", "c"} <= set(seen)

    monkeypatch.setattr(observer_module, "GroupWatch", Watch)
    asyncio.run(story())


def test_a_group_that_goes_while_it_is_looked_at_ends_the_look_and_nothing_else() -> None:
    """As every console consumer of that time does at its end: it takes its group along."""

    class Leaving(Groups):
        groups = ("a", "b")
        watch: Callable[[WatchEvent], None] = staticmethod(lambda fired: None)

        async def children(self, path: str, watch: Any = None) -> list[str] | None:
            if path != layout.CONSUMERS:
                return None
            self.watch = watch
            return list(self.groups)

        def change(self, *groups: str) -> None:
            self.groups = groups
            self.watch(WatchEvent("child", layout.CONSUMERS))

        async def listing(self, path: str, watch: object = None) -> None: ...

        async def exists(self, path: str, watch: object = None) -> bool:
            if self.groups == ("a", "b"):
                self.change("a")  # b, which is next, goes while a is looked at
            return False

    async def story() -> None:
        session = Leaving()
        seen: asyncio.Queue[str] = asyncio.Queue()
        failures = TaskFailures()
        TASK_FAILURES.set(failures)
        observer = GroupObserver(session, lambda event: seen.put_nowait(event.group_id))  # type: ignore[arg-type]
        observer.start()
        async with asyncio.timeout(5):
            assert await seen.get() == "a"
            await asyncio.sleep(0.05)
            session.change("a", "later")
            assert await seen.get() == "later"
        await observer.stop()
        assert not failures.counts

    asyncio.run(story())


def test_a_look_that_ends_by_a_mistake_is_begun_again_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_tasks, "FIRST_PAUSE_S", 0.001)

    class Watch:
        mistakes = 1

        def __init__(self, session: object, group_id: str, changed: Callable[[], None], *, was_there: bool) -> None:
            self._group_id = group_id

        async def observe_group(self, around: ClusterSnapshot) -> GroupObserved:
            if self._group_id == "b" and Watch.mistakes:
                Watch.mistakes -= 1
                raise StopIteration
            return GroupObserved(self._group_id, (), {}, {}, ())

    async def story() -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()
        heard: list[str] = []
        TASK_FAILURES.set(TaskFailures(lambda name, error, again: heard.append(name)))
        observer = GroupObserver(Groups(), lambda event: seen.put_nowait(event.group_id))  # type: ignore[arg-type]
        observer.start()
        async with asyncio.timeout(5):
            told = [await seen.get() for _ in range(3)]
        await observer.stop()
        assert told == [RESTLESS, "c", "b"], "those whose turn it was come before the one that it failed at"
        assert heard == ["groups in ZooKeeper"]

    monkeypatch.setattr(observer_module, "GroupWatch", Watch)
    asyncio.run(story())
