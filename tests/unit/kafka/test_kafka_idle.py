"""A connection is idle for what its client did not say, not for what the node could not hear."""

import asyncio
import time
from dataclasses import replace

import pytest

from muster.coordinator.kafka.connections import listener as listener_module
from tests.support.kafka.listener import CONNECTION, LIMITS, HeldHandlers, client, listening

IDLE_S = CONNECTION.max_idle_ms / 1000


def test_time_in_which_the_node_stood_still_is_nobodys_silence() -> None:
    async def story() -> None:
        async with listening(HeldHandlers()) as (listener, port), client(port) as connection:
            await connection.ask("ApiVersions", 0)
            now_s = asyncio.get_running_loop().time()
            listener.reap(now_s + IDLE_S + 15, late_s=16)
            await connection.ask("ApiVersions", 0)
            listener.reap(now_s + IDLE_S + 15, late_s=16)
            listener.reap(now_s + 2 * IDLE_S + 30)
            assert await connection.closed_by_node(), "the stall does not count twice, and silence does"

    asyncio.run(story())


def test_a_node_that_stood_still_for_longer_than_clients_may_closes_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_module, "SWEEP_S", 0.01)
    limits = replace(LIMITS, connection=replace(CONNECTION, max_idle_ms=1_000))

    async def story() -> None:
        async with listening(HeldHandlers(), limits) as (listener, port), client(port) as connection:
            await connection.ask("ApiVersions", 0)
            swept = asyncio.get_running_loop().create_future()
            look = listener.reap

            def reap(now_s: float, late_s: float = 0.0) -> None:
                look(now_s, late_s)
                if late_s > 1 and not swept.done():
                    swept.set_result(None)

            monkeypatch.setattr(listener, "reap", reap)
            asyncio.get_running_loop().call_soon(time.sleep, 1.5)  # the stall
            await swept
            assert listener.connections == 1
            await connection.ask("ApiVersions", 0)

    asyncio.run(story())
