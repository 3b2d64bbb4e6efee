"""Where the simulation tells its checkers what happens. A checker overrides what it cares about."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.assignors.api import Assignment, Assignor, Snapshot, TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.coordinator.core.model.effects import ClaimFenceReply, Effects, Reply
from muster.coordinator.core.model.events import Event, Request
from muster.coordinator.core.model.plan import Plan, PlanRequest
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.shards import ShardStatus
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.members.client import Process
    from tests.sim.node.node import Node


class Checker:
    """Watches one invariant. `fail` ends the run; every hook may be left as it is."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.node: Node
        self.processes: list[Process] = []

    def fail(self, sentence: str) -> None:
        self.world.violated(type(self).__name__, sentence)

    def harmed(self, group_id: str) -> bool:
        """Whether a record of the group was damaged: what it was before is no promise any more."""
        return group_id in self.node.log.harmed

    # The node's side

    def before_step(self, shard: int, core: Shard, event: Event) -> None: ...

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None: ...

    def appended(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue]) -> None: ...

    def unexplained(self, shard: int, ledger: Sequence[KeyValue]) -> None:
        """This part of an append to the ledger was lost, and the rest of the append goes on."""

    def replayed(self, shard: int, core: Shard) -> None:
        """The log has been read and nothing else has happened."""

    def loaded(self, shard: int, core: Shard) -> None: ...

    def status(self, shard: int, status: ShardStatus, why: str) -> None:
        """The engine has loaded, lost or given up a shard."""

    def computed(self, request: PlanRequest, plan: Plan) -> None: ...

    def crashed(self) -> None: ...

    def arrived(self, token: object, request: Request) -> None:
        """A member's request lies in the node's sockets; `token` stands for it until it is taken."""

    def taken(self, token: object, request_id: int) -> None:
        """The node has read it, under this request id; 0: it came to nothing."""

    def received(self, request: Request) -> None: ...

    def released(self, request: Request, reply: Reply) -> None: ...

    def forgotten(self, request: Request) -> None: ...

    # The members' side

    def told(self, process: "Process", event: ev.ClassicEvent | ev.ConsumerEvent) -> None: ...

    def acted(self, process: "Process", action: act.Action) -> None: ...

    def planned(self, process: "Process", assignor: Assignor, snapshot: Snapshot, plan: Assignment) -> None: ...

    def planned_delayed(self, process: "Process", planned: ev.PlanMade) -> None:
        """The leader of a delayed group has made its plan."""

    def gone(self, process: "Process") -> None: ...

    def wrote(self, process: "Process", place: TopicPartition, granted: ClaimFenceReply) -> None:
        """It writes under this ownership, to a log that has heard of all that were told."""

    # The whole

    def after_event(self) -> None: ...

    def finished(self) -> None: ...


class Watch:
    """Passes everything on to every checker, in order."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        self.checkers = tuple(checkers)

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        for checker in self.checkers:
            checker.before_step(shard, core, event)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for checker in self.checkers:
            checker.stepped(shard, core, event, effects)

    def appended(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue]) -> None:
        for checker in self.checkers:
            checker.appended(shard, groups, ledger)

    def unexplained(self, shard: int, ledger: Sequence[KeyValue]) -> None:
        for checker in self.checkers:
            checker.unexplained(shard, ledger)

    def loaded(self, shard: int, core: Shard) -> None:
        for checker in self.checkers:
            checker.loaded(shard, core)

    def status(self, shard: int, status: ShardStatus, why: str) -> None:
        for checker in self.checkers:
            checker.status(shard, status, why)

    def crashed(self) -> None:
        for checker in self.checkers:
            checker.crashed()

    def replayed(self, shard: int, core: Shard) -> None:
        for checker in self.checkers:
            checker.replayed(shard, core)

    def computed(self, request: PlanRequest, plan: Plan) -> None:
        for checker in self.checkers:
            checker.computed(request, plan)

    def planned_delayed(self, process: "Process", planned: ev.PlanMade) -> None:
        for checker in self.checkers:
            checker.planned_delayed(process, planned)

    def arrived(self, token: object, request: Request) -> None:
        for checker in self.checkers:
            checker.arrived(token, request)

    def taken(self, token: object, request_id: int) -> None:
        for checker in self.checkers:
            checker.taken(token, request_id)

    def received(self, request: Request) -> None:
        for checker in self.checkers:
            checker.received(request)

    def released(self, request: Request, reply: Reply) -> None:
        for checker in self.checkers:
            checker.released(request, reply)

    def forgotten(self, request: Request) -> None:
        for checker in self.checkers:
            checker.forgotten(request)

    def told(self, process: "Process", event: ev.ClassicEvent | ev.ConsumerEvent) -> None:
        for checker in self.checkers:
            checker.told(process, event)

    def acted(self, process: "Process", action: act.Action) -> None:
        for checker in self.checkers:
            checker.acted(process, action)

    def planned(self, process: "Process", assignor: Assignor, snapshot: Snapshot, plan: Assignment) -> None:
        for checker in self.checkers:
            checker.planned(process, assignor, snapshot, plan)

    def gone(self, process: "Process") -> None:
        for checker in self.checkers:
            checker.gone(process)

    def wrote(self, process: "Process", place: TopicPartition, granted: ClaimFenceReply) -> None:
        for checker in self.checkers:
            checker.wrote(process, place, granted)

    def after_event(self) -> None:
        for checker in self.checkers:
            checker.after_event()

    def finished(self) -> None:
        for checker in self.checkers:
            checker.finished()
