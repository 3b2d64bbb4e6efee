"""8. Assignors answer the same twice, and the ledger explains every change of generation.

A completed generation is appended together with a ledger entry of the same generation, which names a cause and whose
moves lead from the plan before to the plan after.
"""

from assignors.api import Assignment, Assignor, Snapshot
from assignors.run import run
from coordinator.core.effects import Effects
from coordinator.core.events import Event
from coordinator.core.plan import Plan, assignment_of
from coordinator.core.records import GroupStored, RebalanceDecided
from coordinator.core.shard import Shard
from coordinator.core.types import Cause, Outcome, RebalanceEntry
from tests.sim.census import group_of
from tests.sim.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World

Owners = dict[tuple[str, int], str]


class DecisionsAreExplained(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.before: GroupStored | None = None

    def planned(self, process: Process, assignor: Assignor, snapshot: Snapshot, plan: Assignment) -> None:
        again = run(assignor, Snapshot.from_json(snapshot.to_json()))
        if again.to_dict() != plan.to_dict() or list(again.withheld) != list(plan.withheld):
            self.fail(f"{assignor.name} gave two answers to one snapshot: {plan.to_dict()} and {again.to_dict()}")

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        group = core.groups.get(group_of(event))
        self.before = group.stored if group else None

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        entries = [record.entry for record in effects.records if isinstance(record, RebalanceDecided)]
        for entry in entries:
            self.world.census[f"rebalances {entry.outcome.name.lower()}"] += 1
            self.world.census[f"rebalance cause {entry.cause.name}"] += 1
            if entry.cause is Cause.UNSPECIFIED or not entry.detail:
                self.fail(f"rebalance {entry.number} of {group_of(event)} has no cause: {entry}")
        for record in effects.records:
            if isinstance(record, GroupStored) and record.generation != (self.before.generation if self.before else 0):
                self._explained(record, entries)

    def _explained(self, record: GroupStored, entries: list[RebalanceEntry]) -> None:
        told = [entry for entry in entries if entry.generation == record.generation]
        ended = [entry for entry in told if entry.outcome in (Outcome.COMPLETED, Outcome.EMPTIED)]
        if len(ended) != 1:
            self.fail(f"generation {record.generation} of {record.group_id} has {len(ended)} explanations, not 1")
            return
        owners = owners_of(plan_of(self.before))
        for move in ended[0].moves:
            place = (move.topic, move.partition)
            if move.target:
                owners[place] = move.target
            else:
                owners.pop(place, None)
        if owners != (after := owners_of(plan_of(record))):
            self.fail(
                f"the moves into generation {record.generation} of {record.group_id} lead to {owners}, "
                f"but the plan is {after}"
            )


def plan_of(record: GroupStored | None) -> Plan:
    return {} if record is None else {m.member_id: assignment_of(m.assignment) for m in record.members}


def owners_of(plan: Plan) -> Owners:
    return {
        (topic, partition): member
        for member, topics in plan.items()
        for topic, partitions in topics.items()
        for partition in partitions
    }
