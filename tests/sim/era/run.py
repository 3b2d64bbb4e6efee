"""One run of a group of the ZooKeeper era: consumers come, go, freeze and lose touch, and the rules hold throughout."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from muster.client.members.zookeeper_assignment import GroupRegistration, ZookeeperMemberSettings
from muster.client.members.zookeeper_member import ZookeeperMemberMachine, ZookeeperState
from muster.workshop.lab.zookeeper_worker import BROKERS, IDS, TOPICS, EnsembleModel, owner_path
from tests.sim.era.consumer import EraConsumer
from tests.sim.world import START_MS, Violated, World

Machine = Callable[[ZookeeperMemberSettings, GroupRegistration], ZookeeperMemberMachine]
FAULTS_MS = 120_000
QUIET_MS = 90_000
"""Enough for every session to end, and for all retries."""
MAX_CONSUMERS = 8
AMPLE = 12
"""Retries that outlast every session."""
MAX_LAG_MS = 1_500
"""Less than the back-off between two attempts, as zookeeper.sync.time.ms says."""


@dataclass
class EraRun:
    seed: int
    violation: str
    digest: str
    census: Counter[str]
    lines: list[str] = field(default_factory=list)


class Era:
    """A group on topics that grow, under everything that happens to processes and networks."""

    def __init__(
        self, seed: int, machine: Machine, *, retries: int = AMPLE, backoff_ms: int = 2_000, keep_trace: bool = False
    ) -> None:
        self.world = World(seed, keep_trace=keep_trace)
        self.machine = machine
        self.ensemble = EnsembleModel(self.world, MAX_LAG_MS)
        rng = self.world.rng
        self.settings = ZookeeperMemberSettings(
            "g",
            strategy=rng.choice(["range", "roundrobin"]),
            rebalance_retries=retries,
            rebalance_backoff_ms=backoff_ms,
            session_timeout_ms=rng.choice([4_000, 6_000, 10_000]),
        )
        self.counts = {"t": rng.randint(1, 7), "u": rng.randint(0, 4)}
        self.consumers: list[EraConsumer] = []
        self.ensemble.put(f"{BROKERS}/1", "")
        for topic, count in self.counts.items():
            self.ensemble.put(f"{TOPICS}/{topic}", count)
        for _ in range(rng.randint(1, 4)):
            self.world.after(rng.randint(0, 500), self.join)

    @property
    def living(self) -> list[EraConsumer]:
        return [each for each in self.consumers if not each.dead and each.machine.state is not ZookeeperState.CLOSED]

    def join(self) -> None:
        if len(self.living) < MAX_CONSUMERS:
            name = f"c{len(self.consumers)}"
            self.world.trace(f"{name} starts")
            self.consumers.append(EraConsumer(self.world, self.ensemble, name, self.machine, self.settings, ("t", "u")))

    def run(self) -> None:
        self.world.after(1_000, self.misfortune)
        self.world.run(START_MS + FAULTS_MS, self.check)
        self.world.trace("from here on nothing happens any more")
        if not self.living:
            self.join()
        self.world.run(START_MS + FAULTS_MS + QUIET_MS, self.check)
        self.check_settled()

    def misfortune(self) -> None:
        """One thing after the other, until the time of faults is over."""
        world = self.world
        if world.now_ms >= START_MS + FAULTS_MS - 15_000:
            return
        what = world.rng.choice(["join", "join", "kill", "close", "freeze", "cut", "cut", "grow", "broker", "delete"])
        world.census[what] += 1
        victims = [each for each in self.living if not each.frozen]
        if what == "join":
            self.join()
        elif what == "grow":
            topic = world.rng.choice(sorted(self.counts))
            self.counts[topic] += 1
            self.ensemble.put(f"{TOPICS}/{topic}", self.counts[topic])
        elif what == "broker":
            self.ensemble.put(f"{BROKERS}/{world.between(2, 9)}", "")
        elif victims:
            victim = world.rng.choice(victims)
            if what == "kill":
                victim.kill()
            elif what == "close":
                victim.close()
            elif what == "freeze":
                victim.freeze(world.between(100, self.settings.session_timeout_ms * 2))
            elif what == "cut":
                victim.cut(world.between(10, self.settings.session_timeout_ms * 2))
            elif victim.session is not None:
                self.ensemble.delete(victim.session, f"{IDS}/{victim.machine.consumer_id}")
        world.after(world.between(100, 8_000), self.misfortune)

    def check(self) -> None:
        """Whoever believes to own a partition, and whose session lives, has its node; so nobody else has."""
        for consumer in self.consumers:
            session = consumer.session
            if consumer.dead or session is None or not session.alive:
                continue
            for tp in consumer.machine.owned:
                node = self.ensemble.tree.get(owner_path(tp))
                if node is None or node.owner != session.id:
                    holder = node.data if node else "nobody"
                    self.world.violated("ownership", f"{consumer.name} owns {tp}, whose node is {holder}'s")

    def check_settled(self) -> None:
        owners: Counter[tuple[str, int]] = Counter()
        for consumer in self.living:
            owners.update(consumer.machine.owned)
            if consumer.machine.state is not ZookeeperState.STABLE:
                self.world.violated("rest", f"{consumer.name} is {consumer.machine.state.name} long after all faults")
        wanted = {(topic, number) for topic, count in self.counts.items() for number in range(count)}
        if owners != Counter(dict.fromkeys(wanted, 1)):
            self.world.violated(
                "rest", f"owned at last: {sorted(owners.items())}; expected once each: {sorted(wanted)}"
            )
        self.world.census["expired"] += self.ensemble.expired
        self.world.census["refused"] += sum(each.refused for each in self.consumers)
        self.world.census["gave up"] += sum(each.gave_up for each in self.consumers)
        if self.world.violations:
            raise Violated("\n".join(self.world.violations))


def run_era(
    seed: int,
    machine: Machine = ZookeeperMemberMachine,
    *,
    retries: int = AMPLE,
    backoff_ms: int = 2_000,
    keep_trace: bool = False,
) -> EraRun:
    """One run to its end, or to the first violation."""
    era = Era(seed, machine, retries=retries, backoff_ms=backoff_ms, keep_trace=keep_trace)
    violation = ""
    try:
        era.run()
    except Violated as error:
        violation = str(error)
    return EraRun(seed, violation, era.world.digest, era.world.census, era.world.lines)
