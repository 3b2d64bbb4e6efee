"""What counts as a static member's own where it missed a round, and who else may hold it."""

from muster.assignors.api import Member
from muster.coordinator.core.classic.group import absent_members, own_claims, shares_of_absent
from muster.coordinator.core.model.types import GroupState
from tests.support.stories.script import Stage


def a_group(protocols: str = "cooperative-sticky") -> Stage:
    """Two static members, of which the second misses the round that a third calls for."""
    stage = Stage()
    for command in (
        "topics t=4",
        f"join g a session=300000 rebalance=10000 remote=uniform protocols={protocols} instance=i",
        f"join g b session=300000 rebalance=10000 remote=uniform protocols={protocols} instance=k",
        "advance 6s",
        "sync g a",
        "sync g b",
        "planner later",
        f"join g c session=300000 rebalance=10000 remote=uniform protocols={protocols}",
        "join g a",
        "advance 10s",
    ):
        stage.run([command])
    assert stage.shard.groups["g"].state is GroupState.COMPLETING_REBALANCE
    return stage


def test_what_another_may_be_working_on_is_not_its_own_unless_it_had_it_before() -> None:
    claimed = {("t", 0): {"k", "x"}, ("t", 1): {"k", "x"}, ("t", 2): {"k"}}
    said = Member("k", ("t",), {"t": [1]}, 3)
    assert own_claims(said, {"t": [0, 1, 2]}, claimed) == {"t": [1, 2]}


def test_of_eager_members_nothing_is_supposed() -> None:
    group = a_group("cooperative-sticky,range").shard.groups["g"]
    assert (absent_members(group), shares_of_absent(group)) == ({}, {})
