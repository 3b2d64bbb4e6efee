"""What a seed makes of the world: groups, members, topics, and what happens to them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from assignors.api import Assignor
from assignors.registry import resolve
from coordinator.core.events import DeleteGroup, DescribeGroup, ExplainGroup, LeaveGroup, OffsetCommit, OffsetFetch
from coordinator.core.types import CommittedOffset, MemberIdentity
from coordinator.member.classic import ClassicMember
from coordinator.member.subscription import Subscriber
from coordinator.member.types import Leaving, MemberSettings
from tests.sim.client import Habits, MakeMember, Process
from tests.sim.faults import Faults
from tests.sim.network import Network
from tests.sim.node import Node
from tests.sim.watch import Watch
from tests.sim.world import World

KINDS = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky", "range"),
)
"""What the members of a group offer. The last is the first half of a rolling upgrade."""

MAX_PARTITIONS = 12
RESTART_MS = 15_000
"""A supervisor brings a process back within this time."""


@dataclass(slots=True)
class Place:
    """A member's place in the deployment; processes come and go in it."""

    name: str
    group_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    habits: Habits
    session_timeout_ms: int
    rebalance_timeout_ms: int
    process: Process | None = None
    incarnations: int = 0
    wanted: bool = True


@dataclass(slots=True)
class Workload:
    """Draws everything from the world's chance, keeps the processes going, and disturbs them."""

    world: World
    network: Network
    node: Node
    watch: Watch
    faults: Faults
    make_member: MakeMember = ClassicMember
    processes: list[Process] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    calm: bool = False

    # Setting up

    def draw(self) -> None:
        world = self.world
        for number in range(world.between(1, 3)):
            self.node.topics[f"t{number}"] = world.between(1, 6)
        for number in range(world.between(1, 3)):
            self._draw_group(f"g{number}")

    def _draw_group(self, group_id: str) -> None:
        world, rng = self.world, self.world.rng
        kind = rng.choice(KINDS)
        upgrading = kind == ("cooperative-sticky", "range")
        static_share = rng.choice((0.0, 0.0, 0.5, 1.0))
        same_topics = rng.random() < 0.7
        session_ms = rng.choice((6_000, 10_000, 15_000))
        rebalance_ms = rng.choice((8_000, 20_000, 40_000))
        everything = tuple(sorted(self.node.topics))
        for number in range(world.between(1, 6)):
            name = f"{group_id}m{number}"
            some = tuple(sorted(rng.sample(everything, world.between(1, len(everything)))))
            self.places.append(
                Place(
                    name=name,
                    group_id=group_id,
                    instance_id=f"i-{name}" if rng.random() < static_share else None,
                    topics=everything if same_topics else some,
                    assignors=("range",) if upgrading and rng.random() < 0.3 else kind,
                    habits=self._draw_habits(),
                    session_timeout_ms=session_ms,
                    rebalance_timeout_ms=rebalance_ms,
                )
            )

    def _draw_habits(self) -> Habits:
        rng = self.world.rng
        return Habits(
            commit_every_ms=rng.choice((500, 2_000, 5_000)),
            callback_ms=rng.choice((0, 50, 2_000)),
            slow_callback=rng.choice((0.0, 0.0, 0.1)),
            late_commits=rng.choice((0.0, 0.2)),
            plan_ms=rng.choice((0, 100, 3_000)),
        )

    def start(self) -> None:
        for place in self.places:
            self._start_later(place, self.world.between(0, 10_000))
        faults = self.faults
        for every_ms, disturbance in (
            (faults.kill_every_ms, lambda: self._crash_node(power=False)),
            (faults.power_loss_every_ms, lambda: self._crash_node(power=True)),
            (faults.node_pause_every_ms, lambda: self.node.pause(self.world.between(100, 15_000))),
            (faults.unload_every_ms, self._unload),
            (faults.partition_every_ms, self._cut_off),
            (faults.member_pause_every_ms, self._freeze),
            (faults.stall_every_ms, self._stall),
            (faults.churn_every_ms, self._churn),
            (faults.topics_every_ms, self._change_topics),
            (faults.operator_every_ms, self._operate),
        ):
            if every_ms:
                self._now_and_then(every_ms, disturbance)

    def _now_and_then(self, every_ms: int, disturbance: Callable[[], None]) -> None:
        def happen() -> None:
            if not self.calm:
                disturbance()
                self._now_and_then(every_ms, disturbance)

        self.world.after(1 + int(self.world.rng.expovariate(1 / every_ms)), happen)

    # Processes

    def _start_later(self, place: Place, delay_ms: int) -> None:
        self.world.after(delay_ms, lambda: self._start(place))

    def _start(self, place: Place) -> None:
        running = place.process
        if not place.wanted or (running is not None and running.alive):
            return
        place.incarnations += 1
        settings = MemberSettings(
            group_id=place.group_id,
            client_id=f"{place.name}.{place.incarnations}",
            group_instance_id=place.instance_id,
            session_timeout_ms=place.session_timeout_ms,
            rebalance_timeout_ms=place.rebalance_timeout_ms,
            heartbeat_interval_ms=place.session_timeout_ms // 3,
        )
        assignors: list[Assignor] = [resolve(name) for name in place.assignors]
        subscriber = Subscriber(place.topics, assignors)
        process = Process(
            self.world,
            self.network,
            self.watch,
            settings.client_id,
            settings,
            subscriber,
            place.habits,
            self.make_member,
        )
        place.process = process
        self.processes.append(process)
        self.world.trace(f"{process.name} starts")
        process.start()

    def supervise(self) -> None:
        """Bring back who has ended, as a supervisor would; forget the dead."""
        for place in self.places:
            if place.process is not None and not place.process.alive:
                place.process = None
                if place.wanted:
                    self._start_later(place, self.world.between(100, RESTART_MS))
        self.processes[:] = [process for process in self.processes if process.alive]
        self.world.after(1_000, self.supervise)

    @property
    def running(self) -> list[Process]:
        return [place.process for place in self.places if place.process is not None and place.process.alive]

    def _one(self) -> Process | None:
        running = self.running
        return self.world.rng.choice(running) if running else None

    # Disturbances

    def _crash_node(self, *, power: bool) -> None:
        if not self.node.up:
            return
        self.node.crash(power=power)
        self.world.after(self.world.between(100, 10_000), self.node.start)

    def _unload(self) -> None:
        self.node.unload(self.world.between(0, self.node.log.shards - 1), self.world.between(100, 10_000))

    def _cut_off(self) -> None:
        if process := self._one():
            self.world.census["members cut off"] += 1
            self.network.cut(process.name, self.world.between(100, 30_000))

    def _freeze(self) -> None:
        if process := self._one():
            process.freeze(self.world.between(100, 2 * process.settings.session_timeout_ms))

    def _stall(self) -> None:
        if process := self._one():
            process.stall(self.world.between(1_000, 2 * process.settings.rebalance_timeout_ms))

    def _churn(self) -> None:
        place = self.world.rng.choice(self.places)
        process, what = place.process, self.world.rng.random()
        if process is None or not process.alive:
            place.wanted = True
            self._start_later(place, self.world.between(0, 1_000))
        elif what < 0.3:
            process.crash()
        elif what < 0.4:
            # The old process is still there when its successor starts, as after a network split.
            self.world.census["members with a twin"] += 1
            place.process = None
            self._start_later(place, 0)
            self.world.after(self.world.between(0, 60_000), process.crash)
        elif what < 0.7:
            place.wanted = self.world.chance(0.7)
            process.close(self.world.rng.choice(list(Leaving)))
        elif what < 0.9:
            topics = sorted(self.node.topics)
            place.topics = tuple(sorted(self.world.rng.sample(topics, self.world.between(1, len(topics)))))
            process.subscribe(place.topics)

    def _change_topics(self) -> None:
        topic = self.world.rng.choice(sorted(self.node.topics))
        if self.node.topics[topic] < MAX_PARTITIONS:
            self.world.census["partitions added"] += 1
            self.node.topics[topic] += self.world.between(1, 3)
            self.node.change_topics()

    def _operate(self) -> None:
        """Somebody with a tool looks, removes a member, sets an offset, or deletes a group."""
        place = self.world.rng.choice(self.places)
        group_id = place.group_id
        member_id = place.process.member.member_id if place.process else ""
        offset = (min(self.node.topics), 0, CommittedOffset(0, -1, f"operator/{self.world.events}"))
        request = self.world.rng.choice(
            (
                DescribeGroup(0, group_id),
                ExplainGroup(0, group_id),
                OffsetFetch(0, group_id, None),
                OffsetCommit(0, group_id, "", None, -1, (offset,)),
                LeaveGroup(0, group_id, (MemberIdentity(member_id, place.instance_id),), operator="ops"),
                LeaveGroup(0, group_id, (), operator="ops", everyone=True),
                DeleteGroup(0, group_id),
            )
        )
        self.network.call("operator", request, 5_000, lambda _: None)

    # The end of all disturbances

    def be_calm(self) -> None:
        """Faults end; everybody who should be there comes back; twins of the past are gone."""
        self.calm = True
        self.network.heal()
        self.node.log.faults = self.network.faults
        current = {place.process.name for place in self.places if place.process is not None}
        for process in self.processes:
            if process.name not in current:
                process.crash()
            else:
                process.thaw()
        if not self.node.up:
            self.world.after(0, self.node.start)
