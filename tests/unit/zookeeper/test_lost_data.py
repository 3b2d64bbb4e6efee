"""That ZooKeeper was restored from an older copy is said only where a node's own session stays refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from muster.coordinator.zookeeper import lost_data
from muster.coordinator.zookeeper.lost_data import LostData, LostDataCheck
from muster.coordinator.zookeeper.session import SessionState

OLDER = LostData("it was restored from an older copy", in_touch=False, refused=True)
GONE = LostData("its chroot is gone", in_touch=False)
PATIENCE_S = 5


class Session:
    """A ZooKeeperSession whose connection a test breaks and mends."""

    session_timeout_ms = 1

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self._tell: Callable[[SessionState], None] = lambda state: None
        self.waited = asyncio.Event()
        """Somebody waits for the connection."""
        self._in_touch = asyncio.Event()

    def on_state(self, tell: Callable[[SessionState], None]) -> None:
        self._tell = tell

    def become(self, state: SessionState) -> None:
        self.state = state
        (self._in_touch.set if state is SessionState.CONNECTED else self._in_touch.clear)()
        self._tell(state)

    async def connected(self) -> None:
        self.waited.set()
        await self._in_touch.wait()


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = Session()
        self.found: list[LostData | None] = []
        self.told = asyncio.Event()
        self.asked = asyncio.Event()
        self.answer = OLDER
        self.check = LostDataCheck(cast(Any, self.session), lambda: "c", self._hear)
        monkeypatch.setattr(self.check, "_ask_anew", self._ask)
        monkeypatch.setattr(self.check, "_look", self._look)

    def _hear(self, found: LostData | None) -> None:
        self.found.append(found)
        self.told.set()

    async def _ask(self) -> LostData:
        self.asked.set()
        return self.answer

    async def _look(self, session: object) -> None:
        """All is there."""

    async def next(self) -> LostData | None:
        """What is told next."""
        self.told.clear()
        await self.told.wait()
        return self.found[-1]


def run(
    story: Callable[[Scene], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch, confirm_s: float = 0.02
) -> None:
    monkeypatch.setattr(lost_data, "CHECK_S", 0.005)
    monkeypatch.setattr(lost_data, "CONFIRM_S", confirm_s)

    async def whole() -> None:
        scene = Scene(monkeypatch)
        scene.check.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await scene.next() is None
                await story(scene)
        finally:
            await scene.check.stop()

    asyncio.run(whole())


def test_a_session_that_stays_refused_where_another_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.session.become(SessionState.LOST)
        assert await scene.next() == OLDER

    run(story, monkeypatch)


def test_one_that_connects_soon_after_the_other_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the process stood still, or waited between two tries."""

    async def story(scene: Scene) -> None:
        scene.session.become(SessionState.SUSPENDED)
        await scene.session.waited.wait()
        scene.session.become(SessionState.CONNECTED)
        assert await scene.next() is None
        assert OLDER not in scene.found

    run(story, monkeypatch, confirm_s=60)


def test_what_a_process_that_stood_still_saw_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_data, "LATE_S", -60.0)  # every wait is late

    async def story(scene: Scene) -> None:
        scene.session.become(SessionState.LOST)
        for _ in range(2):
            scene.asked.clear()
            await scene.asked.wait()
        scene.session.become(SessionState.CONNECTED)
        assert await scene.next() is None
        assert OLDER not in scene.found

    run(story, monkeypatch)


def test_a_connection_between_two_looks_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.session.session_timeout_ms = 3_600_000
        scene.session.become(SessionState.SUSPENDED)
        first_s = scene.check._away_since_s
        scene.session.become(SessionState.CONNECTED)
        scene.session.become(SessionState.SUSPENDED)
        assert first_s is not None
        assert scene.check._away_since_s is not None
        assert scene.check._away_since_s > first_s

    run(story, monkeypatch)


def test_a_chroot_that_is_gone_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.answer = GONE
        scene.session.become(SessionState.LOST)
        assert await scene.next() == GONE
        assert not scene.session.waited.is_set()

    run(story, monkeypatch)
