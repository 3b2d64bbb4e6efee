"""A short soak with the tests; `python -m tests.torture.soak --minutes 30` is the long one."""

import asyncio
from pathlib import Path

import pytest

from tests.support.node import running_node
from tests.torture.churn import KINDS
from tests.torture.soak import SETTINGS, SPARE, Sample, judged, soak, table

SECONDS = 90


@pytest.mark.integration
def test_everything_comes_and_goes_and_the_node_is_as_large_as_before(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", SETTINGS) as node:
        samples, churn = asyncio.run(soak(node, SECONDS))
        told = node.log_tail()
    assert set(churn.done) >= {kind.__name__ for kind in KINDS}
    assert not judged(samples).grown, f"{table(samples, churn)}\n{told}"
    assert "Traceback" not in told


def steps(rss: list[int], files: int = 30, more_files: int = 0) -> list[Sample]:
    return [Sample(at, size << 20, files + more_files * at, 9) for at, size in enumerate(rss)]


def test_what_grows_is_told() -> None:
    level = [60, *[100, 120, 90] * 20]
    assert judged(steps(level)).grown == []
    assert judged(steps([100 + at for at in range(60)])).grown == ["memory: 120 MiB at a third, 152 at the end"]
    found = judged(steps(level, more_files=1)).grown
    assert len(found) == 1
    assert found[0].startswith("file descriptors: 5")
    assert judged(steps(level, files=30 + SPARE)).grown == []


def test_too_short_a_run_proves_nothing() -> None:
    with pytest.raises(ValueError, match="3 samples are too few"):
        judged(steps([1, 1, 1]))
