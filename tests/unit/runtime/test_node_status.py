"""Trouble is told when it begins and when it is over, counted meanwhile, and bounded in number."""

import pytest

from muster.coordinator.runtime.node_status import GROUPS, MAX_CONDITIONS, MORE, Condition, Conditions


class Told:
    """A clock to set, and what a listener heard."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.heard: list[tuple[str, bool, int]] = []
        self.conditions = Conditions(lambda: self.now_ms, self.hear)

    def hear(self, condition: Condition, begins: bool) -> None:
        self.heard.append((condition.name, begins, condition.count))

    def names(self) -> list[str]:
        return [condition.name for condition in self.conditions.current()]


@pytest.fixture
def told() -> Told:
    return Told()


def test_trouble_is_told_once_counted_meanwhile_and_told_when_it_is_over(told: Told) -> None:
    for told.now_ms in (1_000, 2_000, 3_000):
        told.conditions.report("shard-failed:7", f"at {told.now_ms}", impairs=GROUPS)
    (condition,) = told.conditions.current()
    assert (condition.since_ms, condition.last_ms, condition.count) == (1_000, 3_000, 3)
    assert condition.sentence == "at 3000"
    assert told.conditions.sentence("shard-failed:7") == "at 3000"
    assert told.conditions.impaired() == {GROUPS}
    told.conditions.clear("shard-failed:7")
    assert told.names() == []
    assert told.conditions.sentence("shard-failed:7") is None
    assert told.conditions.impaired() == frozenset()
    assert told.heard == [("shard-failed:7", True, 1), ("shard-failed:7", False, 3)]


def test_what_was_never_wrong_cannot_be_over(told: Told) -> None:
    told.conditions.clear("disk-full")
    assert told.heard == []


def test_what_nobody_clears_runs_out_unless_it_is_reported_again(told: Told) -> None:
    told.conditions.report("loop-late", "1.2 s", lasting_ms=60_000)
    told.now_ms += 59_999
    assert told.names() == ["loop-late"]
    told.conditions.report("loop-late", "1.3 s", lasting_ms=60_000)
    told.now_ms += 59_999
    assert told.names() == ["loop-late"]
    told.now_ms += 1
    assert told.names() == []
    assert told.heard == [("loop-late", True, 1), ("loop-late", False, 2)]


def test_the_oldest_comes_first(told: Told) -> None:
    told.conditions.report("b", "b")
    told.now_ms += 1
    told.conditions.report("a", "a")
    told.conditions.report("b", "b again")
    assert told.names() == ["b", "a"]


def test_ten_thousand_troubles_are_not_kept_each(told: Told) -> None:
    for number in range(10_000):
        told.conditions.report(f"log-fenced:t-{number}", "broken")
    assert len(told.names()) == MAX_CONDITIONS + 1
    assert (
        told.conditions.sentence(MORE)
        == "more than 100 things are wrong; mend those that are named, and the rest shows"
    )
    for number in range(50):
        told.conditions.clear(f"log-fenced:t-{number}")
    assert MORE not in told.names()
    told.conditions.report("log-fenced:t-9999", "broken")
    assert "log-fenced:t-9999" in told.names()
