"""Which of many groups is looked at when."""

import asyncio
from collections.abc import Callable

import pytest

from muster.coordinator.core.model.events import GroupObserved
from muster.coordinator.zookeeper import group_observer as observer_module
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.group_observer import ClusterSnapshot, GroupObserver
from muster.coordinator.zookeeper.session import SessionState

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

        async def look(self, around: ClusterSnapshot) -> GroupObserved:
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
