"""Calls that are cancelled while they are parked leave nothing: objects are counted, memory comes and goes by pages."""

import asyncio
import gc
from collections import Counter
from pathlib import Path

import grpc
import pytest

from tests.support.grpc_node import serving
from tests.torture.churn import Churn, calls_are_cancelled

pytestmark = pytest.mark.integration

FEW, MANY = 20, 60
SPARE = 8
"""What is under way, and groups that a call opened which was cancelled too late: these go by their own time limits."""

EACH = {"RebalancePhase": 3}
"""What is known of one such group may be of more than one object."""

FAREWELLS = {"GroupLedger": 1, "RebalanceEntry": 1}
"""Who deleted a group is told for a while, of so many groups at most: see `noted.MAX_FAREWELLS`."""


def ours() -> Counter[str]:
    """The node's objects by the name of their class. Two runs, for what comes back to life in the first."""
    gc.collect()
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if str(type(each).__module__).startswith("muster."))


def test_what_was_parked_is_given_back(tmp_path: Path) -> None:
    async def run() -> tuple[Counter[str], Counter[str]]:
        async with serving(tmp_path, logging_level="error") as node:
            address = f"127.0.0.1:{node.bound.port}"
            churn = Churn(address, "127.0.0.1:1")
            async with grpc.aio.insecure_channel(address) as channel:

                async def cancelled(times: int) -> Counter[str]:
                    for _ in range(times):
                        await calls_are_cancelled(churn, channel)
                    return ours()

                await cancelled(FEW)
                return await cancelled(FEW), await cancelled(MANY)

    before, after = asyncio.run(run())
    assert before["Shard"] >= 4, "the node's own objects are seen; a test before this one may have left some"
    grown = {
        name: count - before[name]
        for name, count in after.items()
        if count - before[name] > SPARE * EACH.get(name, 1) + FAREWELLS.get(name, 0) * MANY
    }
    assert grown == {}
