"""What the log needs every now and then is done, whatever else of it fails."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.config import load_settings
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend import upkeep as upkeep_module
from muster.coordinator.server.backend.upkeep import NodeUpkeep


class Log:
    """One that has nothing to do; it counts how often it was asked."""

    def __init__(self) -> None:
        self.troubles = SimpleNamespace(current=list)
        self.ticks = 0
        self.often = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tick(self, now_ms: int, *, compacting: bool, aged: list[Any]) -> list[str]:
        self.ticks += 1
        if self.ticks == 3:
            self._loop.call_soon_threadsafe(self.often.set)
        return []


@pytest.mark.parametrize("fails", ["DiskRoom.shortage", "WriteProbe.refusal", "LogConditions.carry"])
def test_a_look_that_fails_ends_neither_retention_nor_the_watch_on_the_directory(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such device")

    async def story() -> None:
        log, conditions, failed = Log(), Conditions(lambda: 0), asyncio.get_running_loop().create_future()
        upkeep = NodeUpkeep(
            load_settings(None, {"log.dirs": str(tmp_path)}),
            SimpleNamespace(now_ms=lambda: 0),  # type: ignore[arg-type]
            conditions,
            log,  # type: ignore[arg-type]
            SimpleNamespace(take_losses=list),
            SimpleNamespace(starved={}),  # type: ignore[arg-type]
            failed.set_result,
        )
        async with asyncio.timeout(60):
            await log.often.wait()
            assert "no such device" in str(conditions.sentence("upkeep-failing"))
            (tmp_path / ".lock").unlink()
            assert "was removed, moved or unmounted" in str(await failed)
        upkeep.stop()

    (tmp_path / ".lock").write_text("1\n")
    monkeypatch.setattr(upkeep_module, "TICK_S", 0.01)
    monkeypatch.setattr(getattr(upkeep_module, fails.partition(".")[0]), fails.partition(".")[2], fail)
    asyncio.run(story())
