"""What a seed makes of the world: groups, members, topics, and what happens to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from muster.assignors.api import Assignor
from muster.assignors.registry import resolve
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.consumer_member import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.delayed_rebalance import DelayedLeader, DelayedSubscriber
from muster.client.members.member_types import LeavePolicy, MemberSettings
from muster.client.members.subscription import Subscriber
from muster.coordinator.core.model.events import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    ExplainGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from muster.coordinator.core.model.types import CommittedOffset, MemberIdentity
from tests.sim.clock import draw as draw_clock
from tests.sim.faults import DEAF_MS, FULL_MS, Faults
from tests.sim.members.balancing import balance
from tests.sim.members.classic_part import ClassicPart, MakeClassic
from tests.sim.members.client import Habits, Process
from tests.sim.members.consumer_part import ConsumerPart, MakeConsumer
from tests.sim.members.operator import Operator
from tests.sim.members.part import Part
from tests.sim.members.setter import Setter
from tests.sim.members.settings import Tinkerer
from tests.sim.members.strangers import Strangers
from tests.sim.members.trials import Tester
from tests.sim.network import Network
from tests.sim.node.node import Node
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
LAST_MOMENT_MS = 150
"""Less than what a node takes for a stall."""

RESTART_MS = 15_000
"""A supervisor brings a process back within this time."""


GENERATIONS = ("classic", "classic", "classic", "delayed", "consumer", "consumer", "consumer", "moving", "moving")
"""Of a group's members: `moving` ones are on their way from the classic protocol to KIP-848, or back."""

ALONE = "alone"
"""A group without members, whose positions an operator sets and deletes."""

ALL_TOPICS = "t.*"
SERVER_ASSIGNORS = ("", "", "uniform", "range")


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
    generation: str = "classic"
    """What its members are: classic, delayed, or consumer (KIP-848)."""
    moves: bool = False
    """The next process in it may be of the other generation."""
    regex: str = ""
    server_assignor: str = ""
    max_delay_ms: int = 0
    keeps_delay: bool = True
    process: Process | None = None
    incarnations: int = 0
    wanted: bool = True

    @property
    def client_id(self) -> str:
        """Of its present process."""
        return f"{self.name}.{self.incarnations}"


@dataclass(slots=True)
class Workload:
    """Draws everything from the world's chance, keeps the processes going, and disturbs them."""

    world: World
    network: Network
    node: Node
    watch: Watch
    faults: Faults
    make_classic: MakeClassic = ClassicMemberMachine
    make_consumer: MakeConsumer = ConsumerMemberMachine
    generations: Sequence[str] = GENERATIONS
    processes: list[Process] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    calm: bool = False
    _repair_due: bool = False
    _strangers: Strangers = field(init=False)
    _tinkerer: Tinkerer = field(init=False)
    _setter: Setter = field(init=False)
    _holder: Operator = field(init=False)
    _tester: Tester = field(init=False)

    def __post_init__(self) -> None:
        self._strangers = Strangers(self.network)
        self._tinkerer = Tinkerer(self.network)
        self._setter = Setter(self.network, self.node.limits)
        self._holder = Operator(self.network, self.node)
        self._tester = Tester(self.network, self.node)

    # Setting up

    def draw(self) -> None:
        world = self.world
        for number in range(world.between(1, 3)):
            self.node.topics[f"t{number}"] = world.between(1, 6)
        for number in range(world.between(1, 3)):
            self._draw_group(f"g{number}")

    def _draw_group(self, group_id: str) -> None:
        world, rng = self.world, self.world.rng
        generation = rng.choice(self.generations)
        kind = ("cooperative-sticky",) if generation == "delayed" else rng.choice(KINDS)
        upgrading = kind == ("cooperative-sticky", "range") and generation == "classic"
        static_share = rng.choice((0.0, 0.0, 0.5, 1.0))
        same_topics = rng.random() < 0.7
        pushed_share = rng.choice((0.0, 0.5, 1.0))
        session_ms = rng.choice((6_000, 10_000, 15_000))
        rebalance_ms = rng.choice((8_000, 20_000, 40_000))
        max_delay_ms, keeps_delay = rng.choice((0, 2_000, 10_000, 30_000)), rng.random() < 0.7
        everything = tuple(sorted(self.node.topics))
        if generation == "delayed":
            everything = tuple(f"{group_id}r{number}" for number in range(world.between(1, 8)))
        for number in range(world.between(1, 6)):
            name = f"{group_id}m{number}"
            some = tuple(sorted(rng.sample(everything, world.between(1, len(everything)))))
            place = Place(
                name=name,
                group_id=group_id,
                instance_id=f"i-{name}" if rng.random() < static_share else None,
                topics=everything if same_topics or generation == "delayed" else some,
                assignors=("range",) if upgrading and rng.random() < 0.3 else kind,
                habits=self._draw_habits(commits=generation != "delayed", pushed=rng.random() < pushed_share),
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                generation=rng.choice(("classic", "consumer")) if generation == "moving" else generation,
                moves=generation == "moving",
                regex=ALL_TOPICS if rng.random() < 0.2 else "",
                server_assignor=rng.choice(SERVER_ASSIGNORS),
                max_delay_ms=max_delay_ms,
                keeps_delay=keeps_delay,
            )
            self.places.append(place)

    def _draw_habits(self, *, commits: bool, pushed: bool) -> Habits:
        rng = self.world.rng
        return Habits(
            commit_every_ms=rng.choice((500, 2_000, 5_000)),
            callback_ms=rng.choice((0, 50, 2_000)),
            slow_callback=rng.choice((0.0, 0.0, 0.1)),
            late_commits=rng.choice((0.0, 0.2)),
            plan_ms=rng.choice((0, 100, 3_000)),
            commits=commits,
            pushed=pushed,
        )

    def start(self) -> None:
        for place in self.places:
            self._start_later(place, self.world.between(0, 10_000))
        faults = self.faults
        for every_ms, disturbance in (
            (faults.kill_every_ms, lambda: self._crash_node(power=False)),
            (faults.power_loss_every_ms, lambda: self._crash_node(power=True)),
            (faults.node_stall_every_ms, lambda: self.node.ears.stall(self._stall_ms())),
            (faults.last_moment_every_ms, self._last_moment),
            (faults.deaf_every_ms, self._deafen),
            (faults.bulk_every_ms, lambda: self._strangers.say_much(self.world.rng.choice(self.places))),
            (faults.unload_every_ms, self._unload),
            (faults.full_every_ms, lambda: self.node.log.room.fill(self.world.between(1_000, FULL_MS))),
            (faults.partition_every_ms, self._cut_off),
            (faults.member_pause_every_ms, self._freeze),
            (faults.stall_every_ms, self._stall),
            (faults.churn_every_ms, self._churn),
            (faults.topics_every_ms, self._change_topics),
            (faults.operator_every_ms, self._operate),
            (faults.migrate_every_ms, self._migrate),
            (faults.trials_every_ms, lambda: self._tester.test(self.world.rng.choice(self.places).group_id)),
            (faults.balance_every_ms, lambda: balance(self.network, self.world.rng.choice(self.places).group_id)),
            (faults.settings_every_ms, lambda: self._tinkerer.tinker(self.world.rng.choice(self.places).group_id)),
            (faults.tuning_every_ms, lambda: self._setter.alter(self.world.rng.choice(self.places).group_id)),
            (faults.verbs_every_ms, self._hold),
            (faults.rights_every_ms, self._rule),
        ):
            if every_ms:
                self._now_and_then(every_ms, disturbance)

    def _stall_ms(self) -> int:
        """From a hiccup to a machine that was paused for a minute."""
        return self.world.between(*self.world.rng.choice(((100, 1_000), (100, 15_000), (10_000, 60_000))))

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
        # A KIP-848 member's session is the group's affair.
        consumer = place.generation == "consumer"
        session_ms = self.node.limits.consumer_session_timeout_ms if consumer else place.session_timeout_ms
        settings = MemberSettings(
            group_id=place.group_id,
            client_id=place.client_id,
            group_instance_id=place.instance_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=place.rebalance_timeout_ms,
            heartbeat_interval_ms=session_ms // 3,
        )
        process = Process(
            self.watch,
            self.network,
            draw_clock(self.world),
            settings.client_id,
            settings,
            place.habits,
            lambda process: self._part(place, process),
        )
        place.process = process
        self.processes.append(process)
        self.world.trace(f"{process.name} starts")
        process.start()

    def _part(self, place: Place, process: Process) -> Part:
        assignors: list[Assignor] = [resolve(name) for name in place.assignors]
        match place.generation:
            case "consumer":
                wish = RequestedSubscription(() if place.regex else place.topics, place.regex, place.server_assignor)
                return ConsumerPart(process, wish, self.make_consumer)
            case "delayed":
                leader = DelayedLeader(place.max_delay_ms, place.keeps_delay)
                return ClassicPart(process, DelayedSubscriber(place.topics, assignors), self.make_classic, leader)
            case _:
                return ClassicPart(process, Subscriber(place.topics, assignors), self.make_classic)

    def supervise(self) -> None:
        """Bring back who has ended, as a supervisor would; forget the dead."""
        for place in self.places:
            if place.process is not None and not place.process.alive:
                place.process = None
                if place.wanted:
                    self._start_later(place, self.world.between(100, RESTART_MS))
        self.processes[:] = [process for process in self.processes if process.alive]
        if self.node.log.fenced and not self._repair_due:
            self._repair_due = True
            self.world.after(self.world.between(1_000, 20_000), self._repair)
        self.world.after(1_000, self.supervise)

    def _repair(self) -> None:
        """Whoever looks after the node starts it anew: it has said that a log is fenced."""
        self._repair_due = False
        if self.node.log.fenced:
            self.node.crash(power=False)
            self.world.after(self.world.between(100, 10_000), self.node.start)

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

    def _deafen(self) -> None:
        if process := self._one():
            self.world.census["members deafened"] += 1
            self.network.deaf[process.name] = self.world.now_ms + self.world.between(1_000, DEAF_MS)

    def _last_moment(self) -> None:
        process = self._one()
        shard = self.node.shard_of(process.settings.group_id) if process else None
        if process is None or shard is None:
            return
        key = ("session", process.settings.group_id, process.member.member_id)
        if (due_ms := shard.state.deadlines.get(key)) is None:
            return
        due_ms += self.world.behind_ms
        at_ms = due_ms - self.world.between(1, LAST_MOMENT_MS)
        self.network.withheld[process.name] = at_ms
        for_ms = due_ms - at_ms + self.world.between(1, 40)
        self.world.census["words at the last moment"] += 1
        self.world.at(at_ms, lambda: self.node.ears.stall(for_ms))

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
            process.close(self.world.rng.choice(list(LeavePolicy)))
        elif what < 0.9:
            self._resubscribe(place, process)

    def _resubscribe(self, place: Place, process: Process) -> None:
        if place.generation == "delayed":
            return
        topics = sorted(self.node.topics)
        place.topics = tuple(sorted(self.world.rng.sample(topics, self.world.between(1, len(topics)))))
        if process.consumer:
            place.regex = ALL_TOPICS if self.world.chance(0.2) else ""
        process.subscribe(() if process.consumer and place.regex else place.topics, place.regex)

    def _migrate(self) -> None:
        """One step of a rolling upgrade, or of one that is taken back."""
        places = [place for place in self.places if place.moves]
        if not places:
            return
        self._change_protocol(self.world.rng.choice(places))

    def _change_protocol(self, place: Place) -> None:
        place.generation = "classic" if place.generation == "consumer" else "consumer"
        self.world.census["places that changed their protocol"] += 1
        self._restart(place)

    def _restart(self, place: Place) -> None:
        if place.process is not None and place.process.alive:
            place.process.close(self.world.rng.choice(list(LeavePolicy)))

    def _hold(self) -> None:
        """An operator holds something. What he freezes or deploys he may start anew, one after the other."""
        world = self.world
        target = world.rng.choice(self.places)
        if not self._holder.act(target) or world.chance(0.3):
            return
        rolled = [place for place in self.places if place.group_id == target.group_id]
        turns = world.chance(0.5)
        for number, place in enumerate(rolled[: world.between(1, len(rolled))]):
            change = self._change_protocol if turns and place.moves else self._restart
            delay_ms = number * 4_000 + world.between(200, 4_000)
            world.after(delay_ms, partial(self._unless_calm, partial(change, place)))

    def _unless_calm(self, action: Callable[[], None]) -> None:
        if not self.calm:
            action()

    def _rule(self) -> None:
        assert self.node.rulings is not None, "who may not read everything is known from the beginning"
        self.node.rulings.change()

    def _change_topics(self) -> None:
        topic = self.world.rng.choice(sorted(self.node.topics))
        if self.node.topics[topic] < MAX_PARTITIONS:
            self.world.census["partitions added"] += 1
            self.node.topics[topic] += self.world.between(1, 3)
            self.world.trace(f"{topic} has {self.node.topics[topic]} partitions")
            self.node.change_topics()

    def _operate(self) -> None:
        """Somebody with a tool looks, removes a member, sets an offset, or deletes a group."""
        place = self.world.rng.choice(self.places)
        group_id = place.group_id
        member_id = place.process.member.member_id if place.process else ""
        offsets = {(min(self.node.topics), 0): CommittedOffset(0, -1, f"operator/{self.world.events}")}
        request = self.world.rng.choice(
            (
                DescribeGroup(0, group_id),
                DescribeConsumerGroup(0, group_id),
                ExplainGroup(0, group_id),
                OffsetFetch(0, group_id, None),
                OffsetCommit(0, group_id, "", None, -1, offsets, operator="ops", by_tool=True),
                LeaveGroup(0, group_id, (MemberIdentity(member_id, place.instance_id),), operator="ops"),
                LeaveGroup(0, group_id, (), operator="ops", everyone=True),
                DeleteGroup(0, group_id, operator="ops"),
            )
        )
        self.network.call("operator", request, 5_000, lambda _: None)
        self._operate_alone()

    def _operate_alone(self) -> None:
        """Members are in the way of most that is done to positions: the same to a group that never has any."""
        place = self.world.rng.choice(sorted(self.node.topics)), 0
        position = CommittedOffset(self.world.between(0, 9))
        request = self.world.rng.choice(
            (
                OffsetCommit(0, ALONE, "", None, -1, {place: position}, operator="ops", by_tool=True),
                OffsetCommit(0, ALONE, "", None, -1, {place: position}, operator="consumer"),
                OffsetDelete(0, ALONE, (place,), operator="ops"),
                DeleteGroup(0, ALONE, operator="ops"),
            )
        )
        self.network.call("operator", request, 5_000, lambda _: None)

    def tinker_with_all(self) -> None:
        """Somebody changes who plans, for every group; right behind it the shards may go, and come back."""
        for group_id in sorted({place.group_id for place in self.places}):
            self._tinkerer.tinker(group_id)
        if self.world.chance(0.5):
            for shard in range(self.node.log.shards):
                self.world.after(self.world.between(10, 300), partial(self.node.unload, shard, 1_000))

    # The end of all disturbances

    def be_calm(self) -> None:
        """Faults end; everybody who should be there comes back; twins of the past are gone."""
        self.calm = True
        self.network.heal()
        self.node.log.faults = self.network.faults
        self.node.log.room.free()
        current = {place.process.name for place in self.places if place.process is not None}
        for process in self.processes:
            if process.name not in current:
                process.crash()
            else:
                process.thaw()
        self._repair()
        if self.node.rulings is not None:
            self.node.rulings.allow_everything()
        if self.faults.verbs_every_ms:
            self._holder.resume(sorted({place.group_id for place in self.places}))
        if not self.node.up:
            self.world.after(0, self.node.start)
