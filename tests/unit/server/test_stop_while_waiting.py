"""A node of a cluster that waits for the others, and is to stop."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from muster.coordinator.config import load_settings
from muster.coordinator.server.node import main


class Waiting:
    """A node that never starts."""

    ended, has_engine = "", False

    def __init__(self, settings: object) -> None: ...

    async def start(self) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            Waiting.ended = "given back"
            raise


def test_who_waits_for_others_stops_when_it_is_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "CoordinatorNode", Waiting)
    given = {"log.dirs": str(tmp_path), "zookeeper.connect": "127.0.0.1", "inter.broker.listeners": "127.0.0.1:0"}
    try:
        assert asyncio.run(main.serve_until_stopped(load_settings(None, given), None)) == main.EXIT_OK
    finally:
        main.gc.enable()
    assert Waiting.ended == "given back"
