"""What control knows of groups, as Prometheus reads it: the weight that balance goes by, and what shadows think."""

import pytest

from muster.coordinator.core.control.balance.evaluation import OngoingBalance, group_likeness
from muster.coordinator.core.control.balance.loads import PaidRounds, PartitionLoads, problem_of
from muster.coordinator.core.control.trials.shadow_assignors import SHADOW_ASSIGNORS
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.records import RebalanceDecided, RebalanceShadowed, SettingsStored, SettingsUnset
from muster.coordinator.core.model.types import MemberPlan, Score
from muster.coordinator.core.settings.shapes import BalanceRules
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.metrics.scrape import SeriesGranularity
from muster.coordinator.observability.metrics.table import FAMILIES, Level
from tests.support.series_source import store_group
from tests.unit.observability.metrics.test_scrape import Scraped, entry, names, of, two_members


def test_balance_by_the_weight_that_the_group_s_balance_goes_by() -> None:
    """Load over capacity: 8 a second of 2 machines by a, 4 of one by b. After a change of the group nobody knows."""
    source = two_members()
    [shard] = source.shards
    state, group = shard.state, shard.state.groups["g"]
    loads = PartitionLoads({"t": 4}, 1_000)
    for at_ms, written in ((0, (0, 0, 0, 0)), (10_000, (20, 20, 40, 40))):
        loads.record_positions("t", 0, written, written, at_ms)
        loads.taken()
    snapshot = KINDS[type(group)].snapshot(group, Step(state, 0))
    assert snapshot is not None
    problem = problem_of(snapshot, group_likeness(group, loads, state), {"member.capacity": {"a": 2.0}})
    state.balancing["g"] = OngoingBalance(BalanceRules(), PaidRounds(), loads=loads, problem=problem)
    scraped = Scraped(source)
    ratio = {"name": "muster_group_imbalance_ratio", "group": "g", "by": "weight"}
    assert of(scraped.read(), **ratio) == pytest.approx(1.0)
    loads.record_positions("t", 3, (120,), (120,), 20_000)
    assert of(scraped.read(), **ratio) > 1.1  # type: ignore[operator]
    store_group(shard, "g", {"a": {"t": (0, 1)}, "b": {"t": (2, 3)}})
    shard.apply(SettingsStored("g", 1, {"balance": "watch"}))
    assert of(scraped.read(), **ratio) is None


DEALT = (MemberPlan("a", "", "", None, (("t", (0, 1)),)), MemberPlan("b", "", "", None, (("t", (2,)),)))


def shadowed(shard: Shard, group_id: str, *differs: int) -> None:
    """A decision for each figure: so many of four partitions would have gone to somebody else by `uniform`."""
    words = ["uniform", 'lag{"seed": 1}', "sticky"]
    shard.apply(SettingsStored(group_id, 1, {SHADOW_ASSIGNORS.name: words}))
    for number, share in enumerate(differs, 1):
        shard.apply(RebalanceDecided(group_id, entry(number, members=DEALT)))
        scores = (Score("range", unassigned=1), Score("uniform", differs=share), Score("sticky", failure="no"))
        shard.apply(RebalanceShadowed(group_id, number, (*scores, Score("roundrobin", differs=4))))


def test_how_far_a_shadow_disagrees_in_the_latest_decisions() -> None:
    """Of all partitions that were dealt out; what is set as a shadow no more, failed, or is older is left out."""
    source = two_members()
    [shard] = source.shards
    scraped = Scraped(source)
    store_group(shard, "h", {"a": {"t": (0, 1)}})
    shadowed(shard, "g", 4, 1)
    shadowed(shard, "h", 4, 3)
    shard.apply(RebalanceDecided("g", entry(3, members=DEALT)))  # not made again yet
    found = scraped.read()
    assert of(found, "muster_shadow_disagreement_ratio", assignor="uniform") == (1 + 3) / (4 + 4)
    told = {labels for name, labels in found if name == "muster_shadow_disagreement_ratio"}
    assert told == {frozenset({("assignor", "uniform")})}
    for group_id in ("g", "h"):
        shard.apply(SettingsUnset(group_id))
    assert "muster_shadow_disagreement_ratio" not in names(scraped.read())


def test_every_line_is_of_a_family_of_the_table_and_has_its_labels() -> None:
    source = two_members()
    shadowed(source.shards[0], "g", 2)
    scraped = Scraped(source, SeriesGranularity(commit_age=True))
    scraped.rebalances.count_rebalance("g", "classic", entry(1, unowned_partition_ms=5))
    scraped.fenced["g", ErrorCode.STALE_MEMBER_EPOCH] = 1
    scraped.read(0)
    found = scraped.read(10_000)
    for name, labels in found:
        family = FAMILIES.get(name) or FAMILIES[name.rpartition("_")[0]]
        assert {label for label, _ in labels} - {"le"} == set(family.labels), name
    written = {name if name in FAMILIES else name.rpartition("_")[0] for name in names(found)}
    assert written == {family.name for family in FAMILIES.values() if family.level is not Level.NODE}
