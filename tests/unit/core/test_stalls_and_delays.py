"""A node that stood still: which groups hear of it, and what becomes of a delay that ran meanwhile (KIP-415)."""

import pytest

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.kinds.classic_kind import ClassicKind
from muster.coordinator.core.model.events import StoodStill
from tests.support.stories.script import Stage

GIVEN = "given {group} session=1200000 rebalance=20000 protocols=delayed topics=r,s"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups that hear of a stall."""
    groups, hear = list[str](), ClassicKind.stood_still

    def noted(group: ClassicGroup, event: StoodStill, step: object) -> None:
        groups.append(group.id)
        hear(group, event, step)  # type: ignore[arg-type]

    monkeypatch.setattr(ClassicKind, "stood_still", staticmethod(noted))
    return groups


def stage_with(*groups: str) -> Stage:
    """In `g` a delay of five minutes begins; in the others none runs."""
    stage = Stage()
    stage.run(["advance 2h"])
    for group in groups:
        stage.run([GIVEN.format(group=group), "a: r-0", "b: s-0"])
    stage.run(["leave g b"])
    stage.run(["join g a owned=r-0"])
    stage.run(["sync g a state=lost:s delay=300s", "a: r-0"])
    return stage


def delay_left(stage: Stage) -> str:
    (line,) = stage.run(['join g a owned=r-0 reason="once more"'])
    return line.split("delay left ")[1]


def test_a_stall_is_told_to_groups_in_which_a_delay_runs_and_no_others(told: list[str]) -> None:
    """To tell 100,000 groups, nearly all of which count by timers alone, took 0.2 s: each stall was followed by
    another."""
    stage = stage_with("f", "g", "h")
    stage.run(["stall 10s"])
    assert told == ["g"]


def test_a_delay_ends_later_by_a_stall_after_a_reload_as_well(told: list[str]) -> None:
    stage = stage_with("g")
    stage.run(["advance 60s"])
    stage.run(["reload"])
    stage.run(["stall 10s"])
    assert told == ["g"]
    assert delay_left(stage) == "240000ms"


def test_a_group_whose_delay_is_over_and_forgotten_hears_of_no_stall(told: list[str]) -> None:
    stage = stage_with("g")
    stage.run(["join g a owned=r-0"])
    stage.run(["sync g a", "a: r-0"])
    stage.run(["stall 10s"])
    assert told == []
