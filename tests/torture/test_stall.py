"""A node that was frozen for longer than every session expels nobody, by either door, and says that it was the node."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.support.node import running_node
from tests.torture.stall import KINDS, Times, scenario, settings, told_of_stalls, topic

pytestmark = pytest.mark.integration

TIMES = Times(session_ms=2_000, beat_ms=400)
FREEZE_S = 4.0
MEMBERS = 10


@pytest.mark.timeout(240)
def test_a_frozen_node_expels_nobody_and_says_that_it_stood_still(tmp_path: Path) -> None:
    async def story() -> tuple[Counter[str], list[list[int]]]:
        await topic(node)
        expelled = await scenario(node, "freeze", MEMBERS, FREEZE_S, TIMES)
        return expelled, [await told_of_stalls(node, f"{kind}-0") for kind in KINDS]

    with running_node(tmp_path / "data", settings(TIMES)) as node:
        expelled, told = asyncio.run(story())
        assert expelled == Counter()
        for stalls in told:
            assert max(stalls) > (FREEZE_S - 0.5) * 1000
        log = node.log_tail()
    assert "name=loop-late" in log
    assert "the node stood still for" in log
    assert "nobody was expired for it" in log
