"""15. Whoever is to plan for a group plans for it, and no member is told otherwise.

While the coordinator plans for a classic group nobody is told of a leader, of other members, or to skip a plan; each
share can be read by every client: never no bytes, no user data, in no newer version than the oldest subscription, of
topics that the member reads. What a member alone says it holds is given to nobody else in that round. When all is quiet
the assignor that is set has made the plan of every group in which it counts.
"""

from muster.assignors.data.consumer_protocol import parse_assignment, parse_subscription
from muster.coordinator.core.classic.group import ClassicGroup, ClassicMember
from muster.coordinator.core.model.effects import Effects, JoinReply, SyncReply
from muster.coordinator.core.model.events import Event, SyncGroup
from muster.coordinator.core.model.records import RebalanceDecided
from muster.coordinator.core.model.types import GroupState, RebalanceEntry
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.watch import Checker
from tests.sim.world import World

PLAIN = {"range", "roundrobin", "sticky", "cooperative-sticky", "something-else"}


class WhoIsToPlanPlans(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.turning: set[str] = set()
        """Groups that are KIP-848's before the step: who makes one classic is answered by the one that it was."""

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        self.turning = set(core.consumer_groups)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for _, reply in effects.replies:
            if isinstance(reply, JoinReply) and reply.code is ErrorCode.NONE:
                self._joined(core, reply)
            elif isinstance(reply, SyncReply) and not reply.code and isinstance(event, SyncGroup):
                self._synced(core, event, reply)
        for record in effects.records:
            if isinstance(record, RebalanceDecided) and record.entry.snapshot_source == "setting":
                self.world.census["plans by a setting"] += 1
                if (group := core.groups.get(record.group_id)) is not None:
                    self._keeps_what_is_held(group, record.entry)

    def _joined(self, core: Shard, reply: JoinReply) -> None:
        group = next((g for g in core.groups.values() if reply.member_id in g.members), None)
        if group is None or group.id in self.turning:
            return
        if group.remote and (reply.leader or reply.members or reply.skip_assignment):
            self.fail(f"{reply.member_id} of {group.id} is told of {reply.leader or reply.members}: {reply}")
        holds = core.state.holds.get(group.id)
        frozen = holds is not None and holds.freeze is not None
        # A plan that failed in the same step may have ended a canary: that generation is over before anybody fetches.
        over = group.state is GroupState.PREPARING_REBALANCE
        if not group.remote and not reply.leader and not frozen and not over:
            self.fail(f"{group.id} is planned by a member, and {reply.member_id} is told of no leader")

    def _synced(self, core: Shard, event: SyncGroup, reply: SyncReply) -> None:
        group = core.groups.get(event.group_id)
        if group is None or not group.remote or event.member_id not in group.members:
            return
        if len(reply.assignment) < 2:
            self.fail(f"{event.member_id} of {group.id} is given no bytes")
            return
        share = parse_assignment(reply.assignment)
        said = parse_subscription(group.members[event.member_id].metadata(group.protocol_name))
        oldest = min(version(member, group) for member in group.members.values())
        if share.user_data is not None or share.version > oldest or not share.partitions.keys() <= {*said.topics}:
            self.fail(f"{event.member_id} of {group.id}, which says {said}, cannot use {share}")

    def _keeps_what_is_held(self, group: ClassicGroup, entry: RebalanceEntry) -> None:
        holders: dict[tuple[str, int], set[str]] = {}
        for member in group.members.values():
            said = parse_subscription(member.metadata(group.protocol_name))
            for topic, partitions in said.owned.items() if said.version else ():
                for partition in partitions:
                    holders.setdefault((topic, partition), set()).add(member.id)
        for plan in entry.members:
            for topic, partitions in plan.assigned:
                for partition in partitions:
                    # Who claims it beside another may be out of date; then the newest generation counts.
                    if len(held := holders.get((topic, partition), set())) == 1 and held != {plan.member_id}:
                        self.fail(f"{topic}-{partition} of {group.id}, held by {held}, was given to {plan.member_id}")

    def finished(self) -> None:
        for place in {process.settings.group_id for process in self.processes}:
            shard = self.node.shard_of(place)
            group = shard.groups.get(place) if shard else None
            if shard is not None and group is not None and group.state is GroupState.STABLE:
                self._as_set(shard, group)

    def _as_set(self, core: Shard, group: ClassicGroup) -> None:
        stored = core.state.settings.get(group.id)
        wanted = "" if stored is None or stored.suspended else str(stored.values.get("assignor", ""))
        canary = core.state.canaries.get(group.id)
        wanted = canary.assignor if canary is not None and canary.runs else wanted
        counts = bool(wanted) and group.protocol_name in PLAIN
        if counts:
            self.world.census["groups at rest that are planned by a setting"] += 1
        if group.remote != (wanted if counts else ""):
            self.fail(f"{group.id} is planned by {group.remote or 'a member'}; set is {wanted or 'nothing'}")


def version(member: ClassicMember, group: ClassicGroup) -> int:
    return parse_subscription(member.metadata(group.protocol_name)).version
