"""A node notes what its groups do only where somebody may ask for it."""

import asyncio
import subprocess
import sys
from pathlib import Path

from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import serving


def samplers(node: CoordinatorNode) -> int:
    return sum(task.get_name() == "samples of groups" for task in asyncio.all_tasks())


async def whether(data: Path, **more: str) -> tuple[bool, int, int]:
    async with serving(data, **more) as node:
        found = node.history is not None, samplers(node)
    return *found, samplers(node)


def test_a_node_by_itself_samples_nothing(tmp_path: Path) -> None:
    assert asyncio.run(whether(tmp_path)) == (False, 0, 0)


def test_a_node_with_the_scaler_samples_until_it_stops(tmp_path: Path) -> None:
    found, running, afterwards = asyncio.run(whether(tmp_path, scaler_enable="true"))
    assert (found, running, afterwards) == (True, 1, 0)


def test_the_scaler_is_imported_only_where_it_is_wanted() -> None:
    look = "import muster.coordinator.server.node.node, sys; print([name for name in sys.modules if 'scaler' in name])"
    told = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
