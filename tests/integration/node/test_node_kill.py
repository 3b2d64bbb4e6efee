"""The short form of `python -m tests.torture.node_kill`."""

import asyncio
from pathlib import Path

import pytest

from tests.torture.node_kill import torture

pytestmark = pytest.mark.integration


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    promises = asyncio.run(torture(rounds=5, seed=7, data=tmp_path / "data"))
    # Without work in every round the kills would have hit nothing.
    assert promises.commits >= 5
    assert promises.rebalances >= 5
