"""Groups whose records nobody may read, described by their coordinators: members, shares and positions, and rebalances
as far as two descriptions of a group tell of them.

A broker is asked about so many groups at a time, and about nothing else meanwhile. What it refuses is told by name,
with the command that grants it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.records import GroupDeleted, OffsetsStored, RebalanceDecided, Record, TopicId
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.watched.looked_groups import LookedGroup, LookedMember, entry_of, facts_of, is_consumer
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.group_requests import AT_ONCE, CONSUMER, LOOK, ListedUpstreamGroup
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

FORBIDDEN_GROUP: Final = 30
SETTLED: Final = frozenset({"Stable", "Empty"})


class DescribedGroups:
    """tell: gets a group and what a shard is to learn of it. ids: of topics by name. refused: groups that we may not
    describe."""

    def __init__(
        self,
        upstream: Upstream,
        tell: Callable[[str, Sequence[Record]], None],
        ids: Callable[[], Mapping[str, TopicId]],
        now_ms: Callable[[], int],
    ) -> None:
        self._upstream = upstream
        self._tell = tell
        self._ids = ids
        self._now_ms = now_ms
        self._known: dict[int, dict[str, LookedGroup]] = {}
        """By broker."""
        self._positions: dict[str, dict[tuple[str, int], int]] = {}
        self.refused: set[str] = set()

    @property
    def count(self) -> int:
        return sum(map(len, self._known.values()))

    def forget(self) -> None:
        """What was told has been forgotten, or is told by records: all is told anew."""
        self._known.clear()
        self._positions.clear()

    async def take_all(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        """All groups of a broker. Raises UpstreamError."""
        known = self._known.setdefault(broker, {})
        elsewhere = {name for other, there in self._known.items() if other != broker for name in there}
        for gone in known.keys() - {each.group for each in groups}:
            del known[gone]
            self._positions.pop(gone, None)
            if gone not in elsewhere:
                self._tell(gone, [GroupDeleted(gone)])
        await self.take(broker, groups)

    async def take(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        """Describe these groups of a broker. Raises UpstreamError."""
        for begin in range(0, len(groups), AT_ONCE):
            some = groups[begin : begin + AT_ONCE]
            await self._describe(broker, some)
            await self._fetch_positions(broker, [each.group for each in some if each.group not in self.refused])

    async def _describe(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        ask = self._upstream.ask_broker
        if classic := [each.group for each in groups if each.kind in ("", "classic")]:
            request: object = struct("DescribeGroupsRequest")(groups=classic)
            for told in (await ask(broker, "DescribeGroups", request, purpose=LOOK)).groups:
                if self._may_see(told) and told.group_state in SETTLED:
                    self._take(broker, classic_group(told))
        if modern := [each.group for each in groups if each.kind == CONSUMER]:
            request = struct("ConsumerGroupDescribeRequest")(group_ids=modern)
            for told in (await ask(broker, "ConsumerGroupDescribe", request, purpose=LOOK)).groups:
                if self._may_see(told) and told.group_state in SETTLED:
                    self._take(broker, consumer_group(told))

    def _may_see(self, told: Any) -> bool:
        if told.error_code == FORBIDDEN_GROUP:
            self.refused.add(told.group_id)
        elif not told.error_code:
            self.refused.discard(told.group_id)
        return not told.error_code

    def _take(self, broker: int, now: LookedGroup) -> None:
        known, now_ms = self._known.setdefault(broker, {}), self._now_ms()
        before = known.get(now.id)
        if before == now:
            return
        known[now.id] = now
        facts = facts_of(before, now, self._ids(), now_ms)
        entry = None if before is None else entry_of(before, now, now_ms)
        if entry is not None:
            facts.append(RebalanceDecided(now.id, entry))
        self._tell(now.id, facts)

    async def _fetch_positions(self, broker: int, groups: Sequence[str]) -> None:
        if not groups:
            return
        asked = [struct("OffsetFetchRequest.groups")(group_id=group, topics=None) for group in groups]
        answer = await self._upstream.ask_broker(
            broker, "OffsetFetch", struct("OffsetFetchRequest")(groups=asked), purpose=LOOK
        )
        for told in answer.groups:
            if told.error_code:
                continue
            before = self._positions.setdefault(told.group_id, {})
            found = {
                (topic.name, part.partition_index): part
                for topic in told.topics
                for part in topic.partitions
                if not part.error_code and part.committed_offset >= 0
            }
            moved = {
                place: StoredOffset(
                    part.committed_offset, part.committed_leader_epoch, part.metadata or "", self._now_ms()
                )
                for place, part in found.items()
                if before.get(place) != part.committed_offset
            }
            before.update((place, part.committed_offset) for place, part in found.items())
            if moved:
                self._tell(told.group_id, [OffsetsStored(told.group_id, moved)])


def classic_group(told: Any) -> LookedGroup:
    """As DescribeGroups tells it."""
    shares = is_consumer(told.protocol_type)
    members = {
        each.member_id: LookedMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            assignment_of(bytes(each.member_assignment)) if shares else {},
            bytes(each.member_metadata),
            bytes(each.member_assignment),
        )
        for each in told.members
    }
    return LookedGroup(told.group_id, told.protocol_type, told.protocol_data, members)


def consumer_group(told: Any) -> LookedGroup:
    """As ConsumerGroupDescribe tells it."""
    members = {
        each.member_id: LookedMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            {one.topic_name: tuple(one.partitions) for one in each.assignment.topic_partitions},
            topics=tuple(each.subscribed_topic_names),
            regex=each.subscribed_topic_regex,
            epoch=each.member_epoch,
        )
        for each in told.members
    }
    return LookedGroup(told.group_id, CONSUMER, "", members, modern=True, epoch=told.group_epoch)
