"""1. No partition is owned twice within one generation, and never twice at once by members that are not fenced.

Within a generation or epoch: the shares that answers hand out do not overlap, whatever crashes lie between them.

At once: an application holds a partition from its Assign callback until the callback that takes it away has ended.
It counts for as long as the group would still listen to it. In a classic group: its member id is in the group, and was
told to join the group's current generation, or was on record when the group was loaded and none has followed. In a
KIP-848 group: its member id is in the group, and it has not said that it goes away for a while (epoch -2).

Nobody can stop a member that was thrown out, or whose group went on without it, from reading on until it hears of it;
that is what fencing its commits is for (checker 5). A static member that comes back after a generation without it holds
its old share until it has a new one; from then on it counts again.

A KIP-848 group itself never keeps a partition for two members, a revocation that is not acknowledged included.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from muster.client.members import actions as act
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import AWAY, ConsumerGroup, cells
from muster.coordinator.core.model.effects import (
    ConsumerHeartbeatReply,
    Effects,
    JoinReply,
    PushReply,
    Reply,
    SyncReply,
)
from muster.coordinator.core.model.events import ConsumerHeartbeat, Event, Listen, Request, SessionHeartbeat, SyncGroup
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.records import CurrentStored, GroupDeleted, GroupEpochDeleted
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.members.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World

Held = tuple[str, int]


class NothingIsOwnedTwice(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.given: dict[tuple[str, int, int], dict[Held, str]] = {}
        """(group, which of its lives, generation) -> partition -> who was told that it is his"""
        self.lives: Counter[str] = Counter()
        """How often a group of this name was deleted: the next one counts its generations from the start."""
        self.decided: dict[int, dict[str, int]] = {}
        """request id -> the lives that groups were in when its answer was decided; it may be released after that"""
        self.joined: dict[str, dict[str, int]] = {}
        """group -> member id -> the generation it was last told to have joined"""
        self.generations: dict[str, int] = {}
        self.astray: set[str] = set()
        """Processes whose group went on without them, and that have not taken a share since."""
        self.dirty = False

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        self.dirty = True
        self._note_lives(effects)
        for _, reply in effects.replies:
            if isinstance(reply, JoinReply) and reply.code is ErrorCode.NONE:
                self._note_join(core, reply)
        for group in core.groups.values():
            if self.generations.get(group.id) != group.generation:
                self.generations[group.id] = group.generation
                self._leave_behind(group)
        for record in effects.records:
            if isinstance(record, GroupDeleted | GroupEpochDeleted) and not exists(core, record.group_id):
                self.lives[record.group_id] += 1
        for group_id in sorted({record.group_id for record in effects.records if isinstance(record, CurrentStored)}):
            if consumer_group := core.consumer_groups.get(group_id):
                self._kept_once(consumer_group)

    def _note_lives(self, effects: Effects) -> None:
        """Answers speak of their groups as they were before anything in this step deletes one.

        What concerns all groups, such as a topic's growth, may answer whoever listens in any of them.
        """
        self.decided.update((request_id, dict(self.lives)) for request_id, _ in effects.replies)

    def _kept_once(self, group: ConsumerGroup) -> None:
        keepers: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for cell in cells(member.holds):
                if (other := keepers.setdefault(cell, member.id)) != member.id:
                    self.fail(f"{group.id} keeps {cell} for {other} and for {member.id}")

    def _note_join(self, core: Shard, reply: JoinReply) -> None:
        group = next((g for g in core.groups.values() if reply.member_id in g.members), None)
        if group is not None:
            self.joined.setdefault(group.id, {})[reply.member_id] = reply.generation

    def _leave_behind(self, group: ClassicGroup) -> None:
        joined = self.joined.get(group.id, {})
        for process in self.processes:
            if process.settings.group_id == group.id and joined.get(process.member.member_id) != group.generation:
                self.astray.add(process.name)

    def loaded(self, shard: int, core: Shard) -> None:
        for group_id in [group_id for group_id in self.generations if self.node.shard_index(group_id) == shard]:
            del self.generations[group_id]
            self.joined.pop(group_id, None)
        for group in core.groups.values():
            self.joined[group.id] = dict.fromkeys(group.members, group.generation)
            self.generations[group.id] = group.generation

    def released(self, request: Request, reply: Reply) -> None:
        if isinstance(request, SyncGroup) and isinstance(reply, SyncReply) and not reply.code:
            share = assignment_of(reply.assignment)
            who = request.group_instance_id or request.member_id
            self._give((request.group_id, self._life(request), request.generation), who, share)
        told = reply.consumer if isinstance(reply, PushReply) else reply
        if not isinstance(told, ConsumerHeartbeatReply) or told.code or told.assignment is None:
            return
        asked = request.heartbeat if isinstance(request, SessionHeartbeat) else request
        assert isinstance(asked, ConsumerHeartbeat | Listen)
        named = {told.names[topic]: tuple(partitions) for topic, partitions in told.assignment.items()}
        who = asked.group_instance_id or asked.member_id
        self._give((asked.group_id, self._life(request), told.member_epoch), who, named)

    def _life(self, request: Request) -> int:
        return self.decided.pop(request.request_id, {}).get(request.group_id, 0)

    def _give(self, key: tuple[str, int, int], who: str, share: Mapping[str, Sequence[int]]) -> None:
        group_id, _, generation = key
        if self.harmed(group_id):
            return
        owners = self.given.setdefault(key, {})
        for topic, partitions in share.items():
            for partition in partitions:
                owner = owners.setdefault((topic, partition), who)
                if owner != who:
                    self.fail(f"{topic}-{partition} of {group_id} was given to {owner} and to {who} in {generation}")

    def acted(self, process: Process, action: act.Action) -> None:
        if isinstance(action, act.Assign):
            self.dirty = True
            self.astray.discard(process.name)

    def after_event(self) -> None:
        if not self.dirty:
            return
        self.dirty = False
        readers: dict[tuple[str, str, int], Process] = {}
        for process in self.processes:
            if not process.app.holding or self.harmed(process.settings.group_id) or not self._listened_to(process):
                continue
            for topic, partition in sorted(process.app.holding):
                other = readers.setdefault((process.settings.group_id, topic, partition), process)
                if other is not process:
                    self.fail(f"{topic}-{partition} of {process.settings.group_id} is read by {other} and {process}")

    def _listened_to(self, process: Process) -> bool:
        core = self.node.shard_of(process.settings.group_id)
        consumer_group = core.consumer_groups.get(process.settings.group_id) if core else None
        if consumer_group is not None:
            known = consumer_group.members.get(process.member.member_id)
            return known is not None and known.epoch != AWAY and process.name not in self.astray
        group = core.groups.get(process.settings.group_id) if core else None
        member = process.member
        if group is None or member.member_id not in group.members or process.name in self.astray:
            return False
        return self.joined.get(group.id, {}).get(member.member_id) == group.generation


def exists(core: Shard, group_id: str) -> bool:
    return group_id in core.groups or group_id in core.consumer_groups
