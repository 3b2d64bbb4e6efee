"""One seed, start to end: a safety phase with faults on, then a liveness phase without."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.consumer_member import ConsumerMemberMachine
from muster.coordinator.core.consumer.group import ConsumerGroupState
from muster.coordinator.core.model.types import GroupState, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from tests.sim.census import Census
from tests.sim.checkers import ALL
from tests.sim.faults import (
    DEAF_MS,
    HARD_ON_MEMBERS,
    HELD_BY_OPERATORS,
    JOIN_GRACE_MS,
    LOOKED_AT,
    LOOKED_AT_WITHOUT_ROOM,
    REQUEST_TIMEOUT_MS,
    ROLLED_BY_OPERATORS,
    Faults,
    draw,
)
from tests.sim.members.classic_part import MakeClassic
from tests.sim.members.client import METADATA_MS, Process, settled
from tests.sim.members.consumer_part import MakeConsumer
from tests.sim.members.rulings import Rulings
from tests.sim.members.setter import MAX_BEAT_MS, MAX_SESSION_MS, MIN_BEAT_MS, MIN_SESSION_MS
from tests.sim.members.workload import GENERATIONS, RESTART_MS, Workload
from tests.sim.network import KEEPALIVE_MS, Network
from tests.sim.node.crashing_log import GROUP_BYTES, CrashingLog
from tests.sim.node.node import MakeEngine, MakeShard, Node
from tests.sim.node.work import DEADLINE_MS
from tests.sim.watch import Checker, Watch
from tests.sim.world import World

SAFETY_MS = 180_000
STALLED_MS = 60_000 + 65_000
"""A node that stands still when all is quiet goes on after a minute, and its deadlines have moved by it."""
CALLED_BACK_MS = 20_000
"""By then everybody has heard that his group has another planner."""
AFTERWARDS_MS = 20_000
"""What a node still flushes when all is quiet is told by then, and what lay in its sockets is read."""

MakeLog = Callable[[World, int, Watch], CrashingLog]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is made of. Tests put broken ones in, to see them caught."""

    shard: MakeShard = Shard
    engine: MakeEngine = Engine
    log: MakeLog = CrashingLog
    member: MakeClassic = ClassicMemberMachine
    consumer: MakeConsumer = ConsumerMemberMachine
    checkers: Sequence[type[Checker]] = ALL
    generations: Sequence[str] = GENERATIONS
    """Of which a group's members are drawn."""
    weather: Mapping[str, Any] = field(default_factory=dict)
    """Faults that are not drawn, by name."""


HARD = Parts(weather=HARD_ON_MEMBERS, generations=("moving", "moving", "consumer", "classic"))
"""What drawn weather rarely brings about: a node that is well, and members that hear nothing of it."""

HELD = Parts(weather=HELD_BY_OPERATORS, generations=("classic", "consumer", "moving", "moving"))
"""Whatever the weather, somebody freezes, deploys, drains and pins, and half of the groups are converted."""

ROLLED = Parts(weather=ROLLED_BY_OPERATORS, generations=("moving",))
"""All groups are converted, there and back, whatever is held of them."""


RULED = Parts(weather=LOOKED_AT, generations=("consumer", "consumer", "classic", "moving"))
"""Whatever the weather, members may not read everything, and what they may changes."""

RULED_WITHOUT_ROOM = replace(RULED, weather=LOOKED_AT_WITHOUT_ROOM)
"""The same, and the disk is full again and again."""


@dataclass(slots=True)
class Result:
    seed: int
    digest: str
    events: int
    virtual_ms: int
    settled_after_ms: int
    """How long the liveness phase took."""
    seconds: float
    violation: str = ""
    census: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


class Simulation:
    """Everything of one run, put together."""

    def __init__(self, seed: int, parts: Parts | None = None, *, keep_trace: bool = False) -> None:
        parts = parts or Parts()
        self.world = World(seed, keep_trace=keep_trace)
        rng = self.world.rng
        self.faults: Faults = replace(draw(rng), **parts.weather)
        self.checkers = [Census(self.world), *(checker(self.world) for checker in parts.checkers)]
        self.watch = Watch(self.checkers)
        self.network = Network(self.world)
        self.limits = draw_limits(rng)
        log = parts.log(self.world, rng.choice((1, 2, 2, 3)), self.watch)
        topics: dict[str, int] = {}
        off_loop = rng.choice((0.0, 0.5, 1.0))
        self.node = Node(
            self.world, self.network, log, self.watch, self.limits, topics, parts.shard, parts.engine, off_loop
        )
        self.network.node = self.node
        if self.faults.rights_every_ms:
            self.node.rulings = Rulings(self.world, self.node)
        self.workload = Workload(
            self.world,
            self.network,
            self.node,
            self.watch,
            self.faults,
            parts.member,
            parts.consumer,
            parts.generations,
        )
        for checker in self.checkers:
            checker.node, checker.processes = self.node, self.workload.processes

    def run(self) -> int:
        """Both phases. Raises Violated; gives back how long it took to settle, in ms."""
        world = self.world
        self.network.faults = self.node.log.faults = self.faults
        self.workload.draw()
        self.node.start()
        self.workload.start()
        self.workload.supervise()
        world.run(world.now_ms + SAFETY_MS, self.watch.after_event)
        self.workload.be_calm()
        world.trace("calm")
        settled_after_ms = self.settle()
        if settled_after_ms >= 0 and self.faults.settings_every_ms:
            # Nothing else calls anybody back now: what was set has to do it, whatever becomes of its process.
            self.workload.tinker_with_all()
            world.run(world.now_ms + CALLED_BACK_MS, self.watch.after_event)
            settled_after_ms = max(settled_after_ms, self.settle())
        world.run(world.now_ms + AFTERWARDS_MS, self.watch.after_event)
        self.watch.finished()
        return settled_after_ms

    def settle(self) -> int:
        """Let time pass until all is well; how long that took, in ms. -1: too long, which breaks the run."""
        world, began_ms, bound_ms = self.world, self.world.now_ms, self.bound_ms()
        world.run(began_ms + bound_ms, self.watch.after_event, self.quiet)
        if not self.quiet():
            world.violated("liveness", f"after {bound_ms} ms without faults: {self.unrest()}")
            return -1
        return world.now_ms - began_ms

    def bound_ms(self) -> int:
        """How long the worst leftovers of the faults may take, one after the other."""
        places = self.workload.places
        limits = self.limits
        session_ms = max(limits.consumer_max_session_timeout_ms, *(place.session_timeout_ms for place in places))
        rebalance_ms = max(place.rebalance_timeout_ms for place in places)
        delayed = any(place.generation == "delayed" for place in places)
        stalled = STALLED_MS if self.faults.node_stall_every_ms else 0
        late = DEAF_MS if self.faults.deaf_every_ms else 0
        leftovers = late + stalled + RESTART_MS + KEEPALIVE_MS + self.faults.slow_ms + 2 * rebalance_ms + METADATA_MS
        # The ghost of a dead newcomer is parked until its new-member timeout, a pending id until its session ends.
        ghosts = self.limits.new_member_join_timeout_ms + session_ms
        # Three rebalances: one that a ghost or a late call spoils, one that withholds, one that gives out.
        rounds = 3 * (self.limits.initial_rebalance_delay_ms + 2 * (rebalance_ms + JOIN_GRACE_MS) + session_ms)
        # KIP-848: a plan of the past overruns its deadline; then targets, each reached by a few heartbeats.
        plans = DEADLINE_MS + 3 * (limits.consumer_max_assignment_interval_ms + DEADLINE_MS)
        handovers = 6 * limits.consumer_max_heartbeat_interval_ms + session_ms + rebalance_ms
        # KIP-415: one delay for those who are lost, and one between two rounds that even out.
        delays = 2 * max(place.max_delay_ms for place in places if place.generation == "delayed") if delayed else 0
        return leftovers + ghosts + rounds + 3 * REQUEST_TIMEOUT_MS + plans + handovers + delays

    def quiet(self) -> bool:
        return not self.unrest()

    def unrest(self) -> str:
        """What is not settled yet, in one sentence; empty when all is well."""
        if self.node.ears.deaf:
            return "the node stands still: whatever it has yet to answer waits"
        for place in self.workload.places:
            process = place.process
            if place.wanted and not self.may_refuse(place.group_id) and (process is None or not settled(process)):
                return f"{place.name} is not settled: {process}"
        for group_id in sorted({place.group_id for place in self.workload.places}):
            if problem := self.group_unrest(group_id):
                return problem
        return ""

    def may_refuse(self, group_id: str) -> bool:
        """A full group need not take everybody in.

        Nor need one in the middle of an upgrade: after a reload it is known by the protocol it chose alone, until its
        members join again, and whoever does not offer that one is refused.
        """
        wanted = [place for place in self.workload.places if place.group_id == group_id and place.wanted]
        if len(wanted) > self.limits.max_group_size:
            return True
        if any(place.moves for place in wanted):
            return self.limits.consumer_migration_policy != "bidirectional"
        return len({place.assignors for place in wanted}) > 1

    def group_unrest(self, group_id: str) -> str:
        shard = self.node.shard_of(group_id)
        if shard is None:
            return f"{group_id} has no coordinator"
        group = shard.consumer_groups.get(group_id) or shard.groups.get(group_id)
        members = [p for p in self.workload.running if p.settings.group_id == group_id and settled(p)]
        if not members and not (group and group.members):
            return ""
        if group is None or group.state not in (GroupState.STABLE, ConsumerGroupState.STABLE):
            return f"{group_id} is {group.state.value if group else 'gone'}"
        if group_id in shard.consumer_groups and self.no_way_back(members):
            return ""
        return self.share_unrest(group_id, {*group.members}, members)

    def no_way_back(self, members: list[Process]) -> bool:
        """A stranger took the name of workers while nobody was there, and the policy forbids the way back: their
        resources are no topics, so nobody can give them any."""
        upgrade_only = self.limits.consumer_migration_policy not in ("bidirectional", "downgrade")
        read = {tp[0] for process in members for tp in process.part.reads(self.node.topics)}
        return upgrade_only and not read & self.node.topics.keys()

    def share_unrest(self, group_id: str, known: set[str], members: list[Process]) -> str:
        if ghosts := sorted(known - {process.member.member_id for process in members}):
            return f"{group_id} still has {', '.join(ghosts)}"
        wanted = {tp for process in members for tp in process.part.reads(self.node.topics)}
        held = {tp for process in members for tp in process.app.holding}
        if held != wanted:
            return f"{group_id} reads {sorted(held)}, not {sorted(wanted)}"
        return ""


def draw_limits(rng: Random) -> Limits:
    """The node's settings: short times, and now and then a tight limit."""
    size = rng.choice((3, 1_000, 1_000, 1_000))
    session_ms = rng.choice((6_000, 10_000, 15_000))
    return Limits(
        initial_rebalance_delay_ms=rng.choice((0, 1_000, 3_000)),
        new_member_join_timeout_ms=rng.choice((30_000, 300_000)),
        max_group_size=size,
        max_group_bytes=GROUP_BYTES,
        ledger_max_entries=rng.choice((2, 100)),
        offsets_retention_check_ms=rng.choice((20_000, 600_000)),
        consumer_session_timeout_ms=session_ms,
        consumer_min_session_timeout_ms=MIN_SESSION_MS,
        consumer_max_session_timeout_ms=MAX_SESSION_MS,
        consumer_heartbeat_interval_ms=session_ms // 3,
        consumer_min_heartbeat_interval_ms=MIN_BEAT_MS,
        consumer_max_heartbeat_interval_ms=MAX_BEAT_MS,
        consumer_max_group_size=size,
        consumer_assignment_interval_ms=rng.choice((0, 1_000, 5_000)),
        consumer_max_assignment_interval_ms=5_000,
        consumer_regex_refresh_ms=rng.choice((20_000, 600_000)),
        consumer_migration_policy=rng.choice(("bidirectional",) * 5 + ("upgrade", "downgrade", "disabled")),
        slice_positions=rng.choice((1, 1, 500)),
    )


def run_seed(seed: int, parts: Parts | None = None, *, keep_trace: bool = False) -> Result:
    """Run one seed to its end or its first violation."""
    began = time.perf_counter()
    simulation = Simulation(seed, parts, keep_trace=keep_trace)
    violation, settled_after_ms = "", -1
    try:
        settled_after_ms = simulation.run()
    except AssertionError as broken:
        violation = f"{type(broken).__name__}: {broken}"
    world = simulation.world
    if not violation and world.violations:
        violation = "\n".join(world.violations)
    return Result(
        seed=seed,
        digest=world.digest,
        events=world.events,
        virtual_ms=world.now_ms,
        settled_after_ms=settled_after_ms,
        seconds=time.perf_counter() - began,
        violation=violation,
        census=world.census,
        lines=world.lines,
    )
