"""A short soak with the tests; `python -m tests.torture.soak --minutes 30` is the long one."""

import asyncio
from pathlib import Path

import pytest

from tests.torture.churn import KINDS
from tests.torture.soak import SPARE, Sample, counted_node, judged, slope, soak, table

SECONDS = 60


@pytest.mark.integration
def test_everything_comes_and_goes_and_the_node_is_as_large_as_before(tmp_path: Path) -> None:
    with counted_node(tmp_path) as (node, census):
        samples, churn = asyncio.run(soak(node, SECONDS, census))
        told = node.log_tail()
    assert set(churn.done) >= {kind.__name__ for kind in KINDS}
    assert not judged(samples).grown, f"{table(samples, churn)}\n{told}"
    assert "Traceback" not in told
    assert all(samples[-1].counts[name] > 0 for name in ("tasks", "logs", "objects", "frozen", "blocks"))


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


def test_a_slow_rise_is_told_by_the_minute() -> None:
    assert slope(steps([1000, 100, *[100 + 2 * at for at in range(58)]])) / (1 << 20) == pytest.approx(120)
    assert slope(steps([100] * 60)) == 0


def test_too_short_a_run_proves_nothing() -> None:
    with pytest.raises(ValueError, match="3 samples are too few"):
        judged(steps([1, 1, 1]))
