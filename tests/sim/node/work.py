"""What the coordinator has computed off its loop: plans and topic patterns. It takes time, fails, or overruns."""

from typing import TYPE_CHECKING, assert_never

from muster.assignors.api import AssignorError
from muster.coordinator.core.consumer.target import match_topics
from muster.coordinator.core.model.effects import ResolveRegex
from muster.coordinator.core.model.events import Planned, RegexResolved, Shadowed
from muster.coordinator.core.model.plan import Plan, PlanRequest, compute_plan, plan_inline
from muster.coordinator.core.model.shadow_scoring import ShadowRequest, all_failed, score_candidates
from muster.coordinator.runtime.shards import LoadMeasurementWork, ShardWork
from tests.sim.members.balancing import Meter

if TYPE_CHECKING:
    from tests.sim.node.node import Node

DEADLINE_MS = 10_000


class Workbench:
    """`off_loop` says how often a plan is put off that could be made at once."""

    def __init__(self, node: "Node", off_loop: float) -> None:
        self.node = node
        self.world = node.world
        self.off_loop = off_loop
        self.meter = Meter(self.world)

    def plan(self, request: PlanRequest) -> Plan | None:
        """The planner of the node's shards."""
        if self.world.chance(self.off_loop):
            self.world.census["plans put off"] += 1
            return None
        if self.world.chance(self.node.log.faults.failed_work):
            self.world.census["plans that failed at once"] += 1
            raise AssignorError(request.assignor, "the simulated assignor failed at once")
        plan = plan_inline(request)
        if plan is not None:
            self.node.watch.computed(request, plan)
        return plan

    def take(self, work: ShardWork) -> None:
        """Answer after a while; one that overruns is answered at the deadline, that it did."""
        faults, delay_ms = self.node.log.faults, self.world.between(0, 50)
        error = ""
        if self.world.chance(faults.slow_work):
            delay_ms = self.world.between(100, 2 * DEADLINE_MS)
        if delay_ms > DEADLINE_MS:
            delay_ms, error = DEADLINE_MS, "the simulated computation overran its deadline"
            self.world.census["work that overran its deadline"] += 1
        elif self.world.chance(faults.failed_work):
            error = "the simulated computation failed"
            self.world.census["work that failed"] += 1
        life = self.node.life
        self.world.after(delay_ms, lambda: self._end(work, error, life))

    def measure(self, work: LoadMeasurementWork) -> None:
        """Look at the logs in a moment; some measurements come to nothing."""
        if self.world.chance(self.node.log.faults.failed_work):
            self.world.census["measurements that were lost"] += 1
            return
        life = self.node.life

        def tell() -> None:
            if life == self.node.life and self.node.up:
                self.node.engine.answer_work(work, self.meter.measure(work.request, self.world.node_ms))
                self.node.wake()

        self.world.after(self.world.between(0, 50), tell)

    def _end(self, work: ShardWork, error: str, life: int) -> None:
        if life == self.node.life and self.node.up:
            self.node.engine.answer_work(work, self._answer(work.request, error))
            self.node.wake()

    def _answer(
        self, request: PlanRequest | ResolveRegex | ShadowRequest, error: str
    ) -> Planned | RegexResolved | Shadowed:
        match request:
            case PlanRequest():
                plan = None if error else compute_plan(request)
                if plan is not None:
                    self.node.watch.computed(request, plan)
                return Planned(request.group_id, request.epoch, plan, error, request.snapshot)
            case ResolveRegex():
                topics = () if error else match_topics(request)
                return RegexResolved(request.group_id, request.regex, topics, request.version, error)
            case ShadowRequest():
                scores = all_failed(request, error) if error else score_candidates(request, lambda: self.world.now_ms)
                self.world.census["shadows that failed" if error else "shadows planned"] += 1
                return Shadowed(request.group_id, request.ticket, scores)
            case _:
                assert_never(request)
