"""8. Assignors answer the same twice, and the ledger explains every change of a classic group's generation.

A completed generation is appended together with a ledger entry of the same generation, which names a cause and whose
moves lead from the plan before to the plan after. The plan of a delayed group follows from its snapshot alone.
"""

from muster.assignors.api import Assignment, Assignor, Snapshot
from muster.assignors.run import run
from muster.client.members import events as ev
from muster.client.members.delayed_rebalance import replay_decision
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.plan import Plan, PlanRequest, assignment_of, compute_plan
from muster.coordinator.core.model.records import GroupStored, RebalanceDecided
from muster.coordinator.core.model.types import Cause, Outcome, PartitionMove, RebalanceEntry
from muster.coordinator.core.shard import Shard
from tests.sim.members.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World

Owners = dict[tuple[str, int], str]


class DecisionsAreExplained(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.before: dict[str, GroupStored | None] = {}
        self.consumers: set[str] = set()

    def planned(self, process: Process, assignor: Assignor, snapshot: Snapshot, plan: Assignment) -> None:
        again = run(assignor, Snapshot.from_json(snapshot.to_json()))
        if again.to_dict() != plan.to_dict() or list(again.withheld) != list(plan.withheld):
            self.fail(f"{assignor.name} gave two answers to one snapshot: {plan.to_dict()} and {again.to_dict()}")

    def computed(self, request: PlanRequest, plan: Plan) -> None:
        snapshot = Snapshot.from_json(request.snapshot.to_json())
        again = compute_plan(PlanRequest(request.group_id, request.epoch, request.assignor, snapshot))
        if again != plan:
            self.fail(f"{request.assignor} gave two answers to one snapshot: {plan} and {again}")

    def planned_delayed(self, process: Process, planned: ev.PlanMade) -> None:
        again = replay_decision(Snapshot.from_json(planned.snapshot.decode()))
        plan = {member: tuple(sorted(assignment_of(blob))) for member, blob in planned.assignments}
        if again.shares != plan:
            self.fail(f"the snapshot of a delayed plan leads to {again.shares}, the plan was {plan}")

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        self.before = {group.id: group.stored for group in core.groups.values()}
        self.consumers = set(core.consumer_groups)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        decided = [record for record in effects.records if isinstance(record, RebalanceDecided)]
        for record in decided:
            entry = record.entry
            self.world.census[f"rebalances {entry.outcome.name.lower()}"] += 1
            self.world.census[f"rebalance cause {entry.cause.name}"] += 1
            if entry.cause is Cause.UNSPECIFIED or not entry.detail:
                self.fail(f"rebalance {entry.number} of {record.group_id} has no cause: {entry}")
        for stored in effects.records:
            # A KIP-848 group that turns classic goes on with the number it had (see EpochsAreExplained).
            if isinstance(stored, GroupStored) and stored.group_id not in self.consumers:
                before = self.before.get(stored.group_id)
                if stored.generation != (before.generation if before else 0):
                    entries = [record.entry for record in decided if record.group_id == stored.group_id]
                    self._explained(before, stored, entries)

    def _explained(self, before: GroupStored | None, after: GroupStored, entries: list[RebalanceEntry]) -> None:
        told = [entry for entry in entries if entry.generation == after.generation]
        ended = [entry for entry in told if entry.outcome in (Outcome.COMPLETED, Outcome.EMPTIED)]
        if len(ended) != 1:
            self.fail(f"generation {after.generation} of {after.group_id} has {len(ended)} explanations, not 1")
            return
        owners = moved(owners_of(plan_of(before)), ended[0].moves)
        if owners != (wanted := owners_of(plan_of(after))):
            self.fail(
                f"the moves into generation {after.generation} of {after.group_id} lead to {owners}, "
                f"but the plan is {wanted}"
            )


def moved(owners: Owners, moves: tuple[PartitionMove, ...]) -> Owners:
    """What the moves make of it."""
    after = dict(owners)
    for move in moves:
        place = (move.topic, move.partition)
        if move.target:
            after[place] = move.target
        else:
            after.pop(place, None)
    return after


def plan_of(record: GroupStored | None) -> Plan:
    return {} if record is None else {m.member_id: assignment_of(m.assignment) for m in record.members}


def owners_of(plan: Plan) -> Owners:
    return {
        (topic, partition): member
        for member, topics in plan.items()
        for topic, partitions in topics.items()
        for partition in partitions
    }
