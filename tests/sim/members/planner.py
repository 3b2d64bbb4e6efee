"""The leader's part: run a real assignor, or the rules of KIP-415, on what the members said, as a client does."""

from dataclasses import replace
from typing import TYPE_CHECKING

from muster.assignors.api import Snapshot
from muster.assignors.data.consumer_protocol import encode_assignment, member_from_subscription
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.delayed_rebalance import DelayedLeader
from muster.coordinator.core.model.types import DELAYED

if TYPE_CHECKING:
    from tests.sim.members.client import Process


class Planner:
    def __init__(self, process: "Process", delayed: DelayedLeader | None = None) -> None:
        self.process = process
        self.delayed = delayed

    def plan(self, action: act.MakePlan) -> None:
        """Planning takes its time; now and then the catalog cannot be reached at first."""
        process = self.process
        world, faults = process.world, process.network.faults
        delay_ms = world.between(0, process.habits.plan_ms)
        if world.chance(faults.bad_leader):
            delay_ms = world.between(0, 2 * process.settings.rebalance_timeout_ms)
            world.census["leaders slow to plan"] += 1
        if world.chance(faults.bad_leader / 2):
            world.census["plans failed"] += 1
            failed = ev.PlanFailed(action.generation, "the simulated catalog cannot be reached", action.question)
            world.after(delay_ms, lambda: process.later(lambda: process.tell(failed)))
            return
        counts = dict(process.network.node.topics)
        world.after(delay_ms, lambda: process.later(lambda: self._planned(action, counts)))

    def _planned(self, action: act.MakePlan, counts: dict[str, int]) -> None:
        if self.delayed is None or action.protocol_name != DELAYED:
            self._run_assignor(action, counts)
            return
        planned = self.delayed.plan(action, self.process.clock.now_ms)
        self.process.watch.planned_delayed(self.process, planned)
        self.process.world.census["delayed plans that wait"] += planned.scheduled_delay_ms > 0
        self.process.tell(replace(planned, question=action.question))

    def _run_assignor(self, action: act.MakePlan, counts: dict[str, int]) -> None:
        members = [
            member_from_subscription(m.member_id, m.group_instance_id, m.metadata, action.protocol_name)
            for m in action.members
        ]
        wanted = {topic for member in members for topic in member.topics}
        if self.delayed is not None:
            counts = dict.fromkeys(wanted, 1)
        topics = {topic: counts[topic] for topic in sorted(wanted) if topic in counts}
        snapshot = Snapshot(topics=topics, members=members, assignor=action.protocol_name)
        assignor = resolve(action.protocol_name)
        plan = run(assignor, snapshot)
        self.process.watch.planned(self.process, assignor, snapshot, plan)
        if plan.withheld:
            self.process.world.census["plans that withheld partitions"] += 1
        shares = tuple((member, encode_assignment(share)) for member, share in sorted(plan.to_dict().items()))
        text = snapshot.to_json().encode()
        self.process.tell(ev.PlanMade(action.generation, shares, text, topics, question=action.question))
