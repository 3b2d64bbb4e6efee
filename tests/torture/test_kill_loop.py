"""A short kill loop for every run; `python -m tests.torture` has the long one."""

from pathlib import Path

import pytest

from tests.torture.killing import loop


@pytest.mark.integration
def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    acknowledged, _ = loop(tmp_path / "data", rounds=4, seed=6)
    # Each life acknowledges one flush of 24 records at least.
    assert acknowledged >= 96
