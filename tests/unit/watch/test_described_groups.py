"""Groups whose records nobody may read: what descriptions tell is told as that, and nothing more."""

import asyncio
from collections.abc import Sequence
from typing import Any

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.model.events import GroupSeen, RecordsWatched, WatchStood
from muster.coordinator.core.model.records import GroupDeleted, OffsetsStored, RebalanceDecided, Record
from muster.coordinator.core.model.types import Cause, Certainty, Limits, Outcome, RebalanceEntry
from muster.coordinator.core.watched.looked_groups import LookedGroup, LookedMember, entry_of, facts_of
from muster.coordinator.core.watched.watched_shard import WatchedShard
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.group_requests import ListedUpstreamGroup
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.watch.described_groups import DescribedGroups
from tests.fakes.upstream_broker import UpstreamBroker, metadata

ORDERS = b"o" * 16


def member(name: str, *partitions: int, epoch: int = 0) -> LookedMember:
    return LookedMember(name, None, name, "/h", {"orders": partitions}, epoch=epoch)


def group(*members: LookedMember) -> LookedGroup:
    return LookedGroup("readers", "consumer", "range", {each.id: each for each in members})


def told(before: LookedGroup, now: LookedGroup) -> RebalanceEntry:
    entry = entry_of(before, now, 5_000)
    assert entry is not None
    return entry


def test_who_came_is_inferred_and_what_moved_has_no_times() -> None:
    entry = told(group(member("a", 0, 1)), group(member("a", 0), member("b", 1)))
    assert (entry.cause, entry.certainty, entry.culprit) == (Cause.MEMBER_JOINED, Certainty.INFERRED, "b")
    [move] = entry.moves
    assert (move.partition, move.source, move.target, move.unowned_ms) == (1, "a", "b", -1)
    assert (entry.previous_generation, entry.generation, entry.phases) == (0, 0, ())


def test_how_a_member_went_is_unknown() -> None:
    entry = told(group(member("a", 0), member("b", 1)), group(member("a", 0, 1)))
    assert (entry.cause, entry.certainty, entry.culprit) == (Cause.MEMBER_LEFT, Certainty.UNKNOWN, "b")
    assert "left, or their sessions expired: b" in entry.detail


def test_what_set_it_off_is_unknown_where_some_came_and_some_went() -> None:
    entry = told(group(member("a", 0)), group(member("b", 0)))
    assert (entry.cause, entry.certainty, entry.culprit) == (Cause.UNSPECIFIED, Certainty.UNKNOWN, "")


def test_a_group_that_nobody_is_in_any_more_is_emptied() -> None:
    assert told(group(member("a", 0)), group()).outcome is Outcome.EMPTIED


def test_the_same_members_with_the_same_partitions_are_no_rebalance() -> None:
    assert entry_of(group(member("a", 0)), group(member("a", 0)), 5) is None


def test_nothing_that_looks_conclude_is_recorded() -> None:
    crowds = [group(), group(member("a", 0)), group(member("b", 0)), group(member("a", 0), member("b", 1))]
    for before in crowds:
        for now in crowds:
            entry = entry_of(before, now, 5)
            assert entry is None or entry.certainty in (Certainty.INFERRED, Certainty.UNKNOWN)


def shard_of(*groups: LookedGroup) -> WatchedShard:
    shard = WatchedShard(Limits(), 0)
    shard.step(WatchStood(""), 0)
    before = None
    for now in groups:
        shard.step(RecordsWatched(tuple(facts_of(before, now, {"orders": ORDERS}, 5))), 5)
        before = now
    return shard


def test_a_shard_learns_a_classic_group() -> None:
    made = shard_of(group(member("a", 0)), group(member("b", 0))).state.groups["readers"]
    assert isinstance(made, ClassicGroup)
    assert list(made.members) == ["b"]


def test_a_shard_learns_a_consumer_group_and_who_is_gone() -> None:
    first = LookedGroup("readers", "consumer", "", {"a": member("a", 0), "b": member("b", 1)}, modern=True, epoch=4)
    then = LookedGroup("readers", "consumer", "", {"b": member("b", 0, 1, epoch=5)}, modern=True, epoch=5)
    made = shard_of(first, then).state.groups["readers"]
    assert isinstance(made, ConsumerGroup)
    assert list(made.members) == ["b"]


def test_phases_that_looks_saw_are_of_the_entry_that_a_description_made() -> None:
    before, now = group(member("a", 0, 1)), group(member("a", 0), member("b", 1))
    shard = shard_of(before)
    shard.step(GroupSeen("readers", "PreparingRebalance"), 1_000)
    shard.step(GroupSeen("readers", ""), 4_000)
    shard.step(RecordsWatched((RebalanceDecided("readers", told(before, now)),)), 4_010)
    [kept] = shard.state.ledgers["readers"].entries.values()
    assert [phase.duration_ms for phase in kept.phases] == [3_000]


# Asked of a broker
# -----------------


class Scene:
    """One broker that has the classic group `readers`; members: their partitions of `orders`, by name."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.members: dict[str, list[int]] = {"a": [0, 1]}
        self.code = 0
        self.offset = 7
        broker.answers = {
            "Metadata": lambda request: metadata({1: broker.address}, {}),
            "DescribeGroups": self._describe,
            "OffsetFetch": self._fetch,
        }
        self.told: list[Record] = []
        self.upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=30))
        self.described = DescribedGroups(self.upstream, self._take, lambda: {"orders": ORDERS}, lambda: 5_000)

    def _take(self, group_id: str, facts: Sequence[Record]) -> None:
        self.told += facts

    def _describe(self, request: Any) -> Any:
        members = [
            struct("DescribeGroupsResponse.groups.members")(
                member_id=name, client_id=name, member_assignment=encode_assignment({"orders": held})
            )
            for name, held in self.members.items()
        ]
        one = struct("DescribeGroupsResponse.groups")(
            error_code=self.code, group_id="readers", group_state="Stable", protocol_type="consumer",
            protocol_data="range", members=members,
        )  # fmt: skip
        return struct("DescribeGroupsResponse")(groups=[one])

    def _fetch(self, request: Any) -> Any:
        part = struct("OffsetFetchResponse.groups.topics.partitions")(partition_index=0, committed_offset=self.offset)
        topic = struct("OffsetFetchResponse.groups.topics")(name="orders", partitions=[part])
        return struct("OffsetFetchResponse")(
            groups=[struct("OffsetFetchResponse.groups")(group_id="readers", topics=[topic])]
        )

    async def look(self, *names: str) -> list[Record]:
        """What it tells with all groups of the broker being these."""
        self.told = []
        await self.described.take_all(1, [ListedUpstreamGroup(name, "consumer", "Stable", "classic") for name in names])
        return self.told


def test_what_changed_between_two_looks_is_told_and_nothing_twice() -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            scene = Scene(broker)
            await scene.upstream.refresh([])
            first = await scene.look("readers")
            assert [type(each).__name__ for each in first] == ["GroupStored", "OffsetsStored"]
            assert await scene.look("readers") == []
            scene.members, scene.offset = {"a": [0], "b": [1]}, 9
            _, decided, positions = await scene.look("readers")
            assert isinstance(decided, RebalanceDecided)
            assert decided.entry.culprit == "b"
            assert isinstance(positions, OffsetsStored)
            assert positions.offsets["orders", 0].offset == 9
            assert await scene.look() == [GroupDeleted("readers")]
            scene.upstream.close()

    asyncio.run(whole())


def test_a_group_that_we_may_not_describe_is_named_until_we_may() -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            scene = Scene(broker)
            await scene.upstream.refresh([])
            scene.code = 30
            assert await scene.look("readers") == []
            assert scene.described.refused == {"readers"}
            assert broker.of("OffsetFetch") == []
            scene.code = 0
            assert await scene.look("readers") != []
            assert scene.described.refused == set()
            scene.upstream.close()

    asyncio.run(whole())
