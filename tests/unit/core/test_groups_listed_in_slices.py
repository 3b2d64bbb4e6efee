"""ListGroups of a shard with many groups: a slice in each step, all of them in one reply."""

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Effects, ListReply
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard


def shard_with(groups: int, slice_of: int) -> Shard:
    shard = Shard(Limits(slice_positions=slice_of), 0)
    shard.step(events.Loaded(), 0)
    shard.step(events.TopicsChanged({"t": 1}, ids={"t": b"t" * 16}), 0)
    for number in range(groups):
        shard.step(events.OffsetCommit(number, f"g{number}", "", None, -1, {("t", 0): CommittedOffset(1)}), 1)
    return shard


def listed(effects: Effects) -> list[str] | None:
    for _, reply in effects.replies:
        assert isinstance(reply, ListReply)
        return [group.group_id for group in reply.groups]
    return None


def test_many_are_listed_in_slices_and_a_group_that_goes_meanwhile_is_left_out() -> None:
    shard = shard_with(8, slice_of=3)
    effects, steps = shard.step(events.ListGroups(1), 2), 1
    while (found := listed(effects)) is None:
        (rest,) = effects.chores
        if steps == 1:
            shard.step(events.DeleteGroup(2, "g7"), 2)
        effects, steps = shard.step(rest, 2), steps + 1
    assert sorted(found) == [f"g{number}" for number in range(7)]
    assert steps == 3


def test_filters_hold_in_every_slice() -> None:
    effects = (shard := shard_with(5, slice_of=2)).step(events.ListGroups(1, states=("Stable",)), 2)
    while listed(effects) is None:
        effects = shard.step(effects.chores[0], 2)
    assert listed(effects) == []
