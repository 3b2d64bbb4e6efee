"""Many groups look at topics that have changed a slice at a time, and each before its own next event."""

from collections.abc import Iterable

import pytest

from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    DeleteGroup,
    Loaded,
    ReviewTopics,
    TopicsChanged,
)
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard

SLICE, GROUPS, FIRST = 4, 11, 2
"""FIRST: the epoch of a group with its first member."""
T = bytes(15) + b"\1"
NAMES = [f"g{number}" for number in range(GROUPS)]


def catalog(partitions: int) -> TopicsChanged:
    return TopicsChanged({"t": partitions}, (), {"t": T})


def shard_with_groups(slice_positions: int = SLICE) -> Shard:
    """Each group has one KIP-848 member that reads `t`, of two partitions."""
    shard = Shard(Limits(slice_positions=slice_positions), 0)
    shard.step(catalog(2), 1)
    shard.step(Loaded(), 1)
    for number, name in enumerate(NAMES):
        shard.step(ConsumerHeartbeat(number, name, "m", 0, None, None, 60_000, ("t",), owned={}), 1)
    return shard


def epochs(shard: Shard, names: Iterable[str] = NAMES) -> list[int]:
    return [shard.consumer_groups[name].generation for name in names]


def finish(shard: Shard, effects: Effects, now_ms: int) -> int:
    """How many slices there were."""
    slices, left = 0, list(effects.chores)
    while left:
        slices += 1
        left += shard.step(left.pop(0), now_ms).chores
    return slices


def test_each_slice_is_a_step_and_in_the_end_all_have_looked() -> None:
    shard = shard_with_groups()
    effects = shard.step(catalog(3), 10)
    assert effects.chores == [ReviewTopics()]
    assert epochs(shard) == [FIRST] * GROUPS
    effects = shard.step(ReviewTopics(), 11)
    assert epochs(shard) == [FIRST + 1] * SLICE + [FIRST] * (GROUPS - SLICE)
    assert finish(shard, effects, 12) == 2
    assert epochs(shard) == [FIRST + 1] * GROUPS


def test_few_groups_look_immediately() -> None:
    shard = shard_with_groups(GROUPS)
    assert shard.step(catalog(3), 10).chores == []
    assert epochs(shard) == [FIRST + 1] * GROUPS


def test_a_group_has_looked_before_its_member_is_answered() -> None:
    shard = shard_with_groups()
    left = shard.step(catalog(3), 10)
    effects = shard.step(ConsumerHeartbeat(99, "g9", "m", FIRST), 11)
    whole = shard_with_groups(GROUPS)
    whole.step(catalog(3), 10)
    assert effects.replies == whole.step(ConsumerHeartbeat(99, "g9", "m", FIRST), 11).replies
    assert epochs(shard, ["g8", "g9"]) == [FIRST, FIRST + 1]
    finish(shard, left, 12)
    assert epochs(shard) == [FIRST + 1] * GROUPS, "nobody looks twice"


def test_a_refusal_is_one_even_if_the_group_had_to_look_first() -> None:
    shard = shard_with_groups()
    shard.step(catalog(3), 10)
    effects = shard.step(ConsumerHeartbeat(99, "g9", "stranger", 7), 11)
    assert [reply.code.name for _, reply in effects.replies] == ["UNKNOWN_MEMBER_ID"]
    assert epochs(shard, ["g9"]) == [FIRST + 1]
    assert effects.records


def test_topics_that_change_again_meanwhile_are_looked_at_by_all() -> None:
    shard = shard_with_groups()
    first = shard.step(catalog(3), 10)
    shard.step(first.chores[0], 11)
    again = shard.step(catalog(4), 12)
    assert again.chores == [], "the first look goes on"
    finish(shard, Effects(chores=[ReviewTopics()]), 13)
    assert epochs(shard) == [FIRST + 2] * SLICE + [FIRST + 1] * (GROUPS - SLICE)


def test_a_group_that_goes_meanwhile_is_passed_over() -> None:
    shard = shard_with_groups()
    left = shard.step(catalog(3), 10)
    shard.step(ConsumerHeartbeat(98, "g3", "m", -1), 11)
    shard.step(DeleteGroup(99, "g3"), 11)
    assert "g3" not in shard.consumer_groups
    finish(shard, left, 12)
    assert epochs(shard, [name for name in NAMES if name != "g3"]) == [FIRST + 1] * (GROUPS - 1)


def test_a_heartbeat_that_may_be_news_is_not_known_to_write_nothing() -> None:
    shard = shard_with_groups()
    steady = ConsumerHeartbeat(99, "g9", "m", FIRST)
    assert shard.writes_nothing(steady)
    left = shard.step(catalog(3), 10)
    assert not shard.writes_nothing(steady)
    finish(shard, left, 11)


def test_a_shard_that_is_loaded_has_looked() -> None:
    """What its groups are told when they are loaded rests on the topics that there are."""
    full = shard_with_groups()
    fresh = Shard(Limits(slice_positions=1), 0)
    fresh.state.groups.update(full.state.groups)
    assert fresh.step(catalog(3), 20).chores == []


@pytest.mark.parametrize("slice_positions", [1, 2, 5, 100])
def test_slices_of_any_size_come_to_the_same(slice_positions: int) -> None:
    shard = shard_with_groups(slice_positions)
    finish(shard, shard.step(catalog(5), 10), 10)
    whole = shard_with_groups(1_000)
    whole.step(catalog(5), 10)
    assert epochs(shard) == epochs(whole)
    asked = [ConsumerHeartbeat(number, name, "m", FIRST) for number, name in enumerate(NAMES)]
    assert [shard.step(each, 11).replies for each in asked] == [whole.step(each, 11).replies for each in asked]
