"""18. Nobody is given, or told of, what he may not read.

By the rights that came with what a member said last, or that it was heard to have since. Where members plan for
themselves nothing is promised: the fetch is refused. What a member of a KIP-848 group has already, whichever protocol
it speaks, it may hear of once more, as long as it has not let go of what was taken from it before (UNREVOKED): one
thing after the other is taken from it, as in Kafka, and what it is told meanwhile is what it is to keep so far. It has
what it was told last, in whichever kind of group: a classic group may have become a KIP-848 group since.
"""

from collections.abc import Iterable

from muster.assignors.data.consumer_protocol import parse_assignment
from muster.coordinator.core.consumer.group import ConsumerMemberState
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply, Effects, PushReply, SyncReply
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Event,
    Heartbeat,
    JoinGroup,
    SessionHeartbeat,
    SyncGroup,
)
from muster.coordinator.core.model.rights import RightsAnew, TopicRights
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.watch import Checker
from tests.sim.world import World


class NobodyIsGivenWhatHeMayNotRead(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._may: dict[tuple[int, str], TopicRights] = {}
        """By shard and who: what the shard has been told last."""
        self._had: dict[tuple[str, str], frozenset[str]] = {}
        """What a member was told last, by group and member."""
        self._who: dict[tuple[str, str], str] = {}
        """By group and member."""

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        if isinstance(event, RightsAnew):
            self._may.update({(shard, who): rights for who, rights in event.rights.items()})
        said = event.heartbeat if isinstance(event, SessionHeartbeat) else event
        taken = isinstance(said, ConsumerHeartbeat | JoinGroup) or (
            isinstance(said, Heartbeat) and not refused(said, effects)
        )
        if taken and said.rights is not None:
            self._may[shard, said.rights.who] = said.rights
        if isinstance(said, ConsumerHeartbeat) and said.rights is not None:
            self._who[said.group_id, said.member_id] = said.rights.who
        if isinstance(said, JoinGroup) and said.rights is not None:
            group = core.state.groups.get(said.group_id)
            for member in () if group is None else group.members.values():
                if getattr(member, "rights", None) == said.rights:
                    self._who[said.group_id, member.id] = said.rights.who
        for _, reply in effects.replies:
            told = reply.consumer if isinstance(reply, PushReply) else reply
            if isinstance(told, ConsumerHeartbeatReply) and not told.code and told.member_id:
                self._told(shard, core, told)
            elif isinstance(told, SyncReply) and isinstance(event, SyncGroup) and not told.code:
                self._synced(shard, core, event, told)

    def _told(self, shard: int, core: Shard, reply: ConsumerHeartbeatReply) -> None:
        group = next((each for each in core.consumer_groups.values() if reply.member_id in each.members), None)
        if group is None or reply.assignment is None:
            return
        topics = frozenset(reply.names[topic] for topic in reply.assignment if topic in reply.names)
        fresh = topics - self._kept(core, group.id, reply.member_id, topics)
        self.world.census["shares under rights"] += self._given(shard, group.id, reply.member_id, fresh)

    def _synced(self, shard: int, core: Shard, event: SyncGroup, reply: SyncReply) -> None:
        if reply.protocol_type != "consumer" or not reply.assignment:
            return
        shares = parse_assignment(reply.assignment).partitions
        topics = frozenset(topic for topic, numbers in shares.items() if numbers)
        kept = self._kept(core, event.group_id, event.member_id, topics)
        group = core.groups.get(event.group_id)
        if event.group_id in core.consumer_groups or (group is not None and bool(group.remote)):
            self._given(shard, event.group_id, event.member_id, topics - kept)

    def _kept(self, core: Shard, group_id: str, member_id: str, topics: frozenset[str]) -> frozenset[str]:
        """What it has already, and is still to let go of something else; it is told these topics now."""
        had, self._had[group_id, member_id] = self._had.get((group_id, member_id), frozenset()), topics
        group = core.consumer_groups.get(group_id)
        member = group.members.get(member_id) if group else None
        return had if member is not None and member.state is ConsumerMemberState.UNREVOKED else frozenset()

    def _given(self, shard: int, group_id: str, member_id: str, topics: Iterable[str]) -> bool:
        rights = self._may.get((shard, self._who.get((group_id, member_id), "")))
        if rights is None:
            return False
        for topic in topics:
            if not rights.may_read(topic):
                self.fail(f"{member_id} of {group_id} is given {topic}, and {rights.who} may not read it")
        return True


def refused(said: Heartbeat, effects: Effects) -> bool:
    """What is said under another generation, or for nobody, changes nothing."""
    heard = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    return any(number == said.request_id and reply.code not in heard for number, reply in effects.replies)
