"""A comparison with real processes: the books balance, however long the machine takes."""

import pytest

from muster.workshop.lab import real_comparison
from muster.workshop.lab.comparison import Workload
from muster.workshop.lab.generations import BY_NAME

pytestmark = pytest.mark.integration


def test_a_real_course_ends_with_every_chapter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("START_S", 5.0),
        ("CALM_S", 1.0),
        ("RESTART_S", 0.5),
        ("BETWEEN_RESTARTS_S", 1.5),
        ("REPLACED_S", 0.5),
    ):
        monkeypatch.setattr(real_comparison, name, seconds)
    workload = Workload(members=2, partitions=4, joining=1)
    (result,) = real_comparison.compare_in_real_time(workload, [BY_NAME["pushed"]])
    assert [chapter.name for chapter in result.chapters] == ["rolling restart", "crash", "scale-out"]
    assert result.chapters[0].costs.rebalances >= workload.members
    assert result.total.stops > 0
