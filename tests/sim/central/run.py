"""One run of a central group: consumers come, go, freeze and lose touch, the node crashes, and the rules hold.

`python -m tests.sim.central.run --seeds K` runs K of them, `--seed N` one, with all that happened.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field

from muster.client.members.central_member import CentralMemberMachine
from muster.client.members.member_types import MemberSettings
from muster.coordinator.core.central.group import CentralState
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from tests.sim.central.consumer import CentralConsumer, Machine
from tests.sim.central.node import KEEPALIVE_MS, CentralNode
from tests.sim.clock import draw
from tests.sim.node.node import MakeEngine, MakeShard
from tests.sim.world import START_MS, Violated, World

FAULTS_MS = 150_000
QUIET_MS = 150_000
"""Enough for every line to be found broken, every session and all retries to end."""
MAX_CONSUMERS = 7
LAST_MOMENT_MS = 150
"""Less than what a node takes for a stall."""
FATES = (
    *("join", "join", "join", "kill", "close", "close", "freeze", "cut", "cut", "crash", "grow", "slow"),
    *("restart of the node", "stall of the node", "stall of the node", "last moment", "last moment"),
)


@dataclass
class CentralRun:
    seed: int
    violation: str
    digest: str
    census: Counter[str]
    lines: list[str] = field(default_factory=list)


class Central:
    def __init__(
        self,
        seed: int,
        machine: Machine,
        make_shard: MakeShard,
        make_engine: MakeEngine = Engine,
        *,
        keep_trace: bool = False,
    ) -> None:
        self.world = world = World(seed, keep_trace=keep_trace)
        self.machine = machine
        rng = world.rng
        self.session_ms = rng.choice((3_000, 6_000, 9_000))
        limits = Limits(
            min_session_timeout_ms=1_000,
            central_max_retries=rng.choice((0, 2, 4)),
            central_backoff_ms=rng.choice((100, 2_000)),
            central_max_timed_out=rng.choice((1, 3)),
            ledger_max_entries=rng.choice((2, 100)),
        )
        topics = {"t": rng.randint(1, 6), "u": rng.randint(1, 3)}
        self.node = CentralNode(world, limits, topics, make_shard, make_engine)
        self.consumers: list[CentralConsumer] = []
        for _ in range(rng.randint(1, 4)):
            world.after(rng.randint(0, 500), self.join)

    @property
    def living(self) -> list[CentralConsumer]:
        return [each for each in self.consumers if not each.dead and not each.closed]

    def join(self) -> None:
        if len(self.living) >= MAX_CONSUMERS:
            return
        name = f"c{len(self.consumers)}"
        settings = MemberSettings("g", name, session_timeout_ms=self.session_ms, rebalance_timeout_ms=60_000)
        self.world.trace(f"{name} starts")
        self.consumers.append(CentralConsumer(self.world, self.node, name, settings, draw(self.world), self.machine))

    def run(self) -> None:
        self.world.after(1_000, self.misfortune)
        self.world.run(START_MS + FAULTS_MS, self.check)
        self.world.trace("from here on nothing happens any more")
        self.node.start()
        for each in self.living:
            each.slow = False
        if not self.living:
            self.join()
        # Whatever had been given up is looked at again when somebody comes.
        self.world.after(KEEPALIVE_MS + 5 * self.session_ms, self.join_for_sure)
        self.world.run(START_MS + FAULTS_MS + QUIET_MS, self.check)
        self.check_settled()

    def join_for_sure(self) -> None:
        if len(self.living) >= MAX_CONSUMERS:
            self.living[0].close()
        else:
            self.join()

    def misfortune(self) -> None:
        """One thing after the other, until the time of faults is over."""
        world = self.world
        if world.now_ms >= START_MS + FAULTS_MS - 10_000:
            return
        what = world.rng.choice(FATES)
        world.census[what] += 1
        victims = [each for each in self.living if not each.frozen]
        if what == "join":
            self.join()
        elif what in ("crash", "restart of the node"):
            self.node.crash()
            down_ms = world.between(10, 500) if what != "crash" else world.between(10, 3 * self.session_ms)
            world.after(down_ms, self.node.start)
        elif what == "stall of the node":
            self.node.ears.stall(world.between(*world.rng.choice(((50, 1_000), (1_000, 6 * self.session_ms)))))
        elif what == "grow":
            self.node.grow(world.rng.choice(sorted(self.node.topics)))
        elif victims:
            self.strike(world.rng.choice(victims), what)
        world.after(world.between(100, 9_000), self.misfortune)

    def strike(self, victim: CentralConsumer, what: str) -> None:
        if what == "last moment":
            self.last_moment(victim)
        elif what == "kill":
            victim.kill()
        elif what == "close":
            victim.close()
        elif what == "freeze":
            victim.freeze(self.world.between(100, 3 * self.session_ms))
        elif what == "slow":
            victim.slow = not victim.slow
        elif victim.line is not None:
            victim.line.cut()

    def last_moment(self, victim: CentralConsumer) -> None:
        """What the victim says comes just before its time is over, and the node is busy for a moment over that."""
        shard = self.node.shard
        key = ("ping", "g", victim.name)
        if shard is None or victim.line is None or (due_ms := shard.state.deadlines.get(key)) is None:
            return
        at_ms = due_ms - self.world.between(1, LAST_MOMENT_MS)
        victim.line.withheld_until_ms = at_ms
        for_ms = due_ms - at_ms + self.world.between(1, 40)
        self.world.at(at_ms, lambda: self.node.ears.stall(for_ms))

    # The rules

    def check(self) -> None:
        """Nobody works on what another one works on; what was acknowledged is kept."""
        holders: dict[tuple[str, int], str] = {}
        for each in self.consumers:
            for tp in each.works_on:
                if (other := holders.setdefault(tp, each.name)) != each.name:
                    self.world.violated("ownership", f"{tp} is worked on by {other} and {each.name}")
        shard = self.node.shard
        if shard is not None and (group := shard.central_groups.get("g")) is not None:
            self.world.census[f"state {group.state.value}"] += 1

    def check_settled(self) -> None:
        shard = self.node.shard
        group = shard.central_groups.get("g") if shard is not None else None
        if shard is None or group is None or group.state is not CentralState.STABLE:
            self.world.violated("rest", f"the group is {group.state.value if group else 'gone'}, not Stable")
        owners: Counter[tuple[str, int]] = Counter()
        for each in self.living:
            owners.update(each.machine.owned)
            if not each.settled:
                self.world.violated("rest", f"{each.name} is {each.machine.state.name} long after all faults")
        wanted = {(topic, number) for topic, count in self.node.topics.items() for number in range(count)}
        if owners != Counter(dict.fromkeys(wanted, 1)):
            self.world.violated("rest", f"owned at last: {sorted(owners.items())}; wanted once each: {sorted(wanted)}")
        if self.world.violations:
            raise Violated("\n".join(self.world.violations))


def run_central(
    seed: int,
    machine: Machine = CentralMemberMachine,
    make_shard: MakeShard = Shard,
    make_engine: MakeEngine = Engine,
    *,
    keep_trace: bool = False,
) -> CentralRun:
    """One run to its end, or to the first violation."""
    central = Central(seed, machine, make_shard, make_engine, keep_trace=keep_trace)
    violation = ""
    try:
        central.run()
    except Violated as error:
        violation = str(error)
    return CentralRun(seed, violation, central.world.digest, central.world.census, central.world.lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.central.run", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and print what happened")
    parser.add_argument("--seeds", type=int, default=50, metavar="K", help="run K (default 50)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.seeds) if options.seed is None else [options.seed]
    failed, census = 0, Counter[str]()
    for seed in seeds:
        run = run_central(seed, keep_trace=options.seed is not None)
        census.update(run.census)
        if options.seed is not None:
            print("\n".join(run.lines))
        if run.violation:
            failed += 1
            print(f"seed {seed}: {run.violation}", flush=True)
    print(f"{len(seeds)} seeds, {failed} failed; {', '.join(f'{n} {what}' for what, n in census.most_common(20))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
