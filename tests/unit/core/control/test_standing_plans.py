"""When a plan stands though members left, and since when what waits for their heirs has had no owner."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.server_side_assignment import carry_waiting_shares
from muster.coordinator.core.control.overrides.overrides import standing_plan
from muster.coordinator.core.groups.extensions import StandingPlan
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.registry import FACTS
from muster.coordinator.core.model.ledger import WithheldPartition
from muster.coordinator.core.model.records import Freeze, HeldShare, HoldsStored, Orphans, Until
from muster.coordinator.core.model.types import Limits

SHARE = HeldShare("a", "c", (("t", (0, 1)),), Until(9_000, 9_000))
WAITING = {"a": (("t", 0), ("t", 1))}
FROZEN = "what it had stays without an owner while the group is frozen"
HEIR = "its partitions wait for a replacement"
KEEP, GIVE = Freeze(Orphans.KEEP), Freeze(Orphans.GIVE)


def state(**held: Any) -> ShardState:
    return ShardState(Limits(), FACTS, holds={"g": HoldsStored("g", **held)} if held else {})


@pytest.mark.parametrize(
    ("held", "planned_here", "departed", "standing"),
    [
        ({}, True, ["a"], None),
        ({"shares": (SHARE,)}, True, ["a"], StandingPlan(HEIR, WAITING)),
        ({"shares": (SHARE,)}, True, [], StandingPlan(HEIR, WAITING)),
        ({"shares": (SHARE,)}, True, ["a", "b"], None),
        ({"shares": (SHARE,)}, False, ["a"], None),
        ({"freeze": KEEP}, True, ["a"], StandingPlan(FROZEN, {})),
        ({"freeze": KEEP}, False, ["a"], StandingPlan(FROZEN, {})),
        ({"freeze": KEEP, "shares": (SHARE,)}, True, ["b"], StandingPlan(FROZEN, WAITING)),
        ({"freeze": GIVE}, True, ["a"], None),
        ({"freeze": GIVE, "shares": (SHARE,)}, True, ["a"], None),
        ({"freeze": GIVE}, False, ["a"], StandingPlan(FROZEN, {})),
    ],
)
def test_a_plan_stands_where_a_share_waits_or_the_group_is_frozen(
    held: dict[str, Any], planned_here: bool, departed: list[str], standing: StandingPlan | None
) -> None:
    assert standing_plan("g", planned_here, departed, state(**held)) == standing


def test_what_still_waits_has_had_no_owner_since_before_the_plan() -> None:
    group = ClassicGroup("g")
    before = {("t", 0): WithheldPartition("a", 5), ("u", 0): WithheldPartition("b", 6)}
    for held, carried in (({}, {}), ({"shares": (SHARE,)}, {("t", 0): before["t", 0]})):
        step: Any = SimpleNamespace(state=state(**held))
        carry_waiting_shares(group, before, step)
        assert group.carried == carried
