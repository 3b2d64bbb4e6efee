"""5. A commit from a fenced or old member never lands; an acknowledged commit is never lost.

Every commit carries a tag of its own as metadata, so that what is stored can be told apart whatever order it came in.
"""

from collections.abc import Callable

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.model.effects import Effects, OffsetCommitReply, Reply
from muster.coordinator.core.model.events import Event, OffsetCommit, Request, TimerFired
from muster.coordinator.core.model.records import CurrentStored, OffsetDeleted, OffsetsStored
from muster.coordinator.core.model.types import GroupState
from muster.coordinator.core.shard import Shard
from tests.sim.watch import Checker
from tests.sim.world import World
from tests.support.stories.consumer_stage import topic_id

MayLand = Callable[[str, int], bool]
Place = tuple[str, str, int]


class CommitsAreFencedAndKept(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.decided: dict[Place, dict[int, str]] = {}
        """group, topic, partition -> when it was decided, counted -> its tag"""
        self.floors: dict[Place, int] = {}
        """The newest commit of each place that somebody was told is safe."""
        self.buried: dict[Place, int] = {}
        """The last commit of each place before it was deleted. One whose answer comes later may be gone."""
        self.by_request: dict[int, list[tuple[Place, int]]] = {}
        self.count = 0
        self.may_land: dict[int, MayLand] = {}
        """Of each shard's last commit: others step while it is at a long one."""
        self.epochs: dict[int, dict[str, int]] = {}
        """Of the members of the KIP-848 group that the shard's step is about."""
        self.trailing: dict[str, tuple[int, dict[str, int]]] = {}
        """group that turned classic -> its generation then, and the epoch at which each member was"""

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        turning = core.consumer_groups.get(group_of(event))
        self.epochs[shard] = {member.id: member.epoch for member in turning.members.values()} if turning else {}
        if isinstance(event, OffsetCommit):
            consumer_group = core.consumer_groups.get(event.group_id)
            if consumer_group is not None:
                self.may_land[shard] = may_commit_to_consumers(consumer_group, event)
            else:
                group = core.groups.get(event.group_id)
                trailing = self._has_not_joined_since_it_turned(group, event)
                self.may_land[shard] = anything if trailing or may_commit(group, event) else nothing

    def _has_not_joined_since_it_turned(self, group: ClassicGroup | None, commit: OffsetCommit) -> bool:
        """A member of a group that turned classic goes on under its epoch until the next generation."""
        if group is None or commit.member_id not in group.members:
            return False
        generation, epochs = self.trailing.get(group.id, (-1, {}))
        return group.generation == generation and 0 < commit.generation == epochs.get(commit.member_id)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        group_id = group_of(event)
        epochs = self.epochs.get(shard, {})
        if epochs and group_id not in core.consumer_groups and group_id in core.groups:
            # Who turned it may have come in this very step, in a static place, and was told an epoch all the same.
            told = {each.member_id: each.epoch for each in effects.records if isinstance(each, CurrentStored)}
            self.trailing[group_id] = (core.groups[group_id].generation, {**epochs, **told})
        for record in effects.records:
            match record:
                case OffsetsStored():
                    self._stored(event, record, self.may_land[shard])
                case OffsetDeleted():
                    place = (record.group_id, record.topic, record.partition)
                    self.floors.pop(place, None)
                    self.buried[place] = self.count

    def _stored(self, event: Event, record: OffsetsStored, may_land: MayLand) -> None:
        assert isinstance(event, OffsetCommit)
        for (topic, partition), value in record.offsets.items():
            if not may_land(topic, partition):
                self.fail(
                    f"a commit of {event.member_id or 'nobody'} in generation {event.generation} to "
                    f"{topic}-{partition} landed in {event.group_id}, though it may not speak for that"
                )
            self.count += 1
            place = (record.group_id, topic, partition)
            self.decided.setdefault(place, {})[self.count] = value.metadata
            self.by_request.setdefault(event.request_id, []).append((place, self.count))

    def released(self, request: Request, reply: Reply) -> None:
        stored = self.by_request.pop(request.request_id, [])
        if not isinstance(reply, OffsetCommitReply) or reply.code:
            return
        for place, at in stored:
            if at <= self.buried.get(place, 0):
                continue
            self.floors[place] = max(self.floors.get(place, 0), at)

    def loaded(self, shard: int, core: Shard) -> None:
        """Whatever was lost, it was nothing that had been acknowledged."""
        for (group_id, topic, partition), floor in sorted(self.floors.items()):
            if self.node.shard_index(group_id) != shard or self.harmed(group_id):
                continue
            stored = core.state.offsets.get(group_id, {}).get((topic, partition))
            tags = self.decided[group_id, topic, partition]
            kept = {tag for at, tag in tags.items() if at >= floor}
            if stored is None or stored.metadata not in kept:
                self.fail(
                    f"the commit {tags[floor]} to {topic}-{partition} of {group_id} was acknowledged, "
                    f"but after a reload there is {stored}"
                )


def group_of(event: Event) -> str:
    """The group that the step is about, as far as a KIP-848 group may turn classic by it."""
    return event.key[1] if isinstance(event, TimerFired) and len(event.key) > 1 else getattr(event, "group_id", "")


def may_commit(group: ClassicGroup | None, commit: OffsetCommit) -> bool:
    """The rule in its plainest form: the members of the current generation, or anybody while the group is empty."""
    if group is None:
        return commit.generation < 0
    if commit.generation < 0 and group.state is GroupState.EMPTY:
        return True
    member = group.members.get(commit.member_id)
    if member is None or commit.generation != group.generation:
        return False
    fenced = commit.group_instance_id is not None and group.static.get(commit.group_instance_id) != member.id
    return not fenced and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)


def may_commit_to_consumers(group: ConsumerGroup, commit: OffsetCommit) -> MayLand:
    """Under the member's own epoch what is nobody else's; under an older one what it has had ever since (KIP-1251)."""
    if commit.generation < 0 and not group.members:
        return anything
    member = group.members.get(commit.member_id)
    if member is None or commit.generation > member.epoch:
        return nothing
    if commit.generation == member.epoch:
        return lambda topic, partition: (
            group.owner(topic_id(topic), partition) in (None, member.id) or bool(member.classic)
        )

    def had_since(topic: str, partition: int) -> bool:
        name = topic_id(topic)
        since = [
            held[name][partition] for held in (member.assigned, member.revoking) if partition in held.get(name, ())
        ]
        return bool(since) and max(since) <= commit.generation

    return had_since


def anything(_topic: str, _partition: int) -> bool:
    return True


def nothing(_topic: str, _partition: int) -> bool:
    return False
