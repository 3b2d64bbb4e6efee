"""What pins and drains change of a plan leaves members as even as the assignor made them: by what partitions weigh."""

from collections.abc import Mapping, Sequence

from muster.assignors.api import JsonValue, Member, Snapshot
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.plan_correction import GroupSituation, correct_with_overrides
from muster.coordinator.core.model.records import Freeze, HoldsStored, MemberIdentifiers, Pin

PLAN: Plan = {"a": {"t": (0,)}, "b": {"t": (1, 2, 3, 4)}}
HEAVY = {"t": [900, 200, 200, 200, 200]}


def situation(
    had: Plan, lags: Mapping[str, Sequence[int]] | None, options: Mapping[str, JsonValue] | None = None
) -> GroupSituation:
    members = [Member(name, ("t",)) for name in sorted({*had, "a", "b"})]
    snapshot = Snapshot({"t": 5}, members, lags=lags, assignor="lag-sticky", options=options or {})
    return GroupSituation(snapshot, {each.id: MemberIdentifiers(each.id, None, each.id, "h") for each in members}, had)


def loads(plan: Plan) -> dict[str, int]:
    return {name: sum(HEAVY["t"][number] for number in share.get("t", ())) for name, share in plan.items()}


def test_for_a_heavy_partition_that_is_pinned_to_him_he_gives_what_makes_both_even() -> None:
    pinned = HoldsStored("g", pins=(Pin("t", 0, "b"),))
    by_weight = correct_with_overrides(PLAN, pinned, situation(PLAN, HEAVY)).plan
    assert by_weight["b"]["t"][0] == 0
    assert loads(by_weight) == {"a": 800, "b": 900}
    by_count = correct_with_overrides(PLAN, pinned, situation(PLAN, None)).plan
    assert [len(share["t"]) for share in by_count.values()] == [1, 4], "one for one"


def test_for_an_idle_one_he_gives_nothing() -> None:
    even: Plan = {"a": {"t": (0, 4)}, "b": {"t": (1, 2, 3)}}
    idle = {"t": [500, 200, 200, 200, 0]}
    pinned = HoldsStored("g", pins=(Pin("t", 4, "b"),))
    assert correct_with_overrides(even, pinned, situation(even, idle)).plan == {
        "a": {"t": (0,)},
        "b": {"t": (1, 2, 3, 4)},
    }
    assert correct_with_overrides(even, pinned, situation(even, None)).plan["a"]["t"] != (0,)


def test_a_member_that_can_carry_more_carries_more() -> None:
    had: Plan = {"a": {"t": (0, 1)}, "b": {"t": (2, 3)}}
    frozen = HoldsStored("g", freeze=Freeze())
    options: dict[str, JsonValue] = {"member.capacity": {"b": 3.0}}
    assert correct_with_overrides(had, frozen, situation(had, None, options)).plan["b"]["t"] == (2, 3, 4)
    assert correct_with_overrides(had, frozen, situation(had, None)).plan["a"]["t"] == (0, 1, 4)
